//! Rotary position embedding of one head: the "neox" layout, where element `i` of the first half
//! pairs with element `i` of the second.
//!
//! Su et al., "RoFormer", 2021. Angles come from outside as one cosine and one sine per pair;
//! elements behind the rotated ones stay as they are. Heads are rotated on their way to attention
//! and to the cache, see [`super::kv_write`].

use candle_core::{Result, Tensor};

use super::cpu::{LANES, Lanes};
use super::cuda;

/// How heads turn with their position.
#[derive(Clone, Copy, Debug)]
pub struct Turning<'a> {
    /// `[R]`: angle of one position's step, per pair.
    pub frequencies: &'a Tensor,
    /// Those of sequences that are longer than this.
    pub beyond: Option<(usize, &'a Tensor)>,
    /// Factor of cosines and sines.
    pub magnitude: f32,
    /// `beta`, `every` and `first` of a factor `1 + beta * ln(1 + floor((position + first) /
    /// every))` of queries.
    pub growth: Option<[f32; 3]>,
}

/// Cosines and sines `[T, R]` and, if queries grow, their factors `[T, 1, 1]`, of tokens at
/// `positions [T]` of sequences with `lengths [T]` known tokens (both u32), all on a GPU.
pub fn angles(
    positions: &Tensor,
    lengths: &Tensor,
    turning: &Turning<'_>,
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    cuda::rope::angles(positions, lengths, turning)
}

/// Rotates `head [D]` by `cos` and `sin`, each `[R]` with `2 R <= D`.
#[inline(always)]
pub(super) fn rotate<L: Lanes>(l: L, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    let (first, rest) = head.split_at_mut(pairs);
    let (first, first_tail) = first.as_chunks_mut::<LANES>();
    let (second, second_tail) = rest[..pairs].as_chunks_mut::<LANES>();
    let (cos, cos_tail) = cos.as_chunks::<LANES>();
    let (sin, sin_tail) = sin.as_chunks::<LANES>();
    for i in 0..first.len() {
        let (a, b) = (l.load(&first[i]), l.load(&second[i]));
        let (cos, sin) = (l.load(&cos[i]), l.load(&sin[i]));
        l.store(l.sub(l.mul(a, cos), l.mul(b, sin)), &mut first[i]);
        l.store(l.mul_add(b, cos, l.mul(a, sin)), &mut second[i]);
    }
    for i in 0..first_tail.len() {
        let (a, b) = (first_tail[i], second_tail[i]);
        first_tail[i] = a * cos_tail[i] - b * sin_tail[i];
        second_tail[i] = b * cos_tail[i] + a * sin_tail[i];
    }
}
