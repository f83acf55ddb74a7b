//! Self-attention of one layer: projections, norms of queries and keys, rotation, KV write, paged
//! attention.

use candle_core::{DType, Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::forward::{KvLayer, Step};
use super::linear::Linear;
use super::norm::{Norm, RmsNorm};
use super::rope::RopeAngles;
use crate::kernels::floats::Floats;
use crate::kernels::kv_write::{HeadNorms, KvCache, Projections, kv_write, prepare_queries};
use crate::kernels::paged_attention::{PerHead, paged_attention};
use crate::kernels::pointwise::sigmoid;
use crate::weights::{Loaded, WeightError, Weights};

mod alibi;
mod latent;
mod projections;
mod qkv_source;
mod query_key_norms;
mod spec;

use latent::LatentProjections;
use projections::QkvProjections;
pub use qkv_source::QkvSource;
use query_key_norms::QueryKeyNorms;
pub use spec::{
    AttentionSpec, GateTensor, HeadGate, LatentSpec, NormSpan, QkvTensors, QueryKeyNorm,
};

/// The softplus of each element.
fn softplus(x: &Tensor) -> Result<Tensor> {
    // log(1 + exp(x)) without an overflow: max(x, 0) + log(1 + exp(-|x|)).
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// Weights of one layer's attention.
#[derive(Debug)]
pub struct Attention {
    inputs: Inputs,
    output: Linear,
    value_norm: Option<Norm>,
    sinks: Option<Floats>,
    slopes: Option<Floats>,
    spec: AttentionSpec,
}

/// The projections to queries, keys and values.
#[derive(Debug)]
enum Inputs {
    Heads(QkvProjections),
    /// Queries alone, perhaps normalized: keys and values are in the cache of another layer.
    Query(Linear, Option<RmsNorm>),
    Latent(LatentProjections),
}

impl Attention {
    /// Loads the weights of `spec`.
    pub fn load(weights: &Weights, spec: AttentionSpec) -> Loaded<Self> {
        Self::load_from(weights, spec, spec.hidden_size)
    }

    /// The same with queries, keys and values of rows of `width` elements; only without latent vectors.
    pub fn load_from(weights: &Weights, spec: AttentionSpec, width: usize) -> Loaded<Self> {
        let (inner, outer) = (spec.outputs(), spec.hidden_size);
        let output = weights.scope(spec.output);
        let sinks = spec.sinks.map(|name| {
            let sinks = weights.dense(name, &[spec.num_heads], DType::F32)?;
            Ok::<_, WeightError>(Floats::of(sinks)?)
        });
        let slopes = |max_bias| {
            Floats::of(Tensor::new(alibi::slopes(spec.num_heads, max_bias), weights.device())?)
        };
        let value_norm = spec.value_norm.map(|norm| Norm::load(weights, spec.head_dim, norm));
        Ok(Self {
            inputs: match (spec.latent, spec.kv_from_layer) {
                (None, None) => {
                    let spec = AttentionSpec { hidden_size: width, ..spec };
                    Inputs::Heads(QkvProjections::load(weights, &spec)?)
                }
                (None, Some(_)) => {
                    let (query, norm) = projections::load_query(weights, &spec)?;
                    Inputs::Query(query, norm)
                }
                (Some(latent), _) => {
                    Inputs::Latent(LatentProjections::load(weights, &spec, latent)?)
                }
            },
            value_norm: value_norm.transpose()?,
            output: Linear::load(&output, inner, outer, spec.output_bias)?,
            sinks: sinks.transpose()?,
            slopes: spec.alibi.map(slopes).transpose()?,
            spec,
        })
    }

    /// Writes keys and values of the rows `x [num_tokens, hidden]` to the cache and computes
    /// attention up to the output projection: `[num_tokens, heads * head_dim]`.
    pub fn attend(
        &self,
        x: &Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let (rows, params) = (x.dim(0)?, self.spec.params);
        let q = self.queries(x, angles, kv, step, adapters)?;
        let per_head = PerHead { sinks: self.sinks.as_ref(), slopes: self.slopes.as_ref() };
        let attended = paged_attention(&q, &kv.k, &kv.v, step, params, per_head)?;
        match &self.inputs {
            Inputs::Latent(latent) => latent.values(&attended),
            Inputs::Query(..) => attended.reshape((rows, ())),
            Inputs::Heads(qkv) => {
                let (Some(layer), Some(gate)) = (&qkv.gate, self.spec.gate) else {
                    return attended.reshape((rows, ()));
                };
                let factors = adapters.add(Projection::HeadGate, x, layer.forward(x)?, 1.0)?;
                let factors = if gate.softplus { softplus(&factors)? } else { sigmoid(&factors)? };
                if let GateTensor::Heads(_) = gate.tensor {
                    let factors = factors.unsqueeze(2)?;
                    return attended.broadcast_mul(&factors)?.reshape((rows, ()));
                }
                attended.reshape((rows, ()))? * factors
            }
        }
    }

    /// Queries, ready for attention; keys and values, unless another layer's, are written to the
    /// cache.
    fn queries(
        &self,
        x: &Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let ([q, k, v], fused) = match &self.inputs {
            Inputs::Latent(latent) => {
                let [q, k, v] = latent.forward(x)?;
                ([angles.scale_queries(q)?, k, v], None)
            }
            Inputs::Query(query, norm) => {
                let AttentionSpec { num_heads, head_dim, .. } = self.spec;
                let q = adapters.add(Projection::Query, x, query.forward(x)?, 1.0)?;
                let q = q.reshape((x.dim(0)?, num_heads, head_dim))?;
                let fused = norm.as_ref().map(|norm| HeadNorms {
                    query: norm.weight(),
                    key: norm.weight(),
                    eps: norm.eps(),
                    after_rotation: false,
                });
                return prepare_queries(&q, angles.rotation(fused));
            }
            Inputs::Heads(qkv) => {
                let fused = qkv.norms.as_ref().and_then(QueryKeyNorms::fused);
                (self.heads(qkv, x, angles, adapters)?, fused)
            }
        };
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        kv_write(new, angles.rotation(fused), cache, step.kv_slots())
    }

    /// Queries, keys and values, `[num_tokens, heads, head_dim]`, before the rotation.
    fn heads(
        &self,
        qkv: &QkvProjections,
        x: &Tensor,
        angles: &RopeAngles,
        adapters: LayerAdapters<'_>,
    ) -> Result<[Tensor; 3]> {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, .. } = self.spec;
        let rows = x.dim(0)?;
        let [q, k, v] = Linear::forward_each(qkv.layers.each_ref(), x)?;
        let q = adapters.add(Projection::Query, x, q, 1.0)?;
        let k = adapters.add(Projection::Key, x, k, 1.0)?;
        let v = adapters.add(Projection::Value, x, v, 1.0)?;
        let mut q = angles.scale_queries(q.reshape((rows, num_heads, head_dim))?)?;
        let mut k = k.reshape((rows, num_kv_heads, head_dim))?;
        let mut v = v.reshape((rows, num_kv_heads, head_dim))?;
        if let Some(norms) = &qkv.norms {
            [q, k] = norms.apply([q, k])?;
        }
        if let Some(norm) = &self.value_norm {
            v = norm.forward(&v)?;
        }
        if let Some(bound) = self.spec.clip {
            for x in [&mut q, &mut k, &mut v] {
                *x = x.clamp(-bound, bound)?;
            }
        }
        Ok([q, k, v])
    }

    /// Elements of a row before the output projection.
    pub fn width(&self) -> usize {
        self.spec.outputs()
    }

    /// The output projection of `attended [.., heads * head_dim]`: `[.., hidden]`.
    pub fn project(&self, attended: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        adapters.add(Projection::Output, attended, self.output.forward(attended)?, 1.0)
    }

    /// `residual + factor * project(attended)`.
    pub fn project_add(
        &self,
        attended: &Tensor,
        residual: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let sum = self.output.forward_add_scaled(attended, residual, factor)?;
        adapters.add(Projection::Output, attended, sum, factor)
    }
}
