//! Vectors that may be shorter than a register.

use std::mem::MaybeUninit;

use super::super::cpu::{LANES, Lanes, load_tail};

/// Up to sixteen floats; zeros behind them.
#[inline(always)]
pub(super) fn load_some<L: Lanes>(l: L, x: &[f32]) -> L::V {
    match x.first_chunk() {
        Some(whole) => l.load(whole),
        None => load_tail(l, x),
    }
}

/// The first lanes, as many as `out` has places.
#[inline(always)]
pub(super) fn write_some<L: Lanes>(l: L, v: L::V, out: &mut [MaybeUninit<f32>]) {
    if let Some(whole) = out.first_chunk_mut() {
        return l.write(v, whole);
    }
    let mut lanes = [0.0; LANES];
    l.store(v, &mut lanes);
    for (x, out) in lanes.into_iter().zip(out) {
        out.write(x);
    }
}
