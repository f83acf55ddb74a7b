//! What of a model's shape says how its tensors are cut, as plain data.

pub use super::super::keys::HeadCounts;

/// What of a model's shape says how its tensors are cut.
#[derive(Clone, Debug)]
pub struct ModelShape {
    /// Prefixes of all names but the head's.
    pub roots: &'static [&'static str],
    /// Layers that generate text.
    pub layers: usize,
    /// Whether the output head is the embedding.
    pub tied: bool,
    /// Whether matrices of layers are stored as `[inputs, outputs]`.
    pub transposed: bool,
    /// How the attention heads are cut.
    pub heads: HeadCounts,
    /// Whether layers have experts.
    pub has_experts: bool,
    /// Experts in two tensors, where they may be.
    pub stacked: Option<StackedExperts>,
    /// Latent attention.
    pub latent: Option<LatentHeads>,
    /// Groups of heads of a state space.
    pub state_groups: Option<usize>,
    /// Linear attention by the delta rule.
    pub delta: Option<DeltaHeads>,
}

/// Tensors of a layer with the matrices of all its experts.
#[derive(Clone, Copy, Debug)]
pub struct StackedExperts {
    /// Gates and ups `[experts, 2 * inner, hidden]`, and downs `[experts, hidden, inner]`.
    pub names: [&'static str; 2],
    /// The biases of both.
    pub biases: Option<[&'static str; 2]>,
    /// Whether the last two dimensions are transposed.
    pub transposed: bool,
    /// Whether rows of gates and ups take turns; else all gates come first.
    pub interleaved: bool,
}

/// Sizes of the matrix that makes keys and values of latent vectors.
#[derive(Clone, Copy, Debug)]
pub struct LatentHeads {
    /// Heads.
    pub heads: usize,
    /// Elements of a key.
    pub key: usize,
    /// Elements of a value.
    pub value: usize,
}

/// Heads of linear attention.
#[derive(Clone, Copy, Debug)]
pub struct DeltaHeads {
    /// Key heads, as many as query heads.
    pub keys: usize,
    /// Value heads.
    pub values: usize,
    /// Elements of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
}
