//! Encoders like BERT: bidirectional attention over a whole text at once.
//!
//! Devlin et al., "BERT", 2018; Sanh et al., "DistilBERT", 2019; Liu et al., "RoBERTa", 2019; Song et
//! al., "MPNet", 2020; He et al., "DeBERTa", 2021; Lan et al., "ALBERT", 2020. One network for all; they
//! differ in names of tensors, in positions, in token types and in which layers share weights. That of T5
//! stands beside it.

mod config;
mod disentangled;
mod lexical;
mod network;
mod plain;
mod position_bias;
mod t5;
mod text;

use serde_json::Value;

pub use config::EncoderSpec;
pub use lexical::LexicalEncoder;
pub use plain::Encoder;
pub use t5::{T5Encoder, T5Spec, is_t5};
pub(super) use text::lengths;
pub use text::{Text, TextEncoder};

/// Class names of all encoders that are supported.
pub fn architectures() -> impl Iterator<Item = String> {
    config::architectures().chain(t5::CLASSES.into_iter().map(str::to_owned))
}

/// Whether a `config.json` describes an encoder.
pub fn is_encoder(config: &Value) -> bool {
    config::is_encoder(config) || is_t5(config)
}
