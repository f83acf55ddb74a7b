//! Encoders like BERT: bidirectional attention over a whole text at once.
//!
//! Devlin et al., "BERT", 2018; Sanh et al., "DistilBERT", 2019; Liu et al., "RoBERTa", 2019. One
//! network for all; they differ in names of tensors, in positions and in token types.

use candle_core::{Device, Result, Tensor, bail};

use super::error::ModelError;
use crate::weights::Weights;
use network::Network;

mod config;
mod network;

pub use config::{EncoderSpec, architectures, is_encoder};

/// A loaded encoder.
pub struct Encoder {
    network: Network,
    spec: EncoderSpec,
}

impl Encoder {
    /// Loads the weights of `spec`.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn load(spec: &EncoderSpec, weights: &Weights) -> std::result::Result<Self, ModelError> {
        Ok(Self { network: Network::load(spec, weights)?, spec: spec.clone() })
    }

    /// Hidden states of all tokens, text after text: `[num_tokens, hidden_size]` in f32; `None`
    /// once `go_on`, which is called before every layer, returns false.
    pub fn forward(
        &self,
        texts: &[&[u32]],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        let most = self.max_tokens();
        if let Some(long) = texts.iter().find(|text| text.len() > most) {
            bail!("a text has {} tokens, the most is {most}", long.len());
        }
        let positions: Vec<u32> = texts.iter().flat_map(|text| self.spec.positions(text)).collect();
        let lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
        self.network.forward(&texts.concat(), &positions, &lengths, device, go_on)
    }

    /// Tokens in the vocabulary: rows of the embedding.
    pub fn vocab_size(&self) -> usize {
        self.spec.vocab_size
    }

    /// Elements of a hidden state.
    pub fn hidden_size(&self) -> usize {
        self.spec.hidden_size()
    }

    /// The most tokens of a text.
    pub fn max_tokens(&self) -> usize {
        self.spec.max_tokens()
    }
}
