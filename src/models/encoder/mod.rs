//! Encoders like BERT: bidirectional attention over a whole text at once.
//!
//! Devlin et al., "BERT", 2018; Sanh et al., "DistilBERT", 2019; Liu et al., "RoBERTa", 2019; Song et
//! al., "MPNet", 2020. One network for all; they differ in names of tensors, in positions and in token
//! types.

mod config;
mod lexical;
mod network;
mod plain;
mod position_bias;
mod text;

pub use config::{EncoderSpec, architectures, is_encoder};
pub use lexical::LexicalEncoder;
pub use plain::Encoder;
pub use text::{Text, TextEncoder};
