//! From sums of products to output rows: bias, residual, gate.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::activations::{TILE_STEP, place_in_tiles};
use super::args::Layer;
use super::job::{Finish, Job, Output, Sums};
use crate::cpu::{Element, Kernel, LANES, Lanes, Products, load_tail};
use crate::fresh::{Parts, ResultParts};
use crate::packed::formats::PANEL;
use crate::pointwise::gated::gated;

/// One panel of a job, for some rows.
pub(super) struct FinishPanel<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) panel: usize,
    pub(super) rows: Range<usize>,
    /// One per row.
    pub(super) sums: &'a [Sums],
    /// One per row, if the job is gated.
    pub(super) up: &'a [Sums],
}

impl Kernel for FinishPanel<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let n = self.job.layer.matrix.rows();
        let in_rows = |row, column| row * n + column;
        match &self.job.out {
            Output::Rows(ResultParts::F32(out)) => self.write(l, out, in_rows),
            Output::Rows(ResultParts::Bf16(out)) => self.write(l, out, in_rows),
            Output::Tiles { all, m } => {
                self.write(l, all, |row, column| place_in_tiles(*m, n, row, column));
            }
        }
    }
}

impl FinishPanel<'_> {
    /// Writes results to where `place` says that those of a row from a multiple of 32 columns on
    /// lie, up to the next one.
    #[inline(always)]
    fn write<L: Products, T: Element>(
        &self,
        l: L,
        all: &Parts<'_, MaybeUninit<T>>,
        place: impl Fn(usize, usize) -> usize,
    ) {
        let n = self.job.layer.matrix.rows();
        let panel = self.panel * PANEL..n.min((self.panel + 1) * PANEL);
        for (i, row) in self.rows.clone().enumerate() {
            for first in panel.clone().step_by(TILE_STEP) {
                let start = place(row, first);
                let count = TILE_STEP.min(panel.end - first);
                // SAFETY: this panel's columns of this row belong to this chunk alone.
                let out = unsafe { all.part(start..start + count) };
                for (v, out) in out.chunks_mut(LANES).enumerate() {
                    T::write(l, self.result(l, i, row, first + v * LANES, out.len()), out);
                }
            }
        }
    }

    /// The first `count` results of row `row`, the `i`-th of this call, from `column` on.
    #[inline(always)]
    fn result<L: Products>(&self, l: L, i: usize, row: usize, column: usize, count: usize) -> L::V {
        let Layer { matrix, bias } = self.job.layer;
        let v = column % PANEL / LANES;
        let sums = biased(l, l.load(&self.sums[i].0[v]), bias, column);
        match self.job.finish {
            Finish::Plain => sums,
            Finish::Add { rows, factor } => {
                let at = row * matrix.rows() + column;
                // Not fused: a factor of one must leave the sum as it is.
                l.add(load(l, &rows[at..at + count]), l.mul(sums, l.splat(factor)))
            }
            Finish::Gated { gating, up } => {
                let up = biased(l, l.load(&self.up[i].0[v]), up.bias, column);
                gated(l, gating, sums, up)
            }
        }
    }
}

/// `sums` plus the biases from `column` on. Without a bias no zero is added: -0 stays -0.
#[inline(always)]
fn biased<L: Lanes>(l: L, sums: L::V, bias: Option<&[f32]>, column: usize) -> L::V {
    match bias {
        Some(bias) => l.add(sums, load(l, &bias[column..bias.len().min(column + LANES)])),
        None => sums,
    }
}

#[inline(always)]
fn load<L: Lanes>(l: L, x: &[f32]) -> L::V {
    match x.first_chunk::<LANES>() {
        Some(whole) => l.load(whole),
        None => load_tail(l, x),
    }
}
