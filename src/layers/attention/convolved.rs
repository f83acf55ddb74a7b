//! Compressed convolutional attention: queries and keys are mixed with those of the tokens before by convolutions, and
//! half of the values are those of the token before.
//!
//! Figliolia et al., "Compressed Convolutional Attention: Efficient Attention in a Compressed Latent Space", 2025. What
//! is projected goes through a convolution of each channel over two tokens, then through one of each head over two
//! tokens; the means of queries and keys that share a head, before the convolutions, are added to both. Beside its KV
//! cache a layer remembers of the last token what was projected, what the first convolution gave, and the values that
//! the next token has.

use std::ops::Range;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Result, Tensor, bail};

use super::query_key_norms::QueryKeyNorms;
use super::spec::{AttentionSpec, ConvolutionSpec};
use crate::kernels::kv_write::HeadNorms;
use crate::kernels::recurrence::short_conv::{Taps, short_conv};
use crate::layers::forward::Step;
use crate::layers::linear::{Linear, Matrix};
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// Tokens that each of the convolutions sees.
const TAPS: usize = 2;

/// The projections and the convolutions of a layer.
#[derive(Clone, Debug)]
pub(super) struct ConvolvedProjections {
    /// To queries, keys, the values of the token itself and those of the next one.
    projections: [Linear; 4],
    /// `[2, channels]` and `[channels]`: of each channel of queries and keys.
    channels: [Tensor; 2],
    /// Of each head from what the first convolution gave of the token before and of the token itself.
    heads: Vec<Linear>,
    /// `[2, channels]` and `[2, values]`: what gives the token before.
    before: [Tensor; 2],
    /// `[heads, 1]`: factors of queries, each that of its key head.
    factors: Tensor,
    norms: Option<QueryKeyNorms>,
    sizes: Sizes,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    heads: usize,
    kv_heads: usize,
    dim: usize,
}

impl Sizes {
    /// Channels of queries and keys.
    fn channels(self) -> usize {
        (self.heads + self.kv_heads) * self.dim
    }
}

impl ConvolutionSpec {
    /// Number of elements of each state of a layer with this attention.
    pub(super) fn states(spec: &AttentionSpec) -> Vec<usize> {
        let AttentionSpec { num_heads: heads, num_kv_heads: kv_heads, head_dim: dim, .. } = *spec;
        let channels = Sizes { heads, kv_heads, dim }.channels();
        vec![channels, channels, kv_heads * dim / 2]
    }
}

impl ConvolvedProjections {
    pub(super) fn load(
        weights: &Weights,
        spec: &AttentionSpec,
        names: ConvolutionSpec,
    ) -> Loaded<Self> {
        let AttentionSpec { hidden_size: hidden, head_dim: dim, qkv_bias: bias, .. } = *spec;
        let sizes = Sizes { heads: spec.num_heads, kv_heads: spec.num_kv_heads, dim };
        let inner = weights.scope(names.module);
        let project = |(name, outputs): (&str, usize)| {
            Linear::load(&inner.scope(name), hidden, outputs, bias)
        };
        let (queries, keys) = (sizes.heads * dim, sizes.kv_heads * dim);
        let [q, k, own, next] = [queries, keys, keys / 2, keys / 2];
        let outputs = names.projections.into_iter().zip([q, k, own, next]);
        let projections: Vec<_> = outputs.map(project).collect::<std::result::Result<_, _>>()?;
        let projections = <[Linear; 4]>::try_from(projections)
            .map_err(|_| candle_core::Error::Msg("four projections".to_owned()))?;
        let [channels, heads] = names.convolutions.map(|name| inner.scope(name));
        let (width, device) = (sizes.channels(), weights.device());
        let taps = channels.dense("weight", &[width, 1, TAPS], DType::F32)?;
        let taps = taps.squeeze(1)?.t()?.contiguous()?;
        let channels = [taps, channels.dense("bias", &[width], DType::F32)?];
        let before = |width: usize| {
            let [one, none] =
                [Tensor::ones, Tensor::zeros].map(|of| of((1, width), DType::F32, device));
            Tensor::cat(&[one?, none?], 0)
        };
        let factors = weights.dense(names.key_factors, &[sizes.kv_heads, 1], DType::F32)?;
        let group = sizes.heads / sizes.kv_heads;
        Ok(Self {
            projections,
            channels,
            heads: load_heads(&heads, sizes)?,
            before: [before(width)?, before(next)?],
            factors: factors.repeat((1, group))?.reshape((sizes.heads, 1))?,
            norms: spec
                .query_key_norm
                .map(|norm| QueryKeyNorms::load(weights, spec, norm))
                .transpose()?,
            sizes,
        })
    }

