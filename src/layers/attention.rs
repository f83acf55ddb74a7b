//! Self-attention of one layer: projections, norms of queries and keys, rotation, KV write, paged
//! attention.

use candle_core::{Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::forward::{ForwardBatch, KvLayer};
use super::linear::Linear;
use super::norm::NormSpec;
use super::rope::RopeAngles;
use crate::kernels::kv_write::{KvCache, Projections, kv_write};
use crate::kernels::paged_attention::{AttentionParams, Ragged, paged_attention};
use crate::weights::{WeightError, Weights};

mod projections;

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
    /// What the tensors are called.
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
    /// Biases of the query, key and value projections.
    pub qkv_bias: bool,
    /// Bias of the output projection.
    pub output_bias: bool,
    /// Bound of the size of queries, keys and values, behind norms that are not of single heads.
    pub clip: Option<f32>,
    /// Norms of queries and keys.
    pub query_key_norm: Option<QueryKeyNorm>,
    /// Which of the decoder's rotary embeddings; `None` rotates nothing.
    pub rope: Option<usize>,
    /// This many elements of a stored head are rotated in pairs of neighbours, not of halves.
    pub rope_neighbours: Option<usize>,
    /// Scale, soft-cap and window.
    pub params: AttentionParams,
}

/// Weights of one layer's attention.
#[derive(Debug)]
pub struct Attention {
    qkv: QkvProjections,
    output: Linear,
    spec: AttentionSpec,
}

impl Attention {
    /// Loads the projections and the norms of queries and keys.
    pub fn load(weights: &Weights, spec: AttentionSpec) -> std::result::Result<Self, WeightError> {
        let (inner, outer) = (spec.num_heads * spec.head_dim, spec.hidden_size);
        let output = weights.scope(spec.output);
        Ok(Self {
            qkv: QkvProjections::load(weights, &spec)?,
            output: Linear::load(&output, inner, outer, spec.output_bias)?,
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
        let AttentionSpec { num_heads, num_kv_heads, head_dim, params, .. } = self.spec;
        let rows = x.dim(0)?;
        let [query, key, value] = &self.qkv.layers;
        let [q, k, v] = Linear::forward_each([query, key, value], x)?;
        let q = adapters.add(Projection::Query, x, q, 1.0)?;
        let k = adapters.add(Projection::Key, x, k, 1.0)?;
        let v = adapters.add(Projection::Value, x, v, 1.0)?;
        // [num_tokens, heads, head_dim]
        let mut q = angles.grown(q.reshape((rows, num_heads, head_dim))?)?;
        let mut k = k.reshape((rows, num_kv_heads, head_dim))?;
        let mut v = v.reshape((rows, num_kv_heads, head_dim))?;
        if let Some(norms) = &self.qkv.norms {
            [q, k] = norms.apply([q, k])?;
        }
        if let Some(bound) = self.spec.clip {
            for x in [&mut q, &mut k, &mut v] {
                *x = x.clamp(-bound, bound)?;
            }
        }
        let fused = self.qkv.norms.as_ref().and_then(QueryKeyNorms::fused);
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let q = kv_write(new, angles.rotation(fused), cache, &batch.slot_mapping)?;
        let ragged = Ragged {
            positions: &batch.positions,
            block_tables: &batch.block_tables,
            cu_seqlens_q: &batch.cu_seqlens_q,
            context_lens: &batch.context_lens,
        };
        paged_attention(&q, &kv.k, &kv.v, ragged, params)?.reshape((rows, num_heads * head_dim))
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
