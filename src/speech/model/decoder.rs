//! The decoder: continues the tokens of one window.

use candle_core::{DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::LayerNorm;
use candle_nn::kv_cache::KvCache;
use candle_nn::ops::softmax_last_dim;

use super::config::Config;
use super::layers::{Attention, FeedForward, Loaded, attend_to_past, causal_mask, layer_norm};
use crate::weights::Weights;

/// The decoder of a model.
pub(super) struct Decoder {
    /// `[vocabulary, size]`; also what makes logits of states.
    embeddings: Tensor,
    /// `[positions, size]`.
    positions: Tensor,
    layers: Vec<Layer>,
    norm: LayerNorm,
    device: Device,
}

struct Layer {
    attention_norm: LayerNorm,
    attention: Attention,
    cross_norm: LayerNorm,
    cross: Attention,
    feed_forward_norm: LayerNorm,
    feed_forward: FeedForward,
}

/// The keys and values of one window's states, for every layer `[1, heads, positions, head size]`.
pub struct Heard(Vec<(Tensor, Tensor)>);

/// The tokens of one window that were computed.
pub struct Past {
    caches: Vec<KvCache>,
    length: usize,
}

impl Past {
    /// Tokens that were computed.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Decoder {
    pub(super) fn load(weights: &Weights, config: &Config) -> Loaded<Self> {
        let shape = &config.shape;
        let (size, heads) = (shape.d_model, shape.decoder_attention_heads);
        let layer = |index: usize| -> Loaded<Layer> {
            let weights = weights.scope("layers").scope(index);
            Ok(Layer {
                attention_norm: layer_norm(&weights.scope("self_attn_layer_norm"), size)?,
                attention: Attention::load(&weights.scope("self_attn"), size, heads)?,
                cross_norm: layer_norm(&weights.scope("encoder_attn_layer_norm"), size)?,
                cross: Attention::load(&weights.scope("encoder_attn"), size, heads)?,
                feed_forward_norm: layer_norm(&weights.scope("final_layer_norm"), size)?,
                feed_forward: FeedForward::load(&weights, size, config.decoder_ffn)?,
            })
        };
        let table = |name, rows| weights.scope(name).dense("weight", &[rows, size], DType::F32);
        Ok(Self {
            embeddings: table("embed_tokens", shape.vocab_size)?,
            positions: table("embed_positions", shape.max_target_positions)?,
            layers: (0..shape.decoder_layers).map(layer).collect::<Loaded<_>>()?,
            norm: layer_norm(&weights.scope("layer_norm"), size)?,
            device: weights.device().clone(),
        })
    }

    /// Reads the encoder's states `[1, positions, size]` once for all tokens.
    pub(super) fn hear(&self, states: &Tensor) -> Result<Heard> {
        let layers = self.layers.iter().map(|layer| layer.cross.keys_and_values(states));
        Ok(Heard(layers.collect::<Result<_>>()?))
    }

    /// No tokens yet, of at most `most`.
    pub(super) fn begin(&self, most: usize) -> Past {
        Past { caches: self.layers.iter().map(|_| KvCache::new(2, most)).collect(), length: 0 }
    }

    /// The states `[tokens, size]` of `tokens`, which follow `past`. For each pair of a layer
    /// and a head in `watched`, `weights` gets what its cross attention looked at, `[tokens, positions]`,
    /// in the order of layers.
    pub(super) fn forward(
        &self,
        tokens: &[u32],
        past: &mut Past,
        heard: &Heard,
        watched: &[(usize, usize)],
        weights: &mut Vec<Tensor>,
    ) -> Result<Tensor> {
        let ids = Tensor::new(tokens, &self.device)?;
        let positions = self.positions.narrow(0, past.length, tokens.len())?;
        let mut states = (self.embeddings.index_select(&ids, 0)? + positions)?.unsqueeze(0)?;
        let mask = causal_mask(tokens.len(), past.length, &self.device)?;
        let layers = self.layers.iter().zip(&mut past.caches).zip(&heard.0).enumerate();
        for (index, ((layer, cache), (keys, values))) in layers {
            let normed = layer.attention_norm.forward(&states)?;
            let attended = attend_to_past(&layer.attention, &normed, mask.as_ref(), cache)?;
            states = (states + attended)?;
            let queries = layer.cross.queries(&layer.cross_norm.forward(&states)?)?;
            let heads = watched.iter().filter(|(layer, _)| *layer == index);
            for (_, head) in heads {
                let scores = queries.i((0, *head))?.matmul(&keys.i((0, *head))?.t()?)?;
                weights.push(softmax_last_dim(&scores)?);
            }
            states = (states + layer.cross.attend_to_all(&queries, keys, values)?)?;
            let normed = layer.feed_forward_norm.forward(&states)?;
            states = (states + layer.feed_forward.forward(&normed)?)?;
        }
        past.length += tokens.len();
        self.norm.forward(&states)?.squeeze(0)
    }

    /// The logits `[states, vocabulary]` after tokens with these states `[states, size]`.
    pub(super) fn logits(&self, states: &Tensor) -> Result<Tensor> {
        states.matmul(&self.embeddings.t()?)
    }
}
