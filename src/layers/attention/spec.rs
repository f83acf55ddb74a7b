//! The shape and the variant of a layer's attention, as plain data.

use crate::kernels::paged_attention::AttentionParams;
use crate::layers::forward::KvHeads;
use crate::layers::norm::NormSpec;

/// Names and layout of the query, key and value projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkvTensors {
    /// A tensor for each.
    Separate([&'static str; 3]),
    /// One tensor: all query heads, then all key heads, then all value heads.
    Stacked(&'static str),
    /// One tensor: for each key head the query heads that share it, the key head, the value head.
    Grouped(&'static str),
}

/// The elements that a norm of queries or keys is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormSpan {
    /// A head, before the rotation; all heads share the scale.
    Head,
    /// A head, after the rotation; all heads share the scale.
    RotatedHead,
    /// A head, by a layer norm; each head has a scale of its own.
    EachHead,
    /// All heads of a token.
    AllHeads,
}

/// Normalization of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryKeyNorm {
    /// Variant of the norm.
    pub norm: NormSpec,
    /// The elements it is over.
    pub over: NormSpan,
    /// Names of the two norms, whose scales are stored.
    pub tensors: [&'static str; 2],
}

impl QueryKeyNorm {
    /// Norms of each head, under their most common names.
    pub fn of_heads(norm: NormSpec) -> Self {
        Self { norm, over: NormSpan::Head, tensors: ["q_norm", "k_norm"] }
    }
}

/// Where the gates of heads are projected from hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateTensor {
    /// In the query projection, where each head is followed by a gate of the same size.
    BehindQueries,
    /// In a tensor of its own, with a gate for each element.
    Elements(&'static str),
    /// In a tensor of its own, with a gate for each head.
    Heads(&'static str),
}

/// Gates that multiply the outputs of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadGate {
    /// Where gates are projected.
    pub tensor: GateTensor,
    /// Whether the softplus of a gate is the factor; else its sigmoid.
    pub softplus: bool,
}

impl HeadGate {
    /// Gates of this tensor, through a sigmoid.
    pub const fn sigmoid(tensor: GateTensor) -> Self {
        Self { tensor, softplus: false }
    }
}

/// The shape and the variant of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Number of query heads; a multiple of `num_kv_heads`.
    pub num_heads: usize,
    /// Number of key and value heads.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Names and layout of the query, key and value projections.
    pub qkv: QkvTensors,
    /// Name of the output projection.
    pub output: &'static str,
    /// The gate that multiplies what attention gives, before the output projection. Only where queries
    /// have a tensor of their own.
    pub gate: Option<HeadGate>,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Bound that queries, keys and values are clipped to, after norms that are not fused.
    pub clip: Option<f32>,
    /// Norms of queries and keys.
    pub query_key_norm: Option<QueryKeyNorm>,
    /// The norm of each value head, which has no scale.
    pub value_norm: Option<NormSpec>,
    /// Index of the layer whose KV cache is used, if this one computes no keys and values.
    pub kv_from_layer: Option<usize>,
    /// Index of the rotary embedding among the decoder's; `None`: there is none.
    pub rope: Option<usize>,
    /// Number of elements of a stored head whose rotated pairs are interleaved, not halves.
    pub interleaved_rope: Option<usize>,
    /// Scale, soft-cap and window of scores.
    pub params: AttentionParams,
    /// Name of the attention sinks: a score per query head, in the softmax beside those of
    /// positions.
    pub sinks: Option<&'static str>,
    /// ALiBi's largest exponent: slopes of heads are between 1 and two to the power of minus this.
    pub alibi: Option<f32>,
    /// Sizes of latent attention. There is then one KV head, `head_dim` is the size of its cached
    /// key, and `qkv` is not used.
    pub latent: Option<LatentSpec>,
}

impl AttentionSpec {
    /// Elements that all heads give, before the output projection.
    pub fn outputs(&self) -> usize {
        self.num_heads * self.latent.map_or(self.head_dim, |latent| latent.value_dim)
    }

    /// The shape of the layer's KV cache.
    pub fn kv(&self) -> KvHeads {
        let value_dim = self.latent.map_or(self.head_dim, |latent| latent.kv_rank);
        KvHeads { count: self.num_kv_heads, key_dim: self.head_dim, value_dim }
    }
}

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentSpec {
    /// Elements of the low-rank vector that queries are projected from; `None`: hidden states.
    pub query_rank: Option<usize>,
    /// Elements of the latent vector that keys and values are projected from.
    pub kv_rank: usize,
    /// Elements of a head's queries and keys that are not rotated.
    pub nope_dim: usize,
    /// Elements of a head's queries and keys that are rotated; all heads share the key's.
    pub rope_dim: usize,
    /// Elements of a head's values.
    pub value_dim: usize,
    /// The norm of the low-rank and of the latent vector.
    pub norm: NormSpec,
    /// Whether the projections from hidden states to these vectors have biases.
    pub bias: bool,
}

impl LatentSpec {
    /// Elements of a cached key.
    pub fn key_dim(&self) -> usize {
        self.rope_dim + self.kv_rank
    }
}
