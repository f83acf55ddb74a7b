//! The parameters of a rotary embedding in `config.json`, in the spelling of any version.

use serde::Deserialize;

/// A rotary embedding as written in `rope_scaling` or `rope_parameters`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RopeParameters {
    /// Method of scaling.
    pub rope_type: Option<String>,
    /// Method of scaling, as older files spell it.
    #[serde(rename = "type")]
    pub old_type: Option<String>,
    /// Base of the geometric series of wavelengths.
    pub rope_theta: Option<f64>,
    /// Share of a head that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// Divisor of frequencies.
    pub factor: Option<f64>,
    /// `llama3`: wavelengths above the original context divided by this are scaled.
    pub low_freq_factor: Option<f64>,
    /// `llama3`: wavelengths below the original context divided by this are kept.
    pub high_freq_factor: Option<f64>,
    /// `llama3`, `yarn` and `longrope`: context length of the pretraining.
    pub original_max_position_embeddings: Option<usize>,
    /// `yarn` and `longrope`: factor of cosines and sines.
    pub attention_factor: Option<f64>,
    /// `yarn`: rotations in the original context from which on a frequency is kept.
    pub beta_fast: Option<f64>,
    /// `yarn`: rotations in the original context up to which a frequency is divided.
    pub beta_slow: Option<f64>,
    /// `yarn`: whether the bounds of the ramp are rounded to whole dimensions.
    pub truncate: Option<bool>,
    /// `yarn`: a coefficient in the formula of `attention_factor`.
    pub mscale: Option<f64>,
    /// `yarn`: a coefficient in the formulas of `attention_factor` and of the attention scale.
    pub mscale_all_dim: Option<f64>,
    /// `longrope`: a divisor for each frequency, in sequences up to the original context.
    pub short_factor: Option<Vec<f64>>,
    /// `longrope`: a divisor for each frequency, in longer sequences.
    pub long_factor: Option<Vec<f64>>,
    /// `longrope`: factor of cosines and sines in sequences up to the original context.
    pub short_mscale: Option<f64>,
    /// `longrope`: factor of cosines and sines in longer sequences.
    pub long_mscale: Option<f64>,
    /// Coefficient of the logarithmic query scale at positions beyond the original context.
    pub llama_4_scaling_beta: Option<f64>,
    /// `dynamic`: NTK-aware factor of the base at every context length.
    pub alpha: Option<f64>,
    /// How many pairs are rotated by a token's position in time, its row and its column.
    pub mrope_section: Option<Vec<usize>>,
    /// Whether those pairs take turns; else all of one kind are together.
    pub mrope_interleaved: Option<bool>,
    /// `factors`, which our GGUF reader writes: a divisor for each frequency.
    pub factors: Option<Vec<f64>>,
    /// Parameters of layers with full attention or with an indexer, where kinds of layers differ.
    #[serde(alias = "indexed_attention", alias = "hybrid")]
    pub full_attention: Option<Box<Self>>,
    /// Parameters of layers with a sliding window, where kinds of layers differ.
    #[serde(alias = "hybrid_sliding")]
    pub sliding_attention: Option<Box<Self>>,
}
