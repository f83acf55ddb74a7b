//! Panels of floats times activation rows.

#![allow(
    clippy::needless_range_loop,
    clippy::many_single_char_names,
    reason = "tiles are small arrays that live in registers, and are indexed as in the formula"
)]

use half::{bf16, f16};

use super::ahead::{Ahead, PART};
use super::job::Sums;
use crate::cpu::{Element, Kernel, LANES, Products};
use crate::packed::formats::PANEL;

/// Rows from which on a part of a panel is widened to f32 once, and not by each tile.
pub(super) const WIDEN_FROM: usize = 6;
/// Steps between which nothing is fetched ahead: with the bookkeeping of it at each step, rows' addresses don't stay
/// in registers, which takes longer than products of 256-bit vectors do.
const UNROLLED: usize = 4;
/// Elements of K in a part that is widened: 16 KiB of f32.
pub(super) const WIDENED: usize = PART / size_of::<[f32; PANEL]>();

/// What is read at one step along K: weights of 64 columns and an activation to go with them.
pub(super) trait Step {
    /// One column's weight.
    type Weight: Copy;
    /// One row's activation.
    type Activation: Copy;
    type Loaded<L: Products>: Copy;
    type Splat<L: Products>: Copy;
    /// Elements of K in a step.
    const ELEMENTS: usize = 1;
    /// Whether widened weights and f32 activations give the same sums, sooner where rows are many.
    const WIDENS: bool = false;
    /// The activations as `ELEMENTS` f32 each, where `WIDENS`.
    fn floats(_: &[Self::Activation]) -> &[f32] {
        &[]
    }
    /// The weights of a step as `ELEMENTS` rows of f32, where `WIDENS`.
    fn widen<L: Products>(_: L, _: &[Self::Weight; PANEL], _: &mut [[f32; PANEL]]) {}
    fn load<L: Products>(l: L, w: &[Self::Weight; LANES]) -> Self::Loaded<L>;
    fn splat<L: Products>(l: L, x: Self::Activation) -> Self::Splat<L>;
    fn add<L: Products>(l: L, acc: L::V, w: Self::Loaded<L>, x: Self::Splat<L>) -> L::V;
}

/// bf16 by two, both sides rounded.
pub(super) struct Pairs;
/// bf16 weights by two, activations rounded to bf16 and widened again.
pub(super) struct WidePairs;
/// f32 or f16 weights, f32 activations.
pub(super) struct Single<E>(std::marker::PhantomData<E>);

impl Step for Pairs {
    type Weight = [bf16; 2];
    type Activation = [bf16; 2];
    type Loaded<L: Products> = L::Pairs;
    type Splat<L: Products> = L::Pairs;

    #[inline(always)]
    fn load<L: Products>(l: L, w: &[[bf16; 2]; LANES]) -> L::Pairs {
        l.load_pairs(w)
    }
    #[inline(always)]
    fn splat<L: Products>(l: L, x: [bf16; 2]) -> L::Pairs {
        l.splat_pair(x)
    }
    #[inline(always)]
    fn add<L: Products>(l: L, acc: L::V, w: L::Pairs, x: L::Pairs) -> L::V {
        l.dot_pairs(acc, w, x)
    }
}

impl Step for WidePairs {
    type Weight = [bf16; 2];
    type Activation = [f32; 2];
    type Loaded<L: Products> = [L::V; 2];
    type Splat<L: Products> = [L::V; 2];
    const ELEMENTS: usize = 2;
    const WIDENS: bool = true;

    #[inline(always)]
    fn load<L: Products>(l: L, w: &[[bf16; 2]; LANES]) -> [L::V; 2] {
        l.widen_pairs(w)
    }
    #[inline(always)]
    fn splat<L: Products>(l: L, x: [f32; 2]) -> [L::V; 2] {
        [l.splat(x[0]), l.splat(x[1])]
    }
    #[inline(always)]
    fn add<L: Products>(l: L, acc: L::V, w: [L::V; 2], x: [L::V; 2]) -> L::V {
        l.mul_add(w[1], x[1], l.mul_add(w[0], x[0], acc))
    }
    fn floats(x: &[[f32; 2]]) -> &[f32] {
        x.as_flattened()
    }
    #[inline(always)]
    fn widen<L: Products>(l: L, w: &[[bf16; 2]; PANEL], out: &mut [[f32; PANEL]]) {
        for (v, w) in w.as_chunks().0.iter().enumerate() {
            for (half, out) in l.widen_pairs(w).into_iter().zip(&mut *out) {
                l.store(half, &mut out.as_chunks_mut().0[v]);
            }
        }
    }
}

