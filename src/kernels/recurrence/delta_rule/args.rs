//! Heads and gates of the delta rule.

use candle_core::Tensor;

/// The operation's name in errors.
pub(super) const NAME: &str = "delta_rule";
/// Added to the squared length of a key or query.
pub(super) const LENGTH_EPS: f32 = 1e-6;

/// The shape of the heads of the delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Key heads, as many as query heads.
    pub keys: usize,
    /// Value heads, a multiple of the key heads; each has a state.
    pub values: usize,
    /// Elements of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Whether value head `i` has key head `i % keys`; else it has `i / (values / keys)`.
    pub tiled: bool,
}

impl Heads {
    /// Elements of a token's queries, keys and values.
    pub fn inputs(&self) -> usize {
        2 * self.keys * self.key_dim + self.outputs()
    }

    /// Elements of a token's values.
    pub fn outputs(&self) -> usize {
        self.values * self.value_dim
    }

    /// Elements of a sequence's state.
    pub fn state(&self) -> usize {
        self.outputs() * self.key_dim
    }

    /// Where the query or key (`which` is 0 or 1) of a value head begins.
    pub(super) fn shared(&self, which: usize, head: usize) -> usize {
        let own = if self.tiled { head % self.keys } else { head / (self.values / self.keys) };
        (which * self.keys + own) * self.key_dim
    }
}

/// The gates of the delta rule: how much of a state is forgotten, and how much is written.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// `[T, values]`: `write = write_scale * sigmoid(write)`
    pub write: &'a Tensor,
    /// See `write`: 1, or 2 where a token may also turn what a state says of its key around.
    pub write_scale: f32,
    /// `[T, values]`: `decay = exp(rate * softplus(decay + bias))`; or `[T, values * key_dim]`, where each
    /// element of a key fades by itself.
    pub decay: &'a Tensor,
    /// `[values]`, below zero: see `decay`.
    pub rate: &'a Tensor,
    /// `[values]` or `[values * key_dim]`: see `decay`.
    pub bias: &'a Tensor,
    /// The least logarithm of a decay, if there is one: `decay = exp(bound * sigmoid(-rate * (decay + bias)))`
    /// then. Only where each element of a key fades by itself.
    pub bound: Option<f32>,
}

impl Gates<'_> {
    /// Whether each element of a key fades by itself.
    pub(super) fn is_by_element(&self, heads: Heads) -> bool {
        self.bias.elem_count() != heads.values
    }
}
