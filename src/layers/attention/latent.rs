//! Queries, keys and values of latent attention: what is kept of a token is one vector that all
//! heads share, from which each head would make its keys and values.
//!
//! DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language
//! Model", 2024. Keys and values are never made. A head's score `q . (U c)` is `(U^T q) . c`, so
//! queries are brought to the latent space, where there is one key head for all of them: the rotated
//! part, then the latent vector. Values are the latent vector alone; each head turns the weighted
//! sum of them into its own values.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::AttentionSpec;
use super::projections::pairs_apart;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::{Norm, NormSpec};
use crate::weights::{StoredTensor, WeightError, Weights};

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentSpec {
    /// Elements that queries are made of, where they aren't made of hidden states.
    pub query_rank: Option<usize>,
    /// Elements of the latent vector.
    pub rank: usize,
    /// Elements of a head's queries and keys that are not rotated.
    pub plain: usize,
    /// Elements that are; all heads share the key's.
    pub rotated: usize,
    /// Elements of a head's values.
    pub value: usize,
    /// The norm of what queries are made of, and of the latent vector.
    pub norm: NormSpec,
    /// Biases of the projections from hidden states to smaller vectors.
    pub bias: bool,
}

impl LatentSpec {
    /// Elements of what is kept as a key.
    pub fn key_dim(&self) -> usize {
        self.rotated + self.rank
    }
}

/// Projections of one layer.
#[derive(Debug)]
pub(super) struct LatentProjections {
    /// From hidden states to what queries are made of.
    query_down: Option<(Linear, Norm)>,
    /// To the rotated parts of all heads.
    query_rotated: Linear,
    /// To the other parts of all heads.
    query_plain: Linear,
    /// From hidden states to the rotated part of the key.
    key_rotated: Linear,
    /// From hidden states to the latent vector.
    latent: (Linear, Norm),
    /// Per head: from a query to the latent space, and from there to values.
    heads: Vec<[Linear; 2]>,
    spec: LatentSpec,
}

impl LatentProjections {
    pub(super) fn load(
        weights: &Weights,
        spec: &AttentionSpec,
        latent: LatentSpec,
    ) -> std::result::Result<Self, WeightError> {
        let LatentSpec { query_rank, rank, plain, rotated, value, norm, bias } = latent;
        let (hidden, count) = (spec.hidden_size, spec.num_heads);
        let query_down = query_rank.map(|rank| {
            let down = Linear::load(&weights.scope("q_a_proj"), hidden, rank, bias)?;
            Ok::<_, WeightError>((down, Norm::load(&weights.scope("q_a_layernorm"), rank, norm)?))
        });
        let up = weights.scope(if query_rank.is_some() { "q_b_proj" } else { "q_proj" });
        let head = plain + rotated;
        let parts = |rows: &dyn Fn(usize) -> Vec<Range<usize>>| {
            let rows: Vec<_> = (0..count).flat_map(|i| rows(i * head)).collect();
            Linear::load_rows(&up, query_rank.unwrap_or(hidden), count * head, false, &rows)
        };
        let order = rotated_rows(spec, rotated);
        let turned = |first: usize| order.iter().map(|i| first + i..first + i + 1).collect();
        let down = weights.scope("kv_a_proj_with_mqa");
        let kept =
            |rows: &[Range<usize>]| Linear::load_rows(&down, hidden, rank + rotated, bias, rows);
        let all = 0..rank;
        let latent_norm = Norm::load(&weights.scope("kv_a_layernorm"), rank, norm)?;
        // Read once, whatever it has to be made of.
        let shape = [count * (plain + value), rank];
        let up = weights.scope("kv_b_proj").stored("weight", &shape)?;
        Ok(Self {
            query_down: query_down.transpose()?,
            query_rotated: parts(&|first| turned(first + plain))?,
            query_plain: parts(&|first| {
                let rows = first..first + plain;
                vec![rows]
            })?,
            key_rotated: kept(&turned(rank))?,
            latent: (kept(&[all])?, latent_norm),
            heads: (0..count)
                .map(|head| load_head(weights, &up, head, [plain, value]))
                .collect::<std::result::Result<_, _>>()?,
            spec: latent,
        })
    }

    /// Of hidden states `x [num_tokens, hidden]`: queries `[num_tokens, heads, rotated + rank]`,
    /// the key `[num_tokens, 1, rotated + rank]` and the value `[num_tokens, 1, rank]`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let LatentSpec { rank, plain, rotated, .. } = self.spec;
        let (rows, heads) = (x.dim(0)?, self.heads.len());
        let (key_rotated, latent) =
            (self.key_rotated.forward(x)?, self.latent.1.forward(&self.latent.0.forward(x)?)?);
        let compressed =
            self.query_down.as_ref().map(|(down, norm)| norm.forward(&down.forward(x)?));
        let compressed = compressed.transpose()?;
        let [turned, rest] = Linear::forward_each(
            [&self.query_rotated, &self.query_plain],
            compressed.as_ref().unwrap_or(x),
        )?;
        let turned = turned.reshape((rows, heads, rotated))?;
        let rest = rest.reshape((rows, heads, plain))?;
        let absorbed = (0..heads).map(|head| {
            self.heads[head][0].forward(&rest.narrow(1, head, 1)?.squeeze(1)?.contiguous()?)
        });
        let absorbed = Tensor::stack(&absorbed.collect::<Result<Vec<_>>>()?, 1)?;
        Ok([
            Tensor::cat(&[turned, absorbed], 2)?,
            Tensor::cat(&[&key_rotated, &latent], 1)?.reshape((rows, 1, rotated + rank))?,
            latent.reshape((rows, 1, rank))?,
        ])
    }

    /// Values of all heads, `[num_tokens, heads * value]`, of weighted latent vectors
    /// `[num_tokens, heads, rank]`.
    pub(super) fn values(&self, weighted: &Tensor) -> Result<Tensor> {
        let head = |head| {
            let latent: Tensor = weighted.narrow(1, head, 1)?;
            self.heads[head][1].forward(&latent.squeeze(1)?.contiguous()?)
        };
        Tensor::cat(&(0..self.heads.len()).map(head).collect::<Result<Vec<_>>>()?, 1)
    }
}

/// The rotated elements of a head in the order that halves are paired in.
fn rotated_rows(spec: &AttentionSpec, rotated: usize) -> Vec<usize> {
    if spec.rope_neighbours.is_some() {
        pairs_apart(rotated).collect()
    } else {
        (0..rotated).collect()
    }
}

/// From `up [heads * (plain + value), rank]`: the transpose of the head's first rows, and its others.
fn load_head(
    weights: &Weights,
    up: &StoredTensor,
    head: usize,
    [plain, value]: [usize; 2],
) -> std::result::Result<[Linear; 2], WeightError> {
    let first = head * (plain + value);
    let (keys, values) = (first..first + plain, first + plain..first + plain + value);
    let layer = |stored: StoredTensor| {
        let matrix = Matrix::from_stored(weights, &stored, weights.rounding())?;
        Ok::<_, WeightError>(Linear::from_matrix(matrix, None)?)
    };
    // What is quantized in the file is widened to be turned.
    Ok([layer(up.rows(&[keys])?.transposed()?)?, layer(up.rows(&[values])?)?])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use candle_core::{DType, Device};

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
