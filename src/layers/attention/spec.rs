//! The shape and the variant of a layer's attention, as plain data.

use crate::kernels::experts::Routing;
use crate::kernels::indexer::BlockChoice;
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
    /// One tensor in this many equal parts: in each the query heads, the value heads, the key heads.
    InParts(&'static str, usize),
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
    /// In the tensor of all projections, before the queries, with a gate for each element.
    BeforeQueries,
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
    /// Name of the biases of gates, one for each head.
    pub bias: Option<&'static str>,
}

impl HeadGate {
    /// Gates of this tensor, through a sigmoid.
    pub const fn sigmoid(tensor: GateTensor) -> Self {
        Self { tensor, softplus: false, bias: None }
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
    /// have a tensor of their own, or the first one is before them.
    pub gate: Option<HeadGate>,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Name of the bias of the output projection, where it is beside and not below that.
    pub output_bias_beside: Option<&'static str>,
    /// Bound that queries, keys and values are clipped to, after norms that are not fused.
    pub clip: Option<f32>,
    /// Norms of queries and keys.
    pub query_key_norm: Option<QueryKeyNorm>,
    /// The norm of each value head, which has no scale.
    pub value_norm: Option<NormSpec>,
    /// Elements of a value head, where queries and keys have another number. Only where queries, keys
    /// and values have a tensor each, and no latent vector.
    pub value_dim: Option<usize>,
    /// Factor of values.
    pub value_scale: f32,
    /// Name and variant of the norm of what all heads give together, before the output projection.
    pub output_norm: Option<(&'static str, NormSpec)>,
    /// Index of the layer whose KV cache is used, if this one computes no keys and values.
    pub kv_from_layer: Option<usize>,
    /// Index of the rotary embedding among the decoder's; `None`: there is none.
    pub rope: Option<usize>,
    /// Number of elements of a stored head whose rotated pairs are interleaved, not halves.
    pub interleaved_rope: Option<usize>,
    /// Scale, soft-cap and window of scores.
    pub params: AttentionParams,
    /// The bias of scores by the values of a key's token. Only without a latent vector, and where keys are
    /// the layer's own.
    pub value_bias: Option<ValueBias>,
    /// Learned scales of rotated queries and of gates, which are squared. Only where queries, keys and values
    /// are the layer's own.
    pub squared_scales: Option<SquaredScales>,
    /// Name of the attention sinks: a score per query head, in the softmax beside those of
    /// positions.
    pub sinks: Option<&'static str>,
    /// ALiBi's largest exponent: slopes of heads are between 1 and two to the power of minus this.
    pub alibi: Option<f32>,
    /// The experts among which a router chooses the query heads of each token. There are then as many query
    /// heads as key heads for each that is chosen; the tensors of `qkv` and `output` are not used.
    pub routed: Option<RoutedHeads>,
    /// Sizes of latent attention. There is then one KV head, `head_dim` is the size of its cached
    /// key, and `qkv` is not used.
    pub latent: Option<LatentSpec>,
    /// The convolutions of queries and keys with those of the tokens before. The names of `qkv` are not used.
    pub convolution: Option<ConvolutionSpec>,
    /// What chooses the blocks of the context that each key head sees; `None`: it sees all. Its keys have a cache of
    /// their own behind the layer's. Only where queries, keys and values are the layer's own.
    pub blocks: Option<BlockIndexerSpec>,
    /// The difference of the first and the second half of heads that there is instead of both. Value heads
    /// are then twice as large as they are stored: those of the first and of the second half of key heads
    /// side by side, once for each half.
    pub difference: Option<Difference>,
}

/// The difference of two halves of heads, `first - factor * second`, normalized without a scale. Ye et al.,
/// "Differential Transformer", 2024.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The factor but for its learned part; what is normalized is multiplied by one minus this.
    pub initial: f32,
    /// The norm of each head of differences.
    pub norm: NormSpec,
}

/// Learned scales, one for each element of all heads: of rotated queries and of gates before their sigmoid.
/// What is multiplied is the square of a scale times its factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquaredScales {
    /// Name and factor of those of queries.
    pub queries: (&'static str, f32),
    /// Name and factor of those of gates.
    pub gates: (&'static str, f32),
}

/// A bias of the scores of each key by all values of its token: `e^(rate * softplus(projection))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBias {
    /// Name of the projection from the values of all heads to a number for each key head.
    pub projection: &'static str,
    /// Name of the rate of each key head.
    pub rate: &'static str,
}

impl ValueBias {
    /// Elements that a key and a query have more: the bias, and zeros up to a size that kernels like.
    pub(super) const ELEMENTS: usize = 8;
}

impl AttentionSpec {
    /// Elements that all heads give, before the output projection.
    pub fn outputs(&self) -> usize {
        if self.difference.is_some() {
            return self.num_heads / 2 * self.value_dim();
        }
        self.num_heads * self.latent.map_or(self.value_dim(), |latent| latent.value_dim)
    }

    /// Elements of a value head.
    pub fn value_dim(&self) -> usize {
        self.value_dim.unwrap_or(self.head_dim)
    }

