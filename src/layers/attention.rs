//! Self-attention of one layer: projections, head norms, rotation, KV write, paged attention.

use candle_core::{Result, Tensor};

use super::forward::{ForwardBatch, KvLayer};
use super::linear::Linear;
use super::norm::RmsNorm;
use super::rope::RopeAngles;
use crate::kernels::kv_write::{HeadNorms, KvCache, Projections, kv_write};
use crate::kernels::paged_attention::{AttentionParams, Ragged, paged_attention};
use crate::weights::{WeightError, Weights};

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
    /// Biases of the query, key and value projections.
    pub qkv_bias: bool,
    /// Bias of the output projection.
    pub output_bias: bool,
    /// Normalize each query and key head before the rotation, with this epsilon.
    pub head_norm_eps: Option<f32>,
    /// Scale, soft-cap and window.
    pub params: AttentionParams,
}

/// Weights of one layer's attention.
#[derive(Debug)]
pub struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    head_norms: Option<(RmsNorm, RmsNorm)>,
    spec: AttentionSpec,
}

impl Attention {
    /// Loads `q_proj`, `k_proj`, `v_proj`, `o_proj` and, with head norms, `q_norm` and `k_norm`.
    pub fn load(weights: &Weights, spec: AttentionSpec) -> std::result::Result<Self, WeightError> {
        let AttentionSpec { hidden_size: hidden, head_dim, qkv_bias, .. } = spec;
        let (all, kv) = (spec.num_heads * head_dim, spec.num_kv_heads * head_dim);
        let head_norms = match spec.head_norm_eps {
            Some(eps) => Some((
                RmsNorm::load(&weights.scope("q_norm"), head_dim, eps)?,
                RmsNorm::load(&weights.scope("k_norm"), head_dim, eps)?,
            )),
            None => None,
        };
        Ok(Self {
            query: Linear::load(&weights.scope("q_proj"), hidden, all, qkv_bias)?,
            key: Linear::load(&weights.scope("k_proj"), hidden, kv, qkv_bias)?,
            value: Linear::load(&weights.scope("v_proj"), hidden, kv, qkv_bias)?,
            output: Linear::load(&weights.scope("o_proj"), all, hidden, spec.output_bias)?,
            head_norms,
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
    ) -> Result<Tensor> {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, params, .. } = self.spec;
        let rows = x.dim(0)?;
        // [num_tokens, heads, head_dim]
        let [q, k, v] = Linear::forward_each([&self.query, &self.key, &self.value], x)?;
        let q = q.reshape((rows, num_heads, head_dim))?;
        let k = k.reshape((rows, num_kv_heads, head_dim))?;
        let v = v.reshape((rows, num_kv_heads, head_dim))?;
        let norms = self.head_norms.as_ref().map(|(query, key)| HeadNorms {
            query: query.weight(),
            key: key.weight(),
            eps: query.eps(),
        });
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let q = kv_write(new, angles.rotation(norms), cache, &batch.slot_mapping)?;
        let ragged = Ragged {
            positions: &batch.positions,
            block_tables: &batch.block_tables,
            cu_seqlens_q: &batch.cu_seqlens_q,
            context_lens: &batch.context_lens,
        };
        paged_attention(&q, &kv.k, &kv.v, ragged, params)?.reshape((rows, num_heads * head_dim))
    }

    /// `residual [.., hidden]` plus the output projection of `attended [.., heads * head_dim]`.
    pub fn project_add(&self, attended: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.output.forward_add(attended, residual)
    }
}