impl<E: Element> Step for Single<E> {
    type Weight = E;
    type Activation = f32;
    type Loaded<L: Products> = L::V;
    type Splat<L: Products> = L::V;
    const WIDENS: bool = size_of::<E>() < size_of::<f32>();

    #[inline(always)]
    fn load<L: Products>(l: L, w: &[E; LANES]) -> L::V {
        E::load(l, w)
    }
    #[inline(always)]
    fn splat<L: Products>(l: L, x: f32) -> L::V {
        l.splat(x)
    }
    #[inline(always)]
    fn add<L: Products>(l: L, acc: L::V, w: L::V, x: L::V) -> L::V {
        l.mul_add(w, x, acc)
    }
    fn floats(x: &[f32]) -> &[f32] {
        x
    }
    #[inline(always)]
    fn widen<L: Products>(l: L, w: &[E; PANEL], out: &mut [[f32; PANEL]]) {
        for (w, out) in w.as_chunks().0.iter().zip(out[0].as_chunks_mut().0) {
            l.store(E::load(l, w), out);
        }
    }
}

pub(super) type SingleF32 = Single<f32>;
pub(super) type SingleF16 = Single<f16>;

/// One panel times all rows of `x [m][steps]`, to `sums`.
pub(super) struct DensePanel<'a, S: Step> {
    pub(super) x: &'a [S::Activation],
    pub(super) steps: usize,
    pub(super) panel: &'a [u8],
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
}

impl<S: Step> Kernel for DensePanel<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let weights = self.panel.as_ptr().cast::<[S::Weight; PANEL]>();
        assert!(
            weights.is_aligned()
                && self.panel.len() >= self.steps * size_of::<[S::Weight; PANEL]>()
        );
        assert_eq!(self.x.len(), self.sums.len() * self.steps);
        // SAFETY: aligned and long enough (checked above); weights are numbers of which every bit
        // pattern is valid.
        let weights = unsafe { std::slice::from_raw_parts(weights, self.steps) };
        if S::WIDENS && self.sums.len() >= WIDEN_FROM {
            self.run_widened(l, weights);
        } else {
            self.run_stored(l, weights);
        }
    }
}

impl<S: Step> DensePanel<'_, S> {
    #[inline(always)]
    fn run_stored<L: Products>(self, l: L, weights: &[[S::Weight; PANEL]]) {
        let step = size_of::<[S::Weight; PANEL]>();
        for (part, weights) in weights.chunks((PART / step).max(1)).enumerate() {
            let first = part * (PART / step).max(1);
            let ahead = Ahead::of(self.after(first + weights.len()), self.sums.len(), step);
            let (x, steps) = (self.x, self.steps);
            Part::<S> { x, steps, first, weights, ahead }.run(l, self.sums);
        }
    }

    /// Each part of the panel is widened to f32 before the rows meet it.
    #[inline(always)]
    fn run_widened<L: Products>(self, l: L, weights: &[[S::Weight; PANEL]]) {
        let mut wide = [[0.0; PANEL]; WIDENED];
        let (x, steps, part) = (self.x, self.steps, WIDENED / S::ELEMENTS);
        for (index, weights) in weights.chunks(part).enumerate() {
            let first = index * part;
            let next = self.after(first + weights.len());
            let step = size_of::<[S::Weight; PANEL]>() / S::ELEMENTS;
            let ahead = Ahead::of(next, self.sums.len(), step);
            Part::<S> { x, steps, first, weights, ahead }.widened(l, &mut wide).run(l, self.sums);
        }
    }

    /// What is read after the steps before `behind`.
    fn after(&self, behind: usize) -> &[u8] {
        let step = size_of::<[S::Weight; PANEL]>();
        let rest = &self.panel[behind * step..self.steps * step];
        if rest.is_empty() { self.next } else { rest }
    }
}

/// Some steps of K, which all rows meet before any of them goes on.
pub(super) struct Part<'a, S: Step> {
    /// `[m][steps]`
    pub(super) x: &'a [S::Activation],
    /// Of all parts.
    pub(super) steps: usize,
    /// Steps before this part.
    pub(super) first: usize,
    pub(super) weights: &'a [[S::Weight; PANEL]],
    /// Lines to fetch at each step, of which a widened part has one for each element of K.
    pub(super) ahead: Ahead,
}

