//! Multi-head latent attention: the cache has one latent vector of a token that all heads share,
//! from which each head would project its keys and values.
//!
//! DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language
//! Model", 2024. Keys and values are never computed. A head's score `q . (U c)` is `(U^T q) . c`,
//! so queries are projected to the latent space, where there is one key head for all of them: the
//! rotated part, then the latent vector. Values are the latent vector alone; each head projects the
//! weighted sum of them to its own values.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::indexer::Indexer;
use super::qkv_source::deinterleaved;
use super::spec::{AttentionSpec, LatentSpec};
use crate::kernels::pointwise::sigmoid;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::{Norm, RmsNorm};
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// The projections of a layer with latent attention.
#[derive(Clone, Debug)]
pub(super) struct LatentProjections {
    /// From hidden states to the low-rank vector of queries.
    query_down: Option<(Linear, Norm)>,
    /// To the rotated parts of all query heads, if they have them.
    query_rope: Option<Linear>,
    /// To the other parts of all query heads.
    query_nope: Linear,
    /// To the gates of what heads give.
    query_gates: Option<Linear>,
    /// From hidden states to the rotated part of the key, if it has one, and the norm of that.
    key_rope: Option<(Linear, Option<RmsNorm>)>,
    /// From hidden states to the latent vector.
    latent: (Linear, Norm),
    /// For each head, from the query to the latent space, and from there to values.
    heads: Vec<[Linear; 2]>,
    /// What chooses the tokens that queries see.
    indexer: Option<Indexer>,
    spec: LatentSpec,
}

impl LatentProjections {
    pub(super) fn load(
        weights: &Weights,
        spec: &AttentionSpec,
        latent: LatentSpec,
    ) -> Loaded<Self> {
        let LatentSpec { query_rank, kv_rank, nope_dim, rope_dim, value_dim, .. } = latent;
        let (norm, bias) = (latent.norm, latent.bias);
        let (hidden, count) = (spec.hidden_size, spec.num_heads);
        let query_down = query_rank.map(|rank| {
            let down = Linear::load(&weights.scope("q_a_proj"), hidden, rank, bias)?;
            Ok::<_, WeightError>((down, Norm::load(&weights.scope("q_a_layernorm"), rank, norm)?))
        });
        let up = weights.scope(if query_rank.is_some() { "q_b_proj" } else { "q_proj" });
        let head = latent.query_dim();
        let sources = if latent.query_gates { 2 } else { 1 };
        let parts = |rows: &dyn Fn(usize) -> Vec<Range<usize>>| {
            let rows: Vec<_> = (0..count).flat_map(|i| rows(i * head)).collect();
            let inputs = sources * query_rank.unwrap_or(hidden);
            Linear::load_rows(&up, inputs, count * head, false, &rows)
        };
        let order = rope_rows(spec, rope_dim);
        let rotated = |first: usize| order.iter().map(|i| first + i..first + i + 1).collect();
        let gates = |first: usize| {
            let rows = first + nope_dim + rope_dim..first + head;
            vec![rows]
        };
        let down = weights.scope("kv_a_proj_with_mqa");
        let key = |rows: &[Range<usize>]| {
            Linear::load_rows(&down, hidden, kv_rank + rope_dim, bias, rows)
        };
        let all = 0..kv_rank;
        let latent_norm = Norm::load(&weights.scope("kv_a_layernorm"), kv_rank, norm)?;
        let indexer = latent
            .selection
            .and_then(|own| own.indexer)
            .map(|indexer| Indexer::load(&weights.scope("indexer"), hidden, latent, indexer));
        // Read once: some formats are unpacked at every read.
        let shape = [count * (nope_dim + value_dim), kv_rank];
        let up = weights.scope("kv_b_proj").stored("weight", &shape)?;
        Ok(Self {
            query_down: query_down.transpose()?,
            query_rope: (rope_dim > 0)
                .then(|| parts(&|first| rotated(first + nope_dim)))
                .transpose()?,
            query_nope: parts(&|first| {
                let rows = first..first + nope_dim;
                vec![rows]
            })?,
            query_gates: latent.query_gates.then(|| parts(&gates)).transpose()?,
            key_rope: (rope_dim > 0)
                .then(|| {
                    let norm = rotated_key_norm(weights, latent, &order)?;
                    Ok::<_, WeightError>((key(&rotated(kv_rank))?, norm))
                })
                .transpose()?,
            latent: (key(&[all])?, latent_norm),
            heads: (0..count)
                .map(|head| load_head(weights, &up, head, [nope_dim, value_dim]))
                .collect::<std::result::Result<_, _>>()?,
            indexer: indexer.transpose()?,
            spec: latent,
        })
    }

