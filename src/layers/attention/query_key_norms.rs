//! The norms of queries and keys.

use candle_core::{DType, Result, Tensor};

use super::qkv_source::head_order;
use super::spec::{AttentionSpec, NormSpan, QueryKeyNorm};
use crate::kernels::kv_write::HeadNorms;
use crate::kernels::norm::layer_norm;
use crate::layers::norm::{Norm, RmsNorm};
use crate::weights::{Loaded, WeightError, Weights};

/// Norms of queries and keys.
#[derive(Clone, Debug)]
pub(super) enum QueryKeyNorms {
    /// RMS norms of each head, fused with the rotation: before or after it.
    Fused { norms: [RmsNorm; 2], after_rotation: bool },
    /// Norms of each head.
    Heads([Norm; 2]),
    /// Norms over all heads of a token.
    AllHeads([Norm; 2]),
    /// Layer norms of each head, with scales `[heads, head_dim]`.
    EachHead { scales: [Tensor; 2], eps: f32 },
}

impl QueryKeyNorms {
    pub(super) fn load(
        weights: &Weights,
        spec: &AttentionSpec,
        norm: QueryKeyNorm,
    ) -> Loaded<Self> {
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
                    // The rotation sees elements that these norms are not over.
                    (query, key, None) if spec.value_bias.is_some() => Self::Heads([query, key]),
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

    /// The norms that the kernel of the rotation applies.
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

    /// Normalizes queries and keys `[num_tokens, heads, head_dim]`, unless the rotation does.
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

/// Scales `[heads, head_dim]`, stored in one tensor or in one for each head.
fn scales_of_heads(weights: &Weights, heads: usize, head_dim: usize) -> Loaded<Tensor> {
    if weights.contains("weight") {
        return weights.dense("weight", &[heads, head_dim], DType::F32);
    }
    let head = |head| weights.scope("norms").scope(head).dense("weight", &[head_dim], DType::F32);
    let scales = (0..heads).map(head).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Tensor::stack(&scales, 0)?)
}
