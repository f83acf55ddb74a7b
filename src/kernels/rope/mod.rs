//! Rotary position embedding: the "neox" layout, where element `i` of the first half of a head pairs
//! with element `i` of the second.
//!
//! Su et al., "RoFormer", 2021. Heads are rotated on their way to attention and to the cache, see
//! [`super::kv_write`], by one cosine and one sine per pair; elements behind the rotated ones stay
//! as they are.

use candle_core::{Result, Tensor};

pub use self::args::AngleParams;

mod args;
pub(super) mod cpu;
mod cuda;
pub(super) mod portable;

/// Cosines and sines `[T, R]` and, if there is one, the query scale `[T, 1, 1]`, of tokens at
/// `positions [T]` of sequences with `lengths [T]` known tokens (both u32), all on a GPU. Elsewhere
/// the host computes them.
pub fn angles(
    positions: &Tensor,
    lengths: &Tensor,
    params: &AngleParams<'_>,
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    cuda::angles(positions, lengths, params)
}
