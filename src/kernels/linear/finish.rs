//! From sums of products to output rows: bias, residual, gate.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::job::{Finish, Job, Sums};
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
        match &self.job.out {
            ResultParts::F32(out) => self.write(l, out),
            ResultParts::Bf16(out) => self.write(l, out),
        }
    }
}

impl FinishPanel<'_> {
    #[inline(always)]
    fn write<L: Products, T: Element>(&self, l: L, all: &Parts<'_, MaybeUninit<T>>) {
        let n = self.job.layer.matrix.rows();
        let first = self.panel * PANEL;
        let count = PANEL.min(n - first);
        for (i, row) in self.rows.clone().enumerate() {
            let start = row * n + first;
            // SAFETY: this panel's columns of this row belong to this chunk alone.
            let out = unsafe { all.part(start..start + count) };
            for (v, out) in out.chunks_mut(LANES).enumerate() {
                let column = first + v * LANES;
                let sums = biased(l, l.load(&self.sums[i].0[v]), self.job.layer.bias, column);
                let result = match self.job.finish {
                    Finish::Plain => sums,
                    Finish::Add { rows, factor } => {
                        let at = start + v * LANES;
                        // Not fused: a factor of one must leave the sum as it is.
                        let scaled = l.mul(sums, l.splat(factor));
                        l.add(load(l, &rows[at..at + out.len()]), scaled)
                    }
                    Finish::Gated { gating, up } => {
                        let up = biased(l, l.load(&self.up[i].0[v]), up.bias, column);
                        gated(l, gating, sums, up)
                    }
                };
                T::write(l, result, out);
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
