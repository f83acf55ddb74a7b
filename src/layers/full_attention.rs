//! Bidirectional self-attention of whole texts, or of the patches of a picture or of a window.
//!
//! It is the paged attention of a decoder over a cache that lives for one step: a query at its text's
//! last position sees all of it. So texts of any lengths run together without padding, and each has the
//! numbers it has alone.

use candle_core::{D, DType, Device, Result, Tensor};

use super::forward::{BLOCK_SIZE, KvFormat, KvLayer, Step};
use super::linear::Linear;
pub use crate::kernels::kv_write::HeadNorms;
use crate::kernels::kv_write::{KvCache, Projections, Rotation, kv_write};
use crate::kernels::paged_attention::{AttentionParams, PerHead, paged_attention};
use crate::kernels::step::is_read_on;

/// Number and size of the heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Number of heads.
    pub count: usize,
    /// Elements of a head.
    pub dim: usize,
}

/// The weights of one layer's attention.
#[derive(Debug)]
pub struct FullAttention {
    /// The query projection, from `[hidden]` to `[heads * head_dim]`.
    pub query: Linear,
    /// The key projection.
    pub key: Linear,
    /// The value projection.
    pub value: Linear,
    /// The output projection, from `[heads * head_dim]` to `[hidden]`.
    pub output: Linear,
    /// Number and size of the heads.
    pub heads: Heads,
}

/// The layout of a step's texts in rows and in the cache, for all layers.
#[derive(Debug)]
pub struct Texts {
    step: Step,
    /// `[num_tokens, rotated pairs]`: cosines and sines of the rotary embedding, of no pairs where there
    /// is none.
    angles: [Tensor; 2],
    kv: KvLayer,
    /// `[heads, longest text, longest text]`: what scores have more, by query and by key.
    bias: Option<Tensor>,
}

impl Texts {
    /// The layout of texts of these lengths, each at least 1, one after the other.
    pub fn new(lengths: &[usize], heads: Heads, device: &Device) -> Result<Self> {
        Self::seeing(lengths, lengths, heads, device)
    }

    /// The same where all tokens see the first `seen` of their text alone, at least 1 of each.
    pub fn seeing(
        lengths: &[usize],
        seen: &[usize],
        heads: Heads,
        device: &Device,
    ) -> Result<Self> {
        let total: usize = lengths.iter().sum();
        let (mut step, blocks) = whole_texts(lengths)?;
        // A query at the last position that is seen sees all of them, on every device.
        let mut positions = Vec::with_capacity(total);
        for (length, seen) in lengths.iter().zip(seen) {
            let last = u32::try_from(*seen).map_err(candle_core::Error::wrap)?.saturating_sub(1);
            positions.extend(std::iter::repeat_n(last, *length));
        }
        step.positions = positions;
        let format = KvFormat::F32;
        let zeros = |dims| format.zeros(dims, device);
        if is_read_on(device) {
            let tensors = step.to_device(device)?;
            step = step.with_tensors(tensors);
        }
        let none = Tensor::zeros((total, 0), DType::F32, device)?;
        Ok(Self {
            step,
            angles: [none.clone(), none],
            kv: KvLayer {
                k: zeros(format.key_dims(blocks, heads.count, heads.dim))?,
                v: zeros(format.value_dims(blocks, heads.count, heads.dim))?,
            },
            bias: None,
        })
    }
}

impl Texts {
    /// The same with a rotary embedding: cosines and sines, `[num_tokens, rotated pairs]`.
    #[must_use]
    pub fn rotated(self, cos: Tensor, sin: Tensor) -> Self {
        Self { angles: [cos, sin], ..self }
    }

    /// The same with a bias of scores by query and by key, `[heads, longest text, longest text]`.
    #[must_use]
    pub fn biased(self, bias: Tensor) -> Self {
        Self { bias: Some(bias), ..self }
    }
}

/// A step of whole texts of these lengths, one after the other, without their tokens; and the blocks
/// of a cache that holds them.
pub fn whole_texts(lengths: &[usize]) -> Result<(Step, usize)> {
    let small = |n: usize| u32::try_from(n).map_err(candle_core::Error::wrap);
    let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
    let mut blocks = 0;
    for length in lengths {
        let (count, length) = (length.div_ceil(BLOCK_SIZE), small(*length)?);
        let first = small(blocks * BLOCK_SIZE)?;
        step.slots.extend(first..first + length);
        step.positions.extend(0..length);
        step.block_tables.push((small(blocks)?..small(blocks + count)?).collect());
        blocks += count;
        step.cu_seqlens_q.push(small(step.slots.len())?);
        step.context_lens.push(length);
        step.sequence_lens.push(length);
    }
    Ok((step, blocks))
}

