//! The encoder: from the features of a window to one state for every 20 ms of it.

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{Conv1d, Conv1dConfig, LayerNorm};

use super::config::Config;
use super::layers::{Attention, FeedForward, Loaded, layer_norm};
use crate::weights::Weights;

/// The encoder of a model.
pub(super) struct Encoder {
    convolutions: [Conv1d; 2],
    /// `[positions, size]`.
    positions: Tensor,
    layers: Vec<Layer>,
    norm: LayerNorm,
}

struct Layer {
    attention_norm: LayerNorm,
    attention: Attention,
    feed_forward_norm: LayerNorm,
    feed_forward: FeedForward,
}

impl Encoder {
    pub(super) fn load(weights: &Weights, config: &Config) -> Loaded<Self> {
        let shape = &config.shape;
        let size = shape.d_model;
        let layer = |index: usize| -> Loaded<Layer> {
            let weights = weights.scope("layers").scope(index);
            Ok(Layer {
                attention_norm: layer_norm(&weights.scope("self_attn_layer_norm"), size)?,
                attention: Attention::load(
                    &weights.scope("self_attn"),
                    size,
                    shape.encoder_attention_heads,
                )?,
                feed_forward_norm: layer_norm(&weights.scope("final_layer_norm"), size)?,
                feed_forward: FeedForward::load(&weights, size, config.encoder_ffn)?,
            })
        };
        let positions = &[shape.max_source_positions, size];
        Ok(Self {
            convolutions: [
                convolution(&weights.scope("conv1"), (size, shape.num_mel_bins), 1)?,
                convolution(&weights.scope("conv2"), (size, size), 2)?,
            ],
            positions: weights.scope("embed_positions").dense("weight", positions, DType::F32)?,
            layers: (0..shape.encoder_layers).map(layer).collect::<Loaded<_>>()?,
            norm: layer_norm(&weights.scope("layer_norm"), size)?,
        })
    }

    /// The states `[1, positions, size]` of features `[1, mels, 2 * positions]`; `None` if `stop` says
    /// so between two layers.
    pub(super) fn forward(
        &self,
        features: &Tensor,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Tensor>> {
        let mut states = features.clone();
        for convolution in &self.convolutions {
            states = convolution.forward(&states)?.gelu_erf()?;
        }
        let mut states = states.transpose(1, 2)?.broadcast_add(&self.positions)?;
        for layer in &self.layers {
            if stop() {
                return Ok(None);
            }
            states = layer.forward(&states)?;
        }
        Ok(Some(self.norm.forward(&states)?))
    }
}

impl Layer {
    fn forward(&self, states: &Tensor) -> Result<Tensor> {
        let normed = self.attention_norm.forward(states)?;
        let queries = self.attention.queries(&normed)?;
        let (keys, values) = self.attention.keys_and_values(&normed)?;
        let states = (states + self.attention.attend_to_all(&queries, &keys, &values)?)?;
        let normed = self.feed_forward_norm.forward(&states)?;
        states + self.feed_forward.forward(&normed)?
    }
}

/// A convolution over three neighbours.
fn convolution(
    weights: &Weights,
    (outputs, inputs): (usize, usize),
    stride: usize,
) -> Loaded<Conv1d> {
    let weight = weights.dense("weight", &[outputs, inputs, 3], DType::F32)?;
    let bias = weights.dense("bias", &[outputs], DType::F32)?;
    let config = Conv1dConfig { padding: 1, stride, ..Conv1dConfig::default() };
    Ok(Conv1d::new(weight, Some(bias), config))
}
