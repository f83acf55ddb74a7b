//! The embedded demo model: its files, and (feature `train`) the corpus, trainer and gate that made it.
//! Refuses to know how a model is loaded and served.

#[cfg(feature = "train")]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "all numbers are small"
)]
mod corpus;
#[cfg(feature = "train")]
pub mod gate;
#[cfg(feature = "train")]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts of tokens and columns stay far below what the narrower types hold"
)]
pub(crate) mod trainer;

/// Name and bytes of each file of the model's folder, in Hugging Face's layout.
pub fn files() -> &'static [(&'static str, &'static [u8])] {
    &[
        ("config.json", include_bytes!("model/config.json")),
        ("generation_config.json", include_bytes!("model/generation_config.json")),
        ("tokenizer.json", include_bytes!("model/tokenizer.json")),
        ("tokenizer_config.json", include_bytes!("model/tokenizer_config.json")),
        ("model.safetensors", include_bytes!("model/model.safetensors")),
    ]
}
