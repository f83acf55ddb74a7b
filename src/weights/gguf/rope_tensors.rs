//! Tensors of a GGUF file that are part of the configuration: divisors of rotary frequencies.

/// The tensor that scales rotary frequencies: part of the configuration, not of the weights.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The tensors that scale rotary frequencies in contexts longer than the pretraining's, and in others.
pub(crate) const LONG_ROPE_FACTORS: [&str; 2] =
    ["rope_factors_long.weight", "rope_factors_short.weight"];

/// Divisors of frequencies that the file has as tensors.
#[derive(Debug, Default)]
pub(crate) struct RopeTensors {
    /// Divisors for contexts of any length.
    pub(crate) factors: Option<Vec<f32>>,
    /// Divisors for contexts longer than the pretraining's.
    pub(crate) long: Option<Vec<f32>>,
    /// Divisors for contexts that are no longer than the pretraining's.
    pub(crate) short: Option<Vec<f32>>,
}
