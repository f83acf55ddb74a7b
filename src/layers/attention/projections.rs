//! Queries, keys and values of a layer, from tensors of their own or parts of one.
//!
//! The rotation pairs element `i` of a head's first half with element `i` of its second. Where a
//! checkpoint pairs neighbours, the rows of its query and key projections are put in that order as
//! they are loaded; scores don't change when queries and keys are reordered alike.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::{AttentionSpec, Inputs, NormSpan, QkvTensors, QueryKeyNorm};
use crate::kernels::kv_write::HeadNorms;
use crate::kernels::norm::layer_norm;
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, RmsNorm};
use crate::weights::{WeightError, Weights};

/// The three projections, and the norms of two of them.
#[derive(Debug)]
pub(super) struct QkvProjections {
    pub(super) layers: [Linear; 3],
    pub(super) gate: Option<Linear>,
    pub(super) norms: Option<QueryKeyNorms>,
}

/// Norms of queries and keys.
#[derive(Debug)]
pub(super) enum QueryKeyNorms {
    /// Of each head, together with the rotation: before or after it.
    Fused { norms: [RmsNorm; 2], after_rotation: bool },
    /// Of each head.
    Heads([Norm; 2]),
    /// Of all heads of a token at once.
    AllHeads([Norm; 2]),
    /// Of each head by mean and variance, with scales `[heads, head_dim]`.
    EachHead { scales: [Tensor; 2], eps: f32 },
}

impl QkvProjections {
    pub(super) fn load(
        weights: &Weights,
        spec: &AttentionSpec,
    ) -> std::result::Result<Self, WeightError> {
        let (inputs, bias) = (spec.hidden_size, spec.qkv_bias);
        let load = |QkvSource { name, rows, ranges }: QkvSource| {
            Linear::load_rows(&weights.scope(name), inputs, rows, bias, &ranges)
        };
        let [query, key, value] = QkvSource::all(spec);
        let is_key = value == key;
        let [query, key] = [load(query)?, load(key)?];
        let value = if is_key { key.clone() } else { load(value)? };
        let gate = QkvSource::gate(spec).map(load).transpose()?;
        let norms = spec.query_key_norm.map(|norm| QueryKeyNorms::load(weights, spec, norm));
        Ok(Self { layers: [query, key, value], gate, norms: norms.transpose()? })
    }
}

/// Where queries, keys or values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QkvSource {
    /// The tensors' name below the attention.
    pub name: &'static str,
    /// Rows of its weight.
    pub rows: usize,
    /// Those that belong to them, in the order in which they are used.
    pub ranges: Vec<Range<usize>>,
}

impl QkvSource {
    /// Of queries, keys and values.
    pub fn all(spec: &AttentionSpec) -> [Self; 3] {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, .. } = *spec;
        let counts = [num_heads, num_kv_heads, num_kv_heads];
        let order = head_order(spec);
        [0, 1, 2].map(|which| {
            let count = counts[which];
            let (name, total, starts) = match spec.qkv {
                QkvTensors::Separate(names) if which == 0 && spec.gated => {
                    (names[0], 2 * count, (0..2 * count).step_by(2).collect())
                }
                QkvTensors::Separate(names) => {
                    (names[which], count, (0..count).collect::<Vec<_>>())
                }
                QkvTensors::Stacked(name) => {
                    let before: usize = counts[..which].iter().sum();
                    (name, counts.iter().sum(), (before..before + count).collect())
                }
                QkvTensors::Grouped(name) => (
                    name,
                    counts.iter().sum(),
                    grouped(num_heads / num_kv_heads, num_kv_heads, which),
                ),
            };
            let ranges = match &order {
                Some(order) if which < 2 => starts
                    .iter()
                    .flat_map(|head| order.iter().map(move |i| head * head_dim + i))
                    .map(|row| row..row + 1)
                    .collect(),
                _ => starts.iter().map(|head| head * head_dim..(head + 1) * head_dim).collect(),
            };
            Self { name, rows: total * head_dim, ranges }
        })
    }

    /// Of the gates behind queries.
    pub fn gate(spec: &AttentionSpec) -> Option<Self> {
        let AttentionSpec { num_heads, head_dim, qkv, gated, .. } = *spec;
        let QkvTensors::Separate([name, ..]) = qkv else { return None };
        let ranges = (0..num_heads).map(|head| 2 * head + 1);
        let ranges = ranges.map(|part| part * head_dim..(part + 1) * head_dim).collect();
        gated.then_some(Self { name, rows: 2 * num_heads * head_dim, ranges })
    }
}

/// The queries of a layer that has no keys and values of its own.
pub(super) fn load_query(
    weights: &Weights,
    spec: &AttentionSpec,
) -> std::result::Result<Inputs, WeightError> {
    let (QkvTensors::Separate([name, ..]), None) = (spec.qkv, spec.rope_neighbours) else {
        let message = "keys of another layer beside fused queries are not implemented".to_owned();
        return Err(candle_core::Error::Msg(message).into());
    };
    let AttentionSpec { hidden_size, num_heads, head_dim, qkv_bias, .. } = *spec;
    let query = weights.scope(name);
    let query = Linear::load(&query, hidden_size, num_heads * head_dim, qkv_bias)?;
    let Some(QueryKeyNorm { norm, over, tensors }) = spec.query_key_norm else {
        return Ok(Inputs::Query(query, None));
    };
    let norm = Norm::load(&weights.scope(tensors[0]), head_dim, norm)?;
    let (NormSpan::Head, Norm::Rms(norm)) = (over, norm) else {
        let message = "such a norm of queries alone is not implemented".to_owned();
        return Err(candle_core::Error::Msg(message).into());
    };
    Ok(Inputs::Query(query, Some(norm)))
}

