//! Encoders like BERT: bidirectional attention over a whole text at once.
//!
//! Devlin et al., "BERT", 2018; Sanh et al., "DistilBERT", 2019; Liu et al., "RoBERTa", 2019; Song et
//! al., "MPNet", 2020. One network for all; they differ in names of tensors, in positions and in token
//! types.

use candle_core::{Device, Result, Tensor, bail};

use super::error::ModelError;
use crate::weights::Weights;
use network::Network;

mod config;
mod lexical;
mod network;
mod position_bias;
mod text;

pub use config::{EncoderSpec, architectures, is_encoder};
pub use lexical::LexicalEncoder;
pub use text::Text;

/// A loaded encoder.
pub struct Encoder {
    network: Network,
    spec: EncoderSpec,
}

/// A network that reads whole texts.
pub trait TextEncoder: Send {
    /// Hidden states of all tokens, text after text: `[num_tokens, hidden_size]` in f32; `None`
    /// once `go_on`, which is called before layers, returns false.
    fn forward(
        &self,
        texts: &[Text<'_>],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>>;

    /// Tokens in the vocabulary: rows of the embedding.
    fn vocab_size(&self) -> usize;

    /// Elements of a hidden state.
    fn hidden_size(&self) -> usize;

    /// The most tokens of a text.
    fn max_tokens(&self) -> usize;

    /// Whether [`forward`](Self::forward) gives one row for a whole text instead of one for each token.
    fn pools(&self) -> bool {
        false
    }
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
}

impl TextEncoder for Encoder {
    fn forward(
        &self,
        texts: &[Text<'_>],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        let most = self.max_tokens();
        let long = texts.iter().find(|text| text.token_ids.len() > most);
        if let Some(Text { token_ids, .. }) = long {
            bail!("a text has {} tokens, the most is {most}", token_ids.len());
        }
        self.network.forward(texts, &self.spec, device, go_on)
    }

    fn vocab_size(&self) -> usize {
        self.spec.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.spec.hidden_size()
    }

    fn max_tokens(&self) -> usize {
        self.spec.max_tokens()
    }
}
