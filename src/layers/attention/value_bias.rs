//! A bias of the scores of each key by the values of its token, as a soft mask that the model learns.
//!
//! It is one more element of the key, beside a one in the query, so that it lies in the KV cache and attention
//! adds it like all others.
//!
//! Shi et al., "Trainable Dynamic Mask Sparse Attention", 2025, section 3.

use candle_core::{DType, Result, Tensor};

use super::spec::{AttentionSpec, ValueBias};
use crate::kernels::pointwise::softplus;
use crate::layers::linear::Linear;
use crate::weights::{Loaded, Weights};

/// The weights of such biases.
#[derive(Clone, Debug)]
pub(super) struct ValueBiases {
    /// From all values of a token to a number for each key head.
    projection: Linear,
    /// `[kv_heads]`
    rate: Tensor,
    /// What a score is multiplied by behind the sum.
    scale: f64,
    /// `[1, 1, ELEMENTS]`: a one and zeros.
    first: Tensor,
}

impl ValueBiases {
    /// Loads the projection and the `rate [kv_heads]`.
    pub(super) fn load(weights: &Weights, spec: &AttentionSpec, own: ValueBias) -> Loaded<Self> {
        let (heads, values) = (spec.num_kv_heads, spec.num_kv_heads * spec.value_dim());
        let projection = weights.scope(own.projection);
        let first = (0..ValueBias::ELEMENTS).map(|i| if i == 0 { 1.0f32 } else { 0.0 });
        let first = Tensor::from_iter(first, weights.device())?;
        Ok(Self {
            projection: Linear::load(&projection, values, heads, spec.qkv_bias)?,
            rate: weights.dense(own.rate, &[heads], DType::F32)?,
            scale: f64::from(spec.params.scale),
            first: first.reshape((1, 1, ValueBias::ELEMENTS))?,
        })
    }

    /// Queries and keys `[num_tokens, heads, head_dim]` with [`ValueBias::ELEMENTS`] more elements, of the
    /// values `v [num_tokens, kv_heads, value_dim]`: the bias is `e^(rate * softplus(projection(v)))`.
    pub(super) fn extend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<[Tensor; 2]> {
        let (rows, heads, _) = k.dims3()?;
        let steps = softplus(&self.projection.forward(&v.reshape((rows, ()))?)?)?;
        let biases = (steps.broadcast_mul(&self.rate)?.exp()? / self.scale)?;
        let of_keys = biases.reshape((rows, heads, 1))?.broadcast_mul(&self.first)?;
        let of_queries = self.first.broadcast_as((rows, q.dim(1)?, ValueBias::ELEMENTS))?;
        Ok([Tensor::cat(&[q, &of_queries.contiguous()?], 2)?, Tensor::cat(&[k, &of_keys], 2)?])
    }
}
