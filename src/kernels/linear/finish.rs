//! From sums of products to output rows: bias, residual, gate.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::activations::{TILE_STEP, place_in_tiles};
use super::ahead::LINE;
use super::args::Layer;
use super::job::{Finish, Job, Output, Sums};
use crate::cpu::{Element, Kernel, LANES, Lanes, Products, load_tail};
use crate::fresh::{Parts, ResultParts};
use crate::packed::formats::PANEL;
use crate::pointwise::Gating;
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

/// Rows between the one that is written and the one whose lines are asked for: a row of a panel is some lines of a row
/// of its tensor, which no cache foresees.
const ROWS_AHEAD: usize = 8;

/// Some results of a row.
struct At {
    /// Which of this call's rows.
    i: usize,
    row: usize,
    /// The first of them.
    column: usize,
    /// How many there are, up to sixteen.
    count: usize,
}

impl At {
    /// Which vector of its panel.
    #[inline(always)]
    fn vector(&self) -> usize {
        self.column % PANEL / LANES
    }
}

impl Kernel for FinishPanel<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let n = self.job.layer.matrix.rows();
        match self.job.finish {
            Finish::Plain => self.each(l, &Plain),
            Finish::Add { rows, factor } => self.each(l, &Add { rows, factor, n }),
            Finish::Gated { gating, up } => {
                self.each(l, &Gated { gating, up: self.up, bias: up.bias });
            }
        }
    }
}

/// What makes results of sums, one case of [`Finish`] each.
trait Combine {
    /// Asks for what the results of a row from `column` on will need.
    #[inline(always)]
    fn fetch<L: Lanes>(&self, _: L, _row: usize, _column: usize) {}

    /// Results of sums of products with their bias.
    fn combine<L: Lanes>(&self, l: L, at: At, sums: L::V) -> L::V;
}

struct Plain;

impl Combine for Plain {
    #[inline(always)]
    fn combine<L: Lanes>(&self, _: L, _: At, sums: L::V) -> L::V {
        sums
    }
}

struct Add<'a> {
    /// `[m, n]`
    rows: &'a [f32],
    factor: f32,
    n: usize,
}

impl Combine for Add<'_> {
    #[inline(always)]
    fn fetch<L: Lanes>(&self, l: L, row: usize, column: usize) {
        fetch_row(l, self.rows.as_ptr().wrapping_add(row * self.n + column));
    }

    #[inline(always)]
    fn combine<L: Lanes>(&self, l: L, at: At, sums: L::V) -> L::V {
        let start = at.row * self.n + at.column;
        // Not fused: a factor of one must leave the sum as it is.
        let scaled = l.mul(sums, l.splat(self.factor));
        l.add(load(l, &self.rows[start..start + at.count]), scaled)
    }
}

struct Gated<'a> {
    gating: Gating,
    /// One per row of the call.
    up: &'a [Sums],
    bias: Option<&'a [f32]>,
}

impl Combine for Gated<'_> {
    #[inline(always)]
    fn combine<L: Lanes>(&self, l: L, at: At, sums: L::V) -> L::V {
        let up = l.load(&self.up[at.i].0[at.vector()]);
        gated(l, self.gating, sums, biased(l, up, self.bias, at.column))
    }
}

impl FinishPanel<'_> {
    #[inline(always)]
    fn each<L: Products>(&self, l: L, with: &impl Combine) {
        let n = self.job.layer.matrix.rows();
        let in_rows = |row, column| row * n + column;
        match &self.job.out {
            Output::Rows(ResultParts::F32(out)) => self.write(l, with, out, in_rows),
            Output::Rows(ResultParts::Bf16(out)) => self.write(l, with, out, in_rows),
            Output::Tiles { all, m } => {
                self.write(l, with, all, |row, column| place_in_tiles(*m, n, row, column));
            }
        }
    }

    /// Writes results to where `place` says that those of a row from a multiple of 32 columns on
    /// lie, up to the next one.
    #[inline(always)]
    fn write<L: Products, T: Element>(
        &self,
        l: L,
        with: &impl Combine,
        all: &Parts<'_, MaybeUninit<T>>,
        place: impl Fn(usize, usize) -> usize,
    ) {
        let Layer { matrix, bias } = self.job.layer;
        let panel = self.panel * PANEL..matrix.rows().min((self.panel + 1) * PANEL);
        for (i, row) in self.rows.clone().enumerate() {
            if row + ROWS_AHEAD < self.rows.end {
                with.fetch(l, row + ROWS_AHEAD, panel.start);
                fetch_row(l, all.address(place(row + ROWS_AHEAD, panel.start)));
            }
            for first in panel.clone().step_by(TILE_STEP) {
                let start = place(row, first);
                let count = TILE_STEP.min(panel.end - first);
                // SAFETY: this panel's columns of this row belong to this chunk alone.
                let out = unsafe { all.part(start..start + count) };
                for (v, out) in out.chunks_mut(LANES).enumerate() {
                    let at = At { i, row, column: first + v * LANES, count: out.len() };
                    let sums = l.load(&self.sums[i].0[at.vector()]);
                    let sums = biased(l, sums, bias, at.column);
                    T::write(l, with.combine(l, at, sums), out);
                }
            }
        }
    }
}

/// Asks for the lines of a panel's elements of a row, from the first on.
#[inline(always)]
fn fetch_row<L: Lanes, T>(l: L, first: *const T) {
    for line in 0..(PANEL * size_of::<T>()).div_ceil(LINE) {
        l.prefetch(first.wrapping_byte_add(LINE * line));
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
