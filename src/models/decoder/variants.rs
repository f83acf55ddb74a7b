//! What some decoders have beside the common parts of a layer, as plain data.

use crate::kernels::pointwise::Activation;
use crate::layers::mlp::MlpSpec;

/// Bounds of gates and ups in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GateLimits {
    /// Those of routed experts.
    pub experts: Option<f32>,
    /// Those of the dense feed-forward part, or of the shared expert.
    pub mlp: Option<f32>,
}

/// Blocks of attention and a feed-forward part, whose weights layers share. A block sees a layer's hidden
/// states beside the embeddings; what it gives is projected, and added to the input of the layer's mixer.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedBlocks {
    /// The block of each layer, if it has one.
    pub of_layers: Vec<Option<BlockUse>>,
    /// Name in a layer.
    pub name: &'static str,
    /// Name of the projection in a layer.
    pub projection: &'static str,
    /// Name in a layer of everything else, where there is a block.
    pub rest: &'static str,
    /// The feed-forward part. The attention is that of the layer.
    pub mlp: MlpSpec,
    /// Rank of changes of the feed-forward part's weights for each use of a block; `None`: all uses have
    /// the same weights.
    pub rank: Option<usize>,
    /// Whether the attention's weights have such changes too.
    pub changes_attention: bool,
}

/// One of the layers that share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUse {
    /// The first layer with this block, below which its weights are.
    pub owner: usize,
    /// How many layers before this one have a block.
    pub index: usize,
}

/// The factors of hidden states and of a part's output, which are added to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResidualScales {
    /// Around the mixer.
    pub mixer: [f32; 2],
    /// Around the feed-forward part.
    pub mlp: [f32; 2],
}

/// Learned sums of hidden states `x` and what a part gives, `y`, by vectors `v` of the mixer and of the
/// feed-forward part, with these names in a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearnedSums {
    /// `v * x + y`
    Factors([&'static str; 2]),
    /// `x + |factor * v| * (y - x)`, both normalized. Loshchilov et al., "nGPT: Normalized Transformer
    /// with Representation Learning on the Hypersphere", 2024.
    Rates([&'static str; 2], f32),
    /// `(x + a) * b + (y + c) * d`, by four vectors of a module each.
    Affine([&'static str; 2]),
}

/// Streams of hidden states, of which each layer computes one and predicts the others. Baykal et al.,
/// "Alternating Updates for Efficient Transformers", 2023.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsSpec {
    /// Number of streams.
    pub count: usize,
    /// Index of the one that layers compute.
    pub active: usize,
    /// Whether what per-layer embeddings are gated by is scaled.
    pub scaled: bool,
}

/// Streams of hidden states, of which the parts of layers see weighted sums, and which what they give is added to by
/// factors. Zhu et al., "Hyper-Connections", 2024.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HyperConnectionsSpec {
    /// Number of streams.
    pub count: usize,
    /// The most that a factor is, but for what is added to it.
    pub magnitude: f32,
    /// What is added to weights, and to factors.
    pub eps: [f32; 2],
    /// Rounds that make the matrix by which streams go over into each other, around each part; `None`: they don't.
    /// Xie et al., "mHC: Manifold-Constrained Hyper-Connections", 2025.
    pub mixing: Option<usize>,
    /// Names in a layer of the projection, of the offsets and of the scales around the mixer and around the
    /// feed-forward part.
    pub tensors: [[&'static str; 3]; 2],
    /// What hidden states behind the last layer are: a weighted sum of the streams with gates of its own, or their
    /// mean.
    pub weighted_head: bool,
}

/// Per-layer embeddings: small vectors of each token for each layer, from an embedding of their own
/// and from the token's common embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInputs {
    /// Elements of a vector.
    pub width: usize,
    /// Rows of their embedding.
    pub vocab_size: usize,
    /// Activation of the gate in a layer.
    pub activation: Activation,
}