    /// Number of elements of each state of the layer, beside its KV cache.
    pub fn states(&self) -> Vec<usize> {
        self.convolution.map_or_else(Vec::new, |_| ConvolutionSpec::states(self))
    }

    /// The shape of the KV cache for the keys by which blocks are chosen, if the layer chooses some.
    pub fn block_keys(&self) -> Option<KvHeads> {
        let BlockIndexerSpec { dim, .. } = self.blocks?;
        Some(KvHeads { count: 1, key_dim: dim, value_dim: BlockIndexerSpec::UNUSED })
    }

    /// The shape of the layer's KV cache.
    pub fn kv(&self) -> KvHeads {
        let value_dim = self.latent.map_or(self.value_dim(), |latent| latent.cached_value_dim());
        let more = self.value_bias.map_or(0, |_| ValueBias::ELEMENTS);
        KvHeads { count: self.num_kv_heads, key_dim: self.head_dim + more, value_dim }
    }
}

/// The shape and the names of what chooses blocks of the context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockIndexerSpec {
    /// Number of heads, which divides that of key heads.
    pub heads: usize,
    /// Elements of a head.
    pub dim: usize,
    /// How many blocks are chosen, and which ones in any case.
    pub choice: BlockChoice,
    /// The norm of each head's queries and of keys.
    pub norm: NormSpec,
    /// Names of the projections to queries and keys, and of their norms.
    pub tensors: [[&'static str; 2]; 2],
}

impl BlockIndexerSpec {
    /// Elements of a value in the cache of its keys, which has no use for them: what every format stores.
    pub(super) const UNUSED: usize = 32;
}

/// Names of the projections and of the convolutions of compressed convolutional attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolutionSpec {
    /// The module that has them.
    pub module: &'static str,
    /// The projections to queries, keys, the values of the token itself and those of the next one.
    pub projections: [&'static str; 4],
    /// The convolution of each channel, and that of each head.
    pub convolutions: [&'static str; 2],
    /// The factors of key heads, beside the module.
    pub key_factors: &'static str,
}

/// Experts of which each has projections to queries and from what heads give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutedHeads {
    /// Number of experts.
    pub experts: usize,
    /// How the experts of a token are chosen and weighted.
    pub routing: Routing,
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
    /// Elements of a head's queries and keys that are rotated; all heads share the key's. Zero: there is no such part.
    pub rope_dim: usize,
    /// Elements of a head's values.
    pub value_dim: usize,
    /// The norm of the low-rank and of the latent vector.
    pub norm: NormSpec,
    /// Factor of the normalized latent vector.
    pub factor: f32,
    /// Factor of the normalized low-rank vector of queries.
    pub query_factor: f32,
    /// Whether queries are projected from the low-rank vector and from what it was before its norm, side by side,
    /// and each query head is followed by a gate of the head's values, which multiplies them by its sigmoid.
    pub query_gates: bool,
    /// Name of the RMS norm of the key's rotated part, which has this norm's epsilon.
    pub rotated_key_norm: Option<&'static str>,
    /// Whether the projections from hidden states to these vectors have biases.
    pub bias: bool,
    /// What queries see of longer contexts; `None`: all.
    pub selection: Option<SelectionSpec>,
}

/// Sparse attention, whose queries see a number of tokens of their context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectionSpec {
    /// How many a query sees at most.
    pub count: usize,
    /// What chooses them; `None`: they are those of the layer before.
    pub indexer: Option<IndexerSpec>,
}

/// The shape and the variant of what chooses tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexerSpec {
    /// Number of heads.
    pub heads: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Which of them are rotated, as many as in the layer's own heads.
    pub rotated: RotatedPart,
    /// Epsilon of the keys' norm.
    pub eps: f32,
    /// Tokens of a pool that is chosen as a whole, by one key of all of them; `None`: tokens are chosen.
    pub pool: Option<usize>,
}

impl IndexerSpec {
    /// Elements that the cache has for each token: a key, and the gates by which a pool's key is made.
    fn cached(&self) -> usize {
        self.dim * if self.pool.is_some() { 2 } else { 1 }
    }
}

/// Which elements of a head are rotated, and in which pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotatedPart {
    /// The first ones; a pair has an element of each half.
    FirstHalves,
    /// The first ones; a pair is next to each other.
    FirstPairs,
    /// The last ones; a pair has an element of each half.
    LastHalves,
    /// The last ones; a pair is next to each other.
    LastPairs,
}

impl LatentSpec {
    /// Elements of a cached key.
    pub fn key_dim(&self) -> usize {
        self.rope_dim + self.kv_rank
    }

    /// Elements that are projected from the low-rank vector for each head.
    pub fn query_dim(&self) -> usize {
        self.nope_dim + self.rope_dim + if self.query_gates { self.value_dim } else { 0 }
    }

    /// Elements of a cached value: the latent vector, and the key that tokens are chosen by.
    pub fn cached_value_dim(&self) -> usize {
        let indexer = self.selection.and_then(|selection| selection.indexer);
        self.kv_rank + indexer.map_or(0, |indexer| indexer.cached())
    }
}
