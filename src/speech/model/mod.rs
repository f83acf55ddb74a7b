//! Whisper's network: an encoder over 30 s of sound and a decoder of text.
//!
//! candle-transformers has it, and its [`Config`](candle_transformers::models::whisper::Config) and
//! constants are those that stand here. Its layers can't be used: they approximate GELU with a tanh, where
//! the weights were trained with the error function, which moves logits of a model of two layers by 1.2e-3;
//! the decoder computes all tokens again for each new one, for it caches only what it heard; the weights of
//! cross attention, from which words get their times, stay inside; feed-forward networks must be four times
//! as wide as states; and nothing can stop between two layers.

pub mod config;
mod decoder;
mod encoder;
mod layers;

use candle_core::{Device, Result, Tensor};

use crate::weights::Weights;
use crate::weights::error::WeightError;
use config::Config;
use decoder::Decoder;
pub use decoder::{Heard, Past};
use encoder::Encoder;

/// A model whose weights are in memory, in single precision.
pub struct Whisper {
    config: Config,
    encoder: Encoder,
    decoder: Decoder,
    device: Device,
}

/// What the watched heads of cross attention looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Looks {
    /// For each head, the weight of every encoder state for every token: `[tokens][positions]`.
    pub heads: Vec<Vec<Vec<f32>>>,
}

impl Whisper {
    /// Reads the weights of the model that `config` describes.
    ///
    /// # Errors
    /// A tensor is missing, damaged or of another shape.
    pub fn load(weights: &Weights, config: Config) -> std::result::Result<Self, WeightError> {
        // Some files were written without the class that makes logits.
        let weights = if weights.contains("encoder.conv1.weight") {
            weights
        } else {
            &weights.scope("model")
        };
        Ok(Self {
            encoder: Encoder::load(&weights.scope("encoder"), &config)?,
            decoder: Decoder::load(&weights.scope("decoder"), &config)?,
            device: weights.device().clone(),
            config,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The encoder's states `[1, positions, size]` of one window's features `[mels, 2 * positions]`, row
    /// by row; `None` if `stop` turned true.
    ///
    /// # Errors
    /// The features are of another shape, or memory is short.
    pub fn encode(&self, features: Vec<f32>, stop: &dyn Fn() -> bool) -> Result<Option<Tensor>> {
        let shape = (1, self.config.shape.num_mel_bins, self.config.window());
        self.encoder.forward(&Tensor::from_vec(features, shape, &self.device)?, stop)
    }

    /// Reads encoder states once for all tokens of the window.
    ///
    /// # Errors
    /// Memory is short.
    pub fn hear(&self, states: &Tensor) -> Result<Heard> {
        self.decoder.hear(states)
    }

    /// Begins the tokens of a window.
    pub fn begin(&self) -> Past {
        self.decoder.begin(self.config.shape.max_target_positions)
    }

    /// Reads `tokens`, which follow `past`: the logits after those at the places in `wanted`,
    /// `[wanted][vocabulary]`.
    ///
    /// # Errors
    /// There are more tokens than the model has positions, or memory is short.
    pub fn logits(
        &self,
        tokens: &[u32],
        past: &mut Past,
        heard: &Heard,
        wanted: &[u32],
    ) -> Result<Vec<Vec<f32>>> {
        let states = self.decoder.forward(tokens, past, heard, &[], &mut Vec::new())?;
        let wanted = states.index_select(&Tensor::new(wanted, &self.device)?, 0)?;
        self.decoder.logits(&wanted)?.to_vec2()
    }

    /// What heads looked at while the model read `tokens`, a whole window's. `heads` are pairs of a layer
    /// and a head, layers in order.
    ///
    /// # Errors
    /// As [`logits`](Self::logits).
    pub fn looks(&self, tokens: &[u32], heard: &Heard, heads: &[(usize, usize)]) -> Result<Looks> {
        let mut weights = Vec::with_capacity(heads.len());
        self.decoder.forward(tokens, &mut self.begin(), heard, heads, &mut weights)?;
        let heads = weights.iter().map(Tensor::to_vec2).collect::<Result<_>>()?;
        Ok(Looks { heads })
    }
}