impl<'a, S: Step> Part<'a, S> {
    /// The same part in f32.
    #[inline(always)]
    pub(super) fn widened<'w, L: Products>(
        self,
        l: L,
        wide: &'w mut [[f32; PANEL]; WIDENED],
    ) -> Part<'w, SingleF32>
    where
        'a: 'w,
    {
        let wide = &mut wide[..self.weights.len() * S::ELEMENTS];
        for (w, wide) in self.weights.iter().zip(wide.chunks_exact_mut(S::ELEMENTS)) {
            S::widen(l, w, wide);
        }
        let (steps, first) = (self.steps * S::ELEMENTS, self.first * S::ELEMENTS);
        Part { x: S::floats(self.x), steps, first, weights: wide, ahead: self.ahead }
    }

    #[inline(always)]
    pub(super) fn run<L: Products>(mut self, l: L, sums: &mut [Sums]) {
        let mut row = 0;
        while row < sums.len() {
            let left = sums.len() - row;
            row += if L::WIDE {
                match left {
                    6.. => self.tile::<L, 6, 4>(l, row, sums),
                    4.. => self.tile::<L, 4, 4>(l, row, sums),
                    2.. => self.tile::<L, 2, 4>(l, row, sums),
                    _ => self.tile::<L, 1, 4>(l, row, sums),
                }
            } else {
                match left {
                    6.. => self.tile::<L, 6, 1>(l, row, sums),
                    4.. => self.tile::<L, 4, 1>(l, row, sums),
                    2.. => self.tile::<L, 2, 2>(l, row, sums),
                    _ => self.tile::<L, 1, 4>(l, row, sums),
                }
            };
        }
    }

    /// `M` rows against all 64 columns, `V` vectors of them at a time. Each lane goes on with the
    /// chain of additions that the steps before left in `sums`. Returns `M`.
    #[inline(always)]
    fn tile<L: Products, const M: usize, const V: usize>(
        &mut self,
        l: L,
        row: usize,
        sums: &mut [Sums],
    ) -> usize {
        let mut x: [&[S::Activation]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            let start = (row + i) * self.steps + self.first;
            *x = &self.x[start..][..self.weights.len()];
        }
        let lines = self.ahead.share(M, V);
        for v in (0..PANEL / LANES).step_by(V) {
            let mut acc = [[l.splat(0.0); V]; M];
            if self.first > 0 {
                for i in 0..M {
                    for j in 0..V {
                        acc[i][j] = l.load(&sums[row + i].0[v + j]);
                    }
                }
            }
            let (unrolled, rest) = self.weights.as_chunks::<UNROLLED>();
            for (i, steps) in unrolled.iter().enumerate() {
                self.ahead.fetch(l, UNROLLED * lines, M);
                for j in 0..UNROLLED {
                    // SAFETY: every slice of `x` has one element per step.
                    acc = unsafe {
                        add_step::<S, L, M, V>(l, &steps[j], v, &x, UNROLLED * i + j, acc)
                    };
                }
            }
            for (i, weights) in rest.iter().enumerate() {
                self.ahead.fetch(l, lines, M);
                let step = self.weights.len() - rest.len() + i;
                // SAFETY: as above.
                acc = unsafe { add_step::<S, L, M, V>(l, weights, v, &x, step, acc) };
            }
            for i in 0..M {
                for j in 0..V {
                    l.store(acc[i][j], &mut sums[row + i].0[v + j]);
                }
            }
        }
        M
    }
}

/// `acc` and the products of one step, whose activations are those at `step` of each row of `x`.
///
/// # Safety
///
/// Each row of `x` has more than `step` elements.
#[inline(always)]
unsafe fn add_step<S: Step, L: Products, const M: usize, const V: usize>(
    l: L,
    weights: &[S::Weight; PANEL],
    v: usize,
    x: &[&[S::Activation]; M],
    step: usize,
    mut acc: [[L::V; V]; M],
) -> [[L::V; V]; M] {
    let columns: &[[S::Weight; LANES]] = weights.as_chunks().0;
    let mut w = [S::load(l, &columns[v]); V];
    for j in 1..V {
        w[j] = S::load(l, &columns[v + j]);
    }
    for i in 0..M {
        // SAFETY: the caller's promise.
        let x = S::splat(l, unsafe { *x[i].get_unchecked(step) });
        for j in 0..V {
            acc[i][j] = S::add(l, acc[i][j], w[j], x);
        }
    }
    acc
}