    /// What chooses the tokens that queries see, if the layer has it.
    pub(super) fn indexer(&self) -> Option<&Indexer> {
        self.indexer.as_ref()
    }

    /// The low-rank vectors that queries are projected from, `[num_tokens, query_rank]`, if there are any, of
    /// hidden states `x [num_tokens, hidden]`; with gates those before the norm are behind them.
    pub(super) fn low_rank(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let Some((down, norm)) = &self.query_down else { return Ok(None) };
        let projected = down.forward(x)?;
        let mut low_rank = norm.forward(&projected)?;
        if self.spec.query_gates {
            low_rank = Tensor::cat(&[low_rank, projected], 1)?;
        }
        let factor = self.spec.query_factor;
        let scaled = factor.to_bits() != 1.0f32.to_bits();
        Ok(Some(if scaled { (low_rank * f64::from(factor))? } else { low_rank }))
    }

    /// What heads give, `values [num_tokens, heads * value_dim]`, times their gates from `low_rank` vectors, if
    /// there are any.
    pub(super) fn gated(&self, values: Tensor, low_rank: Option<&Tensor>) -> Result<Tensor> {
        match (&self.query_gates, low_rank) {
            (Some(gates), Some(low_rank)) => values * sigmoid(&gates.forward(low_rank)?)?,
            _ => Ok(values),
        }
    }

    /// Queries `[num_tokens, heads, rope_dim + kv_rank]`, the key `[num_tokens, 1, rope_dim +
    /// kv_rank]` and the value `[num_tokens, 1, kv_rank]` of hidden states `x [num_tokens,
    /// hidden]` and of their [`low_rank`](Self::low_rank) vectors.
    pub(super) fn forward(&self, x: &Tensor, low_rank: Option<&Tensor>) -> Result<[Tensor; 3]> {
        let LatentSpec { kv_rank, nope_dim, rope_dim, factor, .. } = self.spec;
        let (rows, heads) = (x.dim(0)?, self.heads.len());
        let mut latent = self.latent.1.forward(&self.latent.0.forward(x)?)?;
        if factor.to_bits() != 1.0f32.to_bits() {
            latent = (latent * f64::from(factor))?;
        }
        let asked = low_rank.unwrap_or(x);
        let (query_rope, nope) = if let Some(rope) = &self.query_rope {
            let [rope, nope] = Linear::forward_each([rope, &self.query_nope], asked)?;
            (Some(rope.reshape((rows, heads, rope_dim))?), nope)
        } else {
            (None, self.query_nope.forward(asked)?)
        };
        let nope = nope.reshape((rows, heads, nope_dim))?;
        let absorbed = (0..heads).map(|head| {
            self.heads[head][0].forward(&nope.narrow(1, head, 1)?.squeeze(1)?.contiguous()?)
        });
        let absorbed = Tensor::stack(&absorbed.collect::<Result<Vec<_>>>()?, 1)?;
        let query = match query_rope {
            None => absorbed,
            Some(rope) => Tensor::cat(&[rope, absorbed], 2)?,
        };
        let key = match self.rotated_key(x)? {
            None => latent.clone(),
            Some(rope) => Tensor::cat(&[&rope, &latent], 1)?,
        };
        let key = key.reshape((rows, 1, rope_dim + kv_rank))?;
        Ok([query, key, latent.reshape((rows, 1, kv_rank))?])
    }

    /// The rotated part of the keys of hidden states, before its rotation, if there is one.
    fn rotated_key(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let Some((projection, norm)) = &self.key_rope else { return Ok(None) };
        let key = projection.forward(x)?;
        norm.as_ref().map_or(Ok(key.clone()), |norm| norm.forward(&key)).map(Some)
    }