impl FullAttention {
    /// `residual` plus the output of attention on `x`, both `[num_tokens, hidden]`.
    pub fn forward_add(&self, residual: &Tensor, x: &Tensor, texts: &Texts) -> Result<Tensor> {
        let [q, k, v] = self.project(x)?;
        let attended = match &texts.bias {
            Some(bias) => {
                let of_text = |q: &Tensor, _: &Tensor| {
                    let length = q.dim(1)?;
                    bias.narrow(1, 0, length)?.narrow(2, 0, length)
                };
                attend_biased([&q, &k, &v], texts, self.scale(), &of_text)?
            }
            None => attend([&q, &k, &v], texts, None, self.scale())?,
        };
        self.output.forward_add(&attended, residual)
    }

    /// The same with scores that have a bias of their own for each text, `[heads, length, length]`, which
    /// `bias` makes of the text's queries and keys, `[heads, length, head_dim]`. The products of these two
    /// are multiplied with `scale`.
    pub fn forward_add_biased(
        &self,
        residual: &Tensor,
        x: &Tensor,
        texts: &Texts,
        scale: f32,
        bias: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let [q, k, v] = self.project(x)?;
        self.output.forward_add(&attend_biased([&q, &k, &v], texts, scale, bias)?, residual)
    }

    /// Queries, keys and values of `x`, each `[num_tokens, heads, head_dim]`.
    fn project(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let (rows, Heads { count, dim }) = (x.dim(0)?, self.heads);
        let [q, k, v] = Linear::forward_each([&self.query, &self.key, &self.value], x)?;
        let heads = |x: Tensor| x.reshape((rows, count, dim));
        Ok([heads(q)?, heads(k)?, heads(v)?])
    }

    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
    fn scale(&self) -> f32 {
        1.0 / (self.heads.dim as f32).sqrt()
    }
}

/// What queries find among the keys and values of their texts, all `[num_tokens, heads, head_dim]` and
/// not rotated yet: `[num_tokens, heads * head_dim]`. Heads of queries and keys may have `norms`; `scale`
/// is the factor of scores.
pub fn attend(
    [q, k, v]: [&Tensor; 3],
    texts: &Texts,
    norms: Option<HeadNorms<'_>>,
    scale: f32,
) -> Result<Tensor> {
    let [cos, sin] = &texts.angles;
    let rotation = Rotation { cos, sin, norms };
    let KvLayer { k: keys, v: values } = &texts.kv;
    let cache = KvCache { k: keys, v: values };
    let q = kv_write(Projections { q, k, v }, rotation, cache, texts.step.kv_slots())?;
    let params = AttentionParams::full(scale);
    paged_attention(&q, keys, values, &texts.step, params, PerHead::default())?.flatten_from(1)
}

/// The same for scores that have a bias, which is made of a text's queries and keys, text after text: no
/// kernel takes one.
fn attend_biased(
    [q, k, v]: [&Tensor; 3],
    texts: &Texts,
    scale: f32,
    bias: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let bounds = texts.step.cu_seqlens_q.windows(2);
    let of_text = |bounds: &[u32]| {
        let (first, length) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        let seen = texts.step.positions[first] as usize + 1;
        // [heads, length, head_dim]
        let rows = |x: &Tensor| x.narrow(0, first, length)?.transpose(0, 1)?.contiguous();
        let (q, k) = (rows(q)?, rows(k)?);
        let scores = (q.matmul(&k.t()?)? * f64::from(scale))?.add(&bias(&q, &k)?)?;
        let scores = scores.narrow(2, 0, seen)?;
        let powers = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        let weights = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
        let values = rows(v)?.narrow(1, 0, seen)?.contiguous()?;
        weights.matmul(&values)?.transpose(0, 1)?.flatten_from(1)
    };
    Tensor::cat(&bounds.map(of_text).collect::<Result<Vec<_>>>()?, 0)
}
