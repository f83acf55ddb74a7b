//! What is written to the cache, where to, and what happens to it on the way.

use candle_core::Tensor;

/// The operation's name in errors.
pub(super) const NAME: &str = "kv_write";

/// The outputs of a layer's projections, in f32.
#[derive(Clone, Copy, Debug)]
pub struct Projections<'a> {
    /// `[T, H, D]`
    pub q: &'a Tensor,
    /// `[T, KVH, D]`
    pub k: &'a Tensor,
    /// `[T, KVH, DV]`
    pub v: &'a Tensor,
}

/// How queries and keys are rotated and normalized.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// `[T, R]` with `2 R <= D`: cosines of the angles of a token's pairs.
    pub cos: &'a Tensor,
    /// `[T, R]`: sines.
    pub sin: &'a Tensor,
    /// Normalization of each head before or after the rotation.
    pub norms: Option<HeadNorms<'a>>,
}

/// Root mean square norms of heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorms<'a> {
    /// `[D]`: scale of query heads.
    pub query: &'a Tensor,
    /// `[D]`: scale of key heads.
    pub key: &'a Tensor,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether heads are rotated first.
    pub after_rotation: bool,
}

/// A layer's cache, see [`kv_format`](crate::cache::kv_format).
#[derive(Clone, Copy, Debug)]
pub struct KvCache<'a> {
    /// Keys.
    pub k: &'a Tensor,
    /// Values; not the same tensor as the keys.
    pub v: &'a Tensor,
}
