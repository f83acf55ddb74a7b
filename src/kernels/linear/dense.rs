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

/// What is read at one step along K: weights of 64 columns and an activation to go with them.
pub(super) trait Step {
    /// One column's weight.
    type Weight: Copy;
    /// One row's activation.
    type Activation: Copy;
    type Loaded<L: Products>: Copy;
    type Splat<L: Products>: Copy;
    fn load<L: Products>(l: L, w: &[Self::Weight; LANES]) -> Self::Loaded<L>;
    fn splat<L: Products>(l: L, x: Self::Activation) -> Self::Splat<L>;
    fn add<L: Products>(l: L, acc: L::V, w: Self::Loaded<L>, x: Self::Splat<L>) -> L::V;
}

/// bf16 by two, both sides rounded.
pub(super) struct Pairs;
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

impl<E: Element> Step for Single<E> {
    type Weight = E;
    type Activation = f32;
    type Loaded<L: Products> = L::V;
    type Splat<L: Products> = L::V;

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
    fn run<L: Products>(mut self, l: L) {
        let weights = self.panel.as_ptr().cast::<[S::Weight; PANEL]>();
        assert!(
            weights.is_aligned()
                && self.panel.len() >= self.steps * size_of::<[S::Weight; PANEL]>()
        );
        assert_eq!(self.x.len(), self.sums.len() * self.steps);
        // SAFETY: aligned and long enough (checked above); weights are numbers of which every bit
        // pattern is valid.
        let weights = unsafe { std::slice::from_raw_parts(weights, self.steps) };
        let step = size_of::<[S::Weight; PANEL]>();
        let part = (PART / step).max(1);
        for first in (0..self.steps).step_by(part) {
            let behind = self.steps.min(first + part);
            let next = self.panel.get(behind * step..self.steps * step);
            let next = next.filter(|next| !next.is_empty()).unwrap_or(self.next);
            let ahead = Ahead::of(next, self.sums.len(), step);
            self.part(l, first, &weights[first..behind], ahead);
        }
    }
}

impl<S: Step> DensePanel<'_, S> {
    /// All rows against some steps of K.
    #[inline(always)]
    fn part<L: Products>(
        &mut self,
        l: L,
        first: usize,
        weights: &[[S::Weight; PANEL]],
        mut ahead: Ahead,
    ) {
        let m = self.sums.len();
        let mut row = 0;
        while row < m {
            let left = m - row;
            row += if L::WIDE {
                match left {
                    6.. => self.tile::<L, 6, 4>(l, row, first, weights, &mut ahead),
                    4.. => self.tile::<L, 4, 4>(l, row, first, weights, &mut ahead),
                    2.. => self.tile::<L, 2, 4>(l, row, first, weights, &mut ahead),
                    _ => self.tile::<L, 1, 4>(l, row, first, weights, &mut ahead),
                }
            } else {
                match left {
                    4.. => self.tile::<L, 4, 1>(l, row, first, weights, &mut ahead),
                    2.. => self.tile::<L, 2, 2>(l, row, first, weights, &mut ahead),
                    _ => self.tile::<L, 1, 4>(l, row, first, weights, &mut ahead),
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
        first: usize,
        weights: &[[S::Weight; PANEL]],
        ahead: &mut Ahead,
    ) -> usize {
        let x: [&[S::Activation]; M] = {
            let mut x: [&[S::Activation]; M] = [&[]; M];
            for (i, x) in x.iter_mut().enumerate() {
                *x = &self.x[(row + i) * self.steps + first..][..weights.len()];
            }
            x
        };
        let lines = ahead.share(M, V);
        for v in (0..PANEL / LANES).step_by(V) {
            let mut acc = [[l.splat(0.0); V]; M];
            if first > 0 {
                for i in 0..M {
                    for j in 0..V {
                        acc[i][j] = l.load(&self.sums[row + i].0[v + j]);
                    }
                }
            }
            for (step, columns) in weights.iter().enumerate() {
                let columns: &[[S::Weight; LANES]] = columns.as_chunks().0;
                let mut w = [S::load(l, &columns[v]); V];
                for j in 1..V {
                    w[j] = S::load(l, &columns[v + j]);
                }
                ahead.fetch(l, lines);
                for i in 0..M {
                    // SAFETY: every slice of `x` has one element per step.
                    let x = S::splat(l, unsafe { *x[i].get_unchecked(step) });
                    for j in 0..V {
                        acc[i][j] = S::add(l, acc[i][j], w[j], x);
                    }
                }
            }
            for i in 0..M {
                for j in 0..V {
                    l.store(acc[i][j], &mut self.sums[row + i].0[v + j]);
                }
            }
        }
        M
    }
}
