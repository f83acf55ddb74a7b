//! Vectors that may be shorter than a register, and the softplus.

use std::mem::MaybeUninit;

use crate::cpu::{LANES, Lanes, load_tail};

/// Loads up to sixteen floats; zeros behind them.
#[inline(always)]
pub(super) fn load_some<L: Lanes>(l: L, x: &[f32]) -> L::V {
    match x.first_chunk() {
        Some(whole) => l.load(whole),
        None => load_tail(l, x),
    }
}

/// Writes the first lanes, as many as `out` is long.
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

/// Stores the first lanes, as many as `out` is long.
#[inline(always)]
pub(super) fn store_some<L: Lanes>(l: L, v: L::V, out: &mut [f32]) {
    if let Some(whole) = out.first_chunk_mut() {
        return l.store(v, whole);
    }
    let mut lanes = [0.0; LANES];
    l.store(v, &mut lanes);
    for (x, out) in lanes.into_iter().zip(out) {
        *out = x;
    }
}

/// From here on `softplus(x)` is `x` in f32.
const SOFTPLUS_END: f32 = 20.0;

/// `ln(1 + e^x)`
pub(super) fn softplus(x: f32) -> f32 {
    if x > SOFTPLUS_END { x } else { x.exp().ln_1p() }
}
