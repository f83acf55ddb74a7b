//! Self-attention of one layer: projections, norms of queries and keys, rotation, KV write, paged
//! attention.

use candle_core::{DType, Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::forward::{ForwardBatch, KvHeads, KvLayer};
use super::linear::Linear;
use super::norm::{Norm, NormSpec, RmsNorm};
use super::rope::RopeAngles;
use crate::kernels::floats::Floats;
use crate::kernels::kv_write::{HeadNorms, KvCache, Projections, kv_write, prepare_queries};
use crate::kernels::paged_attention::{AttentionParams, PerHead, paged_attention};
use crate::kernels::pointwise::sigmoid;
use crate::weights::{WeightError, Weights};

mod latent;
mod projections;

use latent::LatentProjections;
pub use latent::LatentSpec;
pub use projections::QkvSource;
use projections::{QkvProjections, QueryKeyNorms};

/// The tensors that queries, keys and values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkvTensors {
    /// Each from its own.
    Separate([&'static str; 3]),
    /// From one: all query heads, then all key heads, then all value heads.
    Stacked(&'static str),
    /// From one: for each key head the query heads that share it, the key head, the value head.
    Grouped(&'static str),
}

/// What one norm of queries or keys covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormSpan {
    /// A head; all heads share the scale.
    Head,
    /// A head, behind the rotation.
    RotatedHead,
    /// A head, by mean and variance; each head has its own scale.
    EachHead,
    /// All heads of a token.
    AllHeads,
}

/// Normalization of queries and keys, before the rotation unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryKeyNorm {
    /// Which norm.
    pub norm: NormSpec,
    /// What it covers.
    pub over: NormSpan,
    /// What the tensors are called, if the norm has a scale.
    pub tensors: [&'static str; 2],
}

impl QueryKeyNorm {
    /// Of each head, in the tensors' most common names.
    pub fn of_heads(norm: NormSpec) -> Self {
        Self { norm, over: NormSpan::Head, tensors: ["q_norm", "k_norm"] }
    }
}

/// Shape and variant of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Query heads; a multiple of `num_kv_heads`.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What the tensors of the projections are called.
    pub qkv: QkvTensors,
    /// What the output projection's tensor is called.
    pub output: &'static str,
    /// What the query projection holds of each head is followed by a gate, as wide, whose sigmoid
    /// is a factor of what the head attends to. Only where queries have a tensor of their own.
    pub gated: bool,
    /// Biases of the query, key and value projections.
    pub qkv_bias: bool,
    /// Bias of the output projection.
    pub output_bias: bool,
    /// Bound of the size of queries, keys and values, behind norms that are not of single heads.
    pub clip: Option<f32>,
    /// Norms of queries and keys.
    pub query_key_norm: Option<QueryKeyNorm>,
    /// The norm of each value head, which has no scale.
    pub value_norm: Option<NormSpec>,
    /// Keys and values are those that another layer wrote, of this index; there are no tensors for
    /// them.
    pub kv_of: Option<usize>,
    /// Which of the decoder's rotary embeddings; `None` rotates nothing.
    pub rope: Option<usize>,
    /// This many elements of a stored head are rotated in pairs of neighbours, not of halves.
    pub rope_neighbours: Option<usize>,
    /// Scale, soft-cap and window.
    pub params: AttentionParams,
    /// The tensor of scores, one per query head, that take part beside those of positions.
    pub sinks: Option<&'static str>,
    /// Scores fall with the distance from the query, by a slope per head between 1 and two to the
    /// power of minus this.
    pub alibi: Option<f32>,
    /// All heads share one small vector instead of having keys and values. Then there is one KV
    /// head, `head_dim` is what is kept as its key, and `qkv` is not used.
    pub latent: Option<LatentSpec>,
}

impl AttentionSpec {
    /// What a layer keeps of a token.
    pub fn kv(&self) -> KvHeads {
        let value_dim = self.latent.map_or(self.head_dim, |latent| latent.rank);
        KvHeads { count: self.num_kv_heads, key_dim: self.head_dim, value_dim }
    }
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

/// Where queries, keys and values come from.
#[derive(Debug)]
enum Inputs {
    Heads(QkvProjections),
    /// Keys and values are another layer's; queries may be normalized.
    Query(Linear, Option<RmsNorm>),
    Latent(LatentProjections),
}

impl Attention {
    /// Loads the projections and the norms of queries and keys.
    pub fn load(weights: &Weights, spec: AttentionSpec) -> std::result::Result<Self, WeightError> {
        let head = spec.latent.map_or(spec.head_dim, |latent| latent.value);
        let (inner, outer) = (spec.num_heads * head, spec.hidden_size);
        let output = weights.scope(spec.output);
        let sinks = spec.sinks.map(|name| {
            let sinks = weights.dense(name, &[spec.num_heads], DType::F32)?;
            Ok::<_, WeightError>(Floats::of(sinks)?)
        });
        let slopes = spec
            .alibi
            .map(|most| Floats::of(Tensor::new(slopes(spec.num_heads, most), weights.device())?));
        let value_norm = spec.value_norm.map(|norm| Norm::load(weights, spec.head_dim, norm));
        Ok(Self {
            inputs: match (spec.latent, spec.kv_of) {
                (None, None) => Inputs::Heads(QkvProjections::load(weights, &spec)?),
                (None, Some(_)) => projections::load_query(weights, &spec)?,
                (Some(latent), _) => {
                    Inputs::Latent(LatentProjections::load(weights, &spec, latent)?)
                }
            },
            value_norm: value_norm.transpose()?,
            output: Linear::load(&output, inner, outer, spec.output_bias)?,
            sinks: sinks.transpose()?,
            slopes: slopes.transpose()?,
            spec,
        })
    }

    /// Writes keys and values of the rows `x [num_tokens, hidden]` to the cache and returns what
    /// each row attends to, before the output projection: `[num_tokens, heads * head_dim]`.
    pub fn attend(
        &self,
        x: &Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        batch: &ForwardBatch,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let (rows, params) = (x.dim(0)?, self.spec.params);
        let q = self.queries(x, angles, kv, batch, adapters)?;
        let per_head = PerHead { sinks: self.sinks.as_ref(), slopes: self.slopes.as_ref() };
        let attended = paged_attention(&q, &kv.k, &kv.v, batch.ragged(), params, per_head)?;
        match &self.inputs {
            Inputs::Latent(latent) => latent.values(&attended),
            Inputs::Query(..) => attended.reshape((rows, ())),
            Inputs::Heads(qkv) => {
                let attended = attended.reshape((rows, ()))?;
                let Some(gate) = &qkv.gate else { return Ok(attended) };
                let gate = adapters.add(Projection::HeadGate, x, gate.forward(x)?, 1.0)?;
                attended * sigmoid(&gate)?
            }
        }
    }

    /// Writes keys and values, if they are the layer's own, and returns the queries.
    fn queries(
        &self,
        x: &Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        batch: &ForwardBatch,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let ([q, k, v], fused) = match &self.inputs {
            Inputs::Latent(latent) => (latent.forward(x)?, None),
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
        kv_write(new, angles.rotation(fused), cache, batch.slots())
    }

    /// Queries, keys and values, `[num_tokens, heads, head_dim]`, not yet rotated.
    fn heads(
        &self,
        qkv: &QkvProjections,
        x: &Tensor,
        angles: &RopeAngles,
        adapters: LayerAdapters<'_>,
    ) -> Result<[Tensor; 3]> {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, .. } = self.spec;
        let rows = x.dim(0)?;
        let [query, key, value] = &qkv.layers;
        let [q, k, v] = Linear::forward_each([query, key, value], x)?;
        let q = adapters.add(Projection::Query, x, q, 1.0)?;
        let k = adapters.add(Projection::Key, x, k, 1.0)?;
        let v = adapters.add(Projection::Value, x, v, 1.0)?;
        let mut q = angles.grown(q.reshape((rows, num_heads, head_dim))?)?;
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

/// Slopes of `heads` heads: a geometric series from `2^(-most / n)` down to `2^-most`, `n` being
/// the largest power of two up to `heads`; then, for the others, every second one of the series
/// that twice as many heads would have. Press et al., "Train Short, Test Long", 2021.
fn slopes(heads: usize, most: f32) -> Vec<f32> {
    let whole = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    #[expect(clippy::cast_precision_loss, reason = "heads are few")]
    let slope = |i: usize, count: usize| (-most * i as f32 / count as f32).exp2();
    let first = (1..=whole).map(|i| slope(i, whole));
    let others = (1..=heads - whole).map(|i| slope(2 * i - 1, 2 * whole));
    first.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_next_powers_of_two() {
        let near = |slopes: &[f32], expected: &[f32]| {
            slopes.len() == expected.len()
                && slopes.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        assert!(near(&slopes(4, 8.0), &[0.25, 0.0625, 0.015_625, 0.003_906_25]));
        let six = [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125];
        assert!(near(&slopes(6, 8.0), &six));
        assert!(near(&slopes(1, 8.0), &[0.003_906_25]));
    }
}