    /// Queries, keys and values of hidden states `x [num_tokens, hidden]`, `[num_tokens, heads, head_dim]` each, before
    /// norms and the rotation.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        states: &[Tensor],
        step: &Step,
    ) -> Result<[Tensor; 3]> {
        let [projected_state, convolved_state, value_state] = states else {
            bail!("{} states of convolved queries and keys, expected 3", states.len());
        };
        let Sizes { heads, kv_heads, dim } = self.sizes;
        let rows = x.dim(0)?;
        let [q, k, own, next] = Linear::forward_each(self.projections.each_ref(), x)?;
        let projected = Tensor::cat(&[&q, &k], 1)?;
        let [taps, bias] = &self.channels;
        let plain = |weight| Taps { weight, bias: None, activation: None };
        let convolved = short_conv(&projected, plain(taps), projected_state, step)?;
        // Behind no token at all there is the bias alone.
        let [of_both, of_values] = &self.before;
        let before = short_conv(&convolved, plain(of_both), convolved_state, step)?;
        let [before, convolved] = [before, convolved]
            .map(|x| x.broadcast_add(bias)?.reshape((rows, heads + kv_heads, dim)));
        let mixed = self.of_heads(&Tensor::cat(&[before?, convolved?], 2)?)?;
        let [q, k] = self.means(&q, &k)?;
        let part = |range: Range<usize>| mixed.narrow(1, range.start, range.len());
        let q = (part(0..heads)? + q)?;
        let k = (part(heads..heads + kv_heads)? + k)?;
        let delayed = short_conv(&next, plain(of_values), value_state, step)?;
        let v = Tensor::cat(&[own, delayed], 1)?.reshape((rows, kv_heads, dim))?;
        Ok([q, k, v])
    }

    /// The second convolution of `x [num_tokens, heads, 2 * head_dim]`: `[num_tokens, heads, head_dim]`.
    fn of_heads(&self, x: &Tensor) -> Result<Tensor> {
        let head = |(index, head): (usize, &Linear)| {
            let own: Tensor = x.narrow(1, index, 1)?;
            head.forward(&own.squeeze(1)?.contiguous()?)
        };
        let all: Vec<_> = self.heads.iter().enumerate().map(head).collect::<Result<_>>()?;
        Tensor::stack(&all, 1)
    }

    /// Of projected queries and keys what is added to each of them: the mean of a query and its key, and that of a
    /// key head's.
    fn means(&self, q: &Tensor, k: &Tensor) -> Result<[Tensor; 2]> {
        let Sizes { heads, kv_heads, dim } = self.sizes;
        let (rows, group) = (q.dim(0)?, heads / kv_heads);
        let q = q.reshape((rows, kv_heads, group, dim))?;
        let k = k.reshape((rows, kv_heads, 1, dim))?;
        let both = (q.broadcast_add(&k)? * 0.5)?;
        let mean = both.mean(2)?;
        Ok([both.reshape((rows, heads, dim))?, mean])
    }

    /// The norms of queries and keys before the rotation.
    pub(super) fn norms(&self) -> Option<HeadNorms<'_>> {
        self.norms.as_ref().and_then(QueryKeyNorms::fused)
    }

    /// Rotated queries `[num_tokens, heads, head_dim]` times the factors that keys have.
    pub(super) fn scaled(&self, q: &Tensor) -> Result<Tensor> {
        q.broadcast_mul(&self.factors)
    }
}

/// Loads the convolution over two tokens of each head as a product with both.
fn load_heads(weights: &Weights, sizes: Sizes) -> Loaded<Vec<Linear>> {
    let Sizes { heads, kv_heads, dim } = sizes;
    let shape = [sizes.channels(), dim, TAPS];
    let taps = weights.stored("weight", &shape)?.to_tensor(DType::F32)?;
    let bias = weights.dense("bias", &[shape[0]], DType::F32)?;
    let head = |index: usize| {
        let own = taps.narrow(0, index * dim, dim)?.transpose(1, 2)?;
        let numbers = own.contiguous()?.flatten_all()?.to_vec1::<f32>()?.into_iter();
        let bytes = numbers.flat_map(f32::to_le_bytes).collect();
        let stored = StoredTensor::owned(GgmlDType::F32, vec![dim, TAPS * dim], bytes);
        let matrix = Matrix::from_stored(weights, &stored, None)?;
        let bias = bias.narrow(0, index * dim, dim)?.contiguous()?;
        Ok::<_, WeightError>(Linear::from_matrix(matrix, Some(bias))?)
    };
    (0..heads + kv_heads).map(head).collect()
}
