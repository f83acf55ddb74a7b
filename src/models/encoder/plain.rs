//! An encoder that gives the hidden states of tokens.

use candle_core::{Device, Result, Tensor, bail};

use super::config::EncoderSpec;
use super::network::Network;
use super::text::{Text, TextEncoder};
use crate::models::error::ModelError;
use crate::weights::Weights;

/// A loaded encoder.
pub struct Encoder {
    pub(super) network: Network,
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