    /// Projects weighted sums of latent vectors, `[num_tokens, heads, kv_rank]`, to values of all
    /// heads, `[num_tokens, heads * value_dim]`.
    pub(super) fn values(&self, weighted: &Tensor) -> Result<Tensor> {
        let head = |head| {
            let latent: Tensor = weighted.narrow(1, head, 1)?;
            self.heads[head][1].forward(&latent.squeeze(1)?.contiguous()?)
        };
        Tensor::cat(&(0..self.heads.len()).map(head).collect::<Result<Vec<_>>>()?, 1)
    }
}

/// The norm of the key's rotated part, whose elements are in this `order`.
fn rotated_key_norm(
    weights: &Weights,
    latent: LatentSpec,
    order: &[usize],
) -> Loaded<Option<RmsNorm>> {
    let Some(name) = latent.rotated_key_norm else { return Ok(None) };
    let scale = weights.scope(name).dense("weight", &[order.len()], DType::F32)?;
    let order = order.iter().map(|at| u32::try_from(*at).map_err(candle_core::Error::wrap));
    let order = Tensor::new(order.collect::<Result<Vec<u32>>>()?, weights.device())?;
    Ok(Some(RmsNorm::new(scale, latent.norm.eps).reordered(&order)?))
}

/// The rotated elements of a stored head, in the order in which the rotation pairs halves.
fn rope_rows(spec: &AttentionSpec, rope_dim: usize) -> Vec<usize> {
    if spec.interleaved_rope.is_some() {
        deinterleaved(rope_dim).collect()
    } else {
        (0..rope_dim).collect()
    }
}

/// From `up [heads * (nope_dim + value_dim), kv_rank]`: the transpose of the head's rows for keys,
/// and its rows for values.
fn load_head(
    weights: &Weights,
    up: &StoredTensor,
    head: usize,
    [nope_dim, value_dim]: [usize; 2],
) -> Loaded<[Linear; 2]> {
    let first = head * (nope_dim + value_dim);
    let (keys, values) = (first..first + nope_dim, first + nope_dim..first + nope_dim + value_dim);
    let layer = |stored: StoredTensor| {
        let matrix = Matrix::from_stored(weights, &stored, weights.rounding())?;
        Ok::<_, WeightError>(Linear::from_matrix(matrix, None)?)
    };
    // A quantized tensor is widened to bf16 to be transposed.
    Ok([layer(up.rows(&[keys])?.transposed()?)?, layer(up.rows(&[values])?)?])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use candle_core::Device;

    use super::*;
    use crate::weights::MemoryTensors;

    #[test]
    fn a_score_in_the_latent_space_is_that_of_the_heads_own_key() {
        let (heads, plain, value, rank) = (2, 3, 4, 5);
        let up = Tensor::randn(0.0f32, 1.0, (heads * (plain + value), rank), &Device::Cpu).unwrap();
        let tensors = HashMap::from([("weight".to_owned(), up.clone())]);
        let weights = Weights::new(Arc::new(MemoryTensors::new(tensors)), Device::Cpu);
        let latent = Tensor::randn(0.0f32, 1.0, (1, rank), &Device::Cpu).unwrap();
        let query = Tensor::randn(0.0f32, 1.0, (1, plain), &Device::Cpu).unwrap();
        let made = latent.matmul(&up.t().unwrap()).unwrap();
        let stored = weights.stored("weight", &[heads * (plain + value), rank]).unwrap();
        for head in 0..heads {
            let [absorb, values] = load_head(&weights, &stored, head, [plain, value]).unwrap();
            let first = head * (plain + value);
            let key = made.narrow(1, first, plain).unwrap();
            let expected = (&query * key).unwrap().sum_all().unwrap();
            let score = (absorb.forward(&query).unwrap() * &latent).unwrap().sum_all().unwrap();
            let off = (score - expected).unwrap().to_dtype(DType::F64).unwrap();
            assert!(off.to_scalar::<f64>().unwrap().abs() < 1e-4);
            let off =
                values.forward(&latent).unwrap() - made.narrow(1, first + plain, value).unwrap();
            let off = off.unwrap().abs().unwrap().max_all().unwrap();
            assert!(off.to_scalar::<f32>().unwrap() < 1e-4);
        }
    }
}
