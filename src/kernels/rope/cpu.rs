//! Rotation of one head on the CPU.

use crate::cpu::{LANES, Lanes};

/// Rotates `head [D]` by `cos` and `sin`, each `[R]` with `2 R <= D`.
#[inline(always)]
pub(crate) fn rotate<L: Lanes>(l: L, head: &mut [f32], cos: &[f32], sin: &[f32]) {
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
