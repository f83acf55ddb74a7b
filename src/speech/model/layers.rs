//! The parts that encoder and decoder are built of.

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::kv_cache::KvCache;
use candle_nn::ops::softmax_last_dim;
use candle_nn::{LayerNorm, Linear};

use crate::weights::Weights;
use crate::weights::error::WeightError;

/// Something that is made of weights.
pub(super) type Loaded<T> = std::result::Result<T, WeightError>;

/// What is added to variances.
const EPSILON: f64 = 1e-5;

/// A matrix `[outputs, inputs]` and its bias, if it has one.
pub(super) fn linear(
    weights: &Weights,
    (outputs, inputs): (usize, usize),
    bias: bool,
) -> Loaded<Linear> {
    let matrix = weights.dense("weight", &[outputs, inputs], DType::F32)?;
    let bias = bias.then(|| weights.dense("bias", &[outputs], DType::F32)).transpose()?;
    Ok(Linear::new(matrix, bias))
}

pub(super) fn layer_norm(weights: &Weights, size: usize) -> Loaded<LayerNorm> {
    let weight = weights.dense("weight", &[size], DType::F32)?;
    let bias = weights.dense("bias", &[size], DType::F32)?;
    Ok(LayerNorm::new(weight, bias, EPSILON))
}

/// Attention of several heads; keys have no bias, and queries are scaled.
pub(super) struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    heads: usize,
}

impl Attention {
    pub(super) fn load(weights: &Weights, size: usize, heads: usize) -> Loaded<Self> {
        let square = |name, bias| linear(&weights.scope(name), (size, size), bias);
        Ok(Self {
            query: square("q_proj", true)?,
            key: square("k_proj", false)?,
            value: square("v_proj", true)?,
            out: square("out_proj", true)?,
            heads,
        })
    }

    /// Scaled queries of `states`, `[1, heads, length, head size]`.
    pub(super) fn queries(&self, states: &Tensor) -> Result<Tensor> {
        let queries = self.split(&self.query.forward(states)?)?;
        #[expect(clippy::cast_precision_loss, reason = "a head is small")]
        let scale = (queries.dim(D::Minus1)? as f64).powf(-0.5);
        queries.affine(scale, 0.0)
    }

    /// Keys and values of `states`, each `[1, heads, length, head size]`.
    pub(super) fn keys_and_values(&self, states: &Tensor) -> Result<(Tensor, Tensor)> {
        let keys = self.split(&self.key.forward(states)?)?;
        Ok((keys, self.split(&self.value.forward(states)?)?))
    }

    /// What the heads together make of values that were weighed, `[1, heads, length, head size]`.
    pub(super) fn join(&self, weighed: &Tensor) -> Result<Tensor> {
        self.out.forward(&weighed.transpose(1, 2)?.flatten_from(2)?)
    }

    /// Attention without a mask, one head after the other: weights of all heads over a window would
    /// take hundreds of megabytes.
    pub(super) fn attend_to_all(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<Tensor> {
        let heads = (0..self.heads).map(|head| {
            let scores = queries.i((.., head))?.matmul(&keys.i((.., head))?.transpose(1, 2)?)?;
            softmax_last_dim(&scores)?.matmul(&values.i((.., head))?)
        });
        self.join(&Tensor::stack(&heads.collect::<Result<Vec<_>>>()?, 1)?)
    }

    /// `[1, length, size]` to `[1, heads, length, head size]`.
    fn split(&self, states: &Tensor) -> Result<Tensor> {
        let (batch, length, size) = states.dims3()?;
        let split = states.reshape((batch, length, self.heads, size / self.heads))?;
        split.transpose(1, 2)?.contiguous()
    }
}

/// The feed-forward network of a layer.
pub(super) struct FeedForward {
    up: Linear,
    down: Linear,
}

impl FeedForward {
    pub(super) fn load(weights: &Weights, size: usize, width: usize) -> Loaded<Self> {
        Ok(Self {
            up: linear(&weights.scope("fc1"), (width, size), true)?,
            down: linear(&weights.scope("fc2"), (size, width), true)?,
        })
    }

    pub(super) fn forward(&self, states: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.up.forward(states)?.gelu_erf()?)
    }
}

/// Self-attention of a decoder layer over all tokens so far, which `cache` has.
pub(super) fn attend_to_past(
    attention: &Attention,
    states: &Tensor,
    mask: Option<&Tensor>,
    cache: &mut KvCache,
) -> Result<Tensor> {
    let queries = attention.queries(states)?;
    let (keys, values) = attention.keys_and_values(states)?;
    let (keys, values) = cache.append(&keys, &values)?;
    let scores = queries.matmul(&keys.transpose(2, 3)?.contiguous()?)?;
    let scores = match mask {
        Some(mask) => scores.broadcast_add(mask)?,
        None => scores,
    };
    attention.join(&softmax_last_dim(&scores)?.matmul(&values.contiguous()?)?)
}

/// What is added to scores so that `length` new tokens, after `past` others, see none that come after
/// them: `[length, past + length]`. One token needs none.
pub(super) fn causal_mask(length: usize, past: usize, device: &Device) -> Result<Option<Tensor>> {
    if length == 1 {
        return Ok(None);
    }
    let row = |at: usize| {
        let hidden = move |other: usize| if other > past + at { f32::NEG_INFINITY } else { 0.0 };
        (0..past + length).map(hidden)
    };
    let mask: Vec<f32> = (0..length).flat_map(row).collect();
    Ok(Some(Tensor::from_vec(mask, (length, past + length), device)?))
}