/// The heads that belong to queries (0), keys (1) or values (2), where each key head has `group`
/// query heads before it and its value head behind it.
fn grouped(group: usize, kv_heads: usize, which: usize) -> Vec<usize> {
    let within = match which {
        0 => 0..group,
        1 => group..group + 1,
        _ => group + 1..group + 2,
    };
    (0..kv_heads).flat_map(|head| within.clone().map(move |i| head * (group + 2) + i)).collect()
}

/// For every element of a head the stored one, where they are not the same.
fn head_order(spec: &AttentionSpec) -> Option<Vec<usize>> {
    let rotated = spec.rope_neighbours?;
    Some(pairs_apart(rotated).chain(rotated..spec.head_dim).collect())
}

/// The first of each pair of neighbours, then the second ones.
pub(super) fn pairs_apart(rotated: usize) -> impl Iterator<Item = usize> {
    (0..rotated).step_by(2).chain((1..rotated).step_by(2))
}

/// `[heads, head_dim]`, in one tensor or in one for each head.
fn scales_of_heads(
    weights: &Weights,
    heads: usize,
    head_dim: usize,
) -> std::result::Result<Tensor, WeightError> {
    if weights.contains("weight") {
        return weights.dense("weight", &[heads, head_dim], DType::F32);
    }
    let head = |head| weights.scope("norms").scope(head).dense("weight", &[head_dim], DType::F32);
    let scales = (0..heads).map(head).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Tensor::stack(&scales, 0)?)
}

impl QueryKeyNorms {
    fn load(
        weights: &Weights,
        spec: &AttentionSpec,
        norm: QueryKeyNorm,
    ) -> std::result::Result<Self, WeightError> {
        let QueryKeyNorm { norm, over, tensors } = norm;
        let (head_dim, counts) = (spec.head_dim, [spec.num_heads, spec.num_kv_heads]);
        let order = head_order(spec).map(|order| {
            let order = order.into_iter().map(|i| u32::try_from(i).expect("heads are small"));
            Tensor::from_iter(order, weights.device())
        });
        let order = order.transpose()?;
        let reordered = matches!(
            (over, norm.centered),
            (NormSpan::EachHead, _) | (NormSpan::Head | NormSpan::RotatedHead, false)
        );
        if order.is_some() && !reordered {
            let message = "norms of heads in another order are not implemented".to_owned();
            return Err(candle_core::Error::Msg(message).into());
        }
        let [query, key] = tensors.map(|name| weights.scope(name));
        Ok(match over {
            NormSpan::Head | NormSpan::RotatedHead => {
                let after_rotation = over == NormSpan::RotatedHead;
                let load = |weights| Norm::load(weights, head_dim, norm);
                match (load(&query)?, load(&key)?, order) {
                    (Norm::Rms(query), Norm::Rms(key), None) => {
                        Self::Fused { norms: [query, key], after_rotation }
                    }
                    (Norm::Rms(query), Norm::Rms(key), Some(order)) => {
                        let norms = [query.reordered(&order)?, key.reordered(&order)?];
                        Self::Fused { norms, after_rotation }
                    }
                    (query, key, _) => Self::Heads([query, key]),
                }
            }
            NormSpan::AllHeads => Self::AllHeads([
                Norm::load(&query, counts[0] * head_dim, norm)?,
                Norm::load(&key, counts[1] * head_dim, norm)?,
            ]),
            NormSpan::EachHead => {
                let load = |weights: &Weights, heads| {
                    let scales = scales_of_heads(weights, heads, head_dim)?;
                    Ok::<_, WeightError>(match &order {
                        Some(order) => scales.index_select(order, 1)?,
                        None => scales,
                    })
                };
                let scales = [load(&query, counts[0])?, load(&key, counts[1])?];
                Self::EachHead { scales, eps: norm.eps }
            }
        })
    }

    /// The norms that come together with the rotation.
    pub(super) fn fused(&self) -> Option<HeadNorms<'_>> {
        match self {
            Self::Fused { norms: [query, key], after_rotation } => Some(HeadNorms {
                query: query.weight(),
                key: key.weight(),
                eps: query.eps(),
                after_rotation: *after_rotation,
            }),
            _ => None,
        }
    }

    /// Queries and keys `[num_tokens, heads, head_dim]`, normalized unless that is fused.
    pub(super) fn apply(&self, heads: [Tensor; 2]) -> Result<[Tensor; 2]> {
        let [q, k] = heads;
        Ok(match self {
            Self::Fused { .. } => [q, k],
            Self::Heads([query, key]) => [query.forward(&q)?, key.forward(&k)?],
            Self::AllHeads([query, key]) => {
                let all =
                    |norm: &Norm, x: &Tensor| norm.forward(&x.flatten_from(1)?)?.reshape(x.shape());
                [all(query, &q)?, all(key, &k)?]
            }
            Self::EachHead { scales, eps } => {
                let each = |x: &Tensor, scales: &Tensor| {
                    let dim = x.dim(2)?;
                    let one = Tensor::ones(dim, DType::F32, x.device())?;
                    layer_norm(x, &one, &one.zeros_like()?, *eps)?.broadcast_mul(scales)
                };
                [each(&q, &scales[0])?, each(&k, &scales[1])?]
            }
        })
    }
}
