//! What is known of a row after some spans: weighted values, the largest score and the sum of
//! weights; how spans are merged, and the way to the output.

use std::mem::MaybeUninit;

use super::args::{AttentionParams, QueryPositions, Visible};
use crate::cache::kv_element::Vector;
use crate::cpu::{Element, Kernel, LANES, Lanes, Products, math};
use crate::fresh::{ResultPart, ResultParts};

/// A row's record: as many vectors of weighted values as a value has, and one more that starts
/// with the largest score and the sum of weights.
#[derive(Clone, Copy)]
pub(super) struct Record {
    columns: usize,
}

impl Record {
    #[inline(always)]
    pub(super) fn new(value_dim: usize) -> Self {
        Self { columns: value_dim.div_ceil(LANES) }
    }

    /// Vectors of weighted values.
    #[inline(always)]
    pub(super) fn columns(self) -> usize {
        self.columns
    }

    /// Vectors in all.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.columns + 1
    }

    #[inline(always)]
    pub(super) fn row(self, records: &[Vector], row: usize) -> &[Vector] {
        &records[row * self.len()..(row + 1) * self.len()]
    }

    #[inline(always)]
    pub(super) fn row_mut(self, records: &mut [Vector], row: usize) -> &mut [Vector] {
        &mut records[row * self.len()..(row + 1) * self.len()]
    }

    /// Stores the largest score and the sum of weights.
    #[inline(always)]
    pub(super) fn set(self, record: &mut [Vector], largest: f32, total: f32) {
        let last = &mut record[self.columns];
        (last[0], last[1]) = (largest, total);
    }

    /// Adds what a row found in `span` to what it found in the spans before. All queries merge
    /// their spans one by one in ascending order, from the first that they see.
    #[inline(always)]
    pub(super) fn merge<L: Lanes>(
        self,
        l: L,
        visible: Visible,
        span: usize,
        here: &[Vector],
        all: &mut [Vector],
    ) {
        let spans = visible.spans();
        if span == spans.start {
            all.copy_from_slice(here);
        }
        if span <= spans.start || span >= spans.end {
            return;
        }
        let (before, now) = (all[self.columns], here[self.columns]);
        let largest = if now[0] > before[0] { now[0] } else { before[0] };
        let mut factors = Vector::default();
        (factors[0], factors[1]) = (before[0] - largest, now[0] - largest);
        let lanes = math::exp(l, l.load(&factors));
        l.store(lanes, &mut factors);
        let (old, new) = (l.splat(factors[0]), l.splat(factors[1]));
        for (all, here) in all.iter_mut().zip(here) {
            l.store(l.mul_add(l.load(here), new, l.mul(l.load(all), old)), all);
        }
        all[self.columns][0] = largest;
    }
}

/// Where the rows of a tile go.
#[derive(Clone, Copy)]
pub(super) struct Output<'a> {
    pub(super) out: &'a ResultParts<'a>,
    pub(super) first_row: usize,
    pub(super) heads: usize,
    pub(super) group: usize,
    pub(super) kv_head: usize,
    pub(super) value_dim: usize,
    pub(super) sinks: Option<&'a [f32]>,
}

impl Output<'_> {
    /// Divides weighted values by the sum of weights and writes them to the output.
    #[inline(always)]
    pub(super) fn write<L: Lanes>(&self, l: L, row: usize, record: &[Vector]) {
        let head = self.kv_head * self.group + row % self.group;
        let start = ((self.first_row + row / self.group) * self.heads + head) * self.value_dim;
        let range = start..start + self.value_dim;
        // SAFETY: a query row and head are written by one tile only, once; the part lives here.
        match unsafe { self.out.part(range) } {
            ResultPart::F32(out) => self.write_row(l, head, record, out),
            ResultPart::Bf16(out) => self.write_row(l, head, record, out),
        }
    }

    #[inline(always)]
    fn write_row<L: Lanes, T: Element>(
        &self,
        l: L,
        head: usize,
        record: &[Vector],
        out: &mut [MaybeUninit<T>],
    ) {
        let columns = record.len() - 1;
        let (factor, total) = match self.sinks {
            None => (None, record[columns][1]),
            Some(sinks) => with_sink(l, record[columns][0], record[columns][1], sinks[head]),
        };
        // A query that sees nothing finds zeros.
        let total = l.splat(if total == 0.0 { 1.0 } else { total });
        for (out, sum) in out.chunks_mut(LANES).zip(record) {
            let mut sum = l.load(sum);
            if let Some(factor) = factor {
                sum = l.mul(sum, l.splat(factor));
            }
            T::write(l, l.div(sum, total), out);
        }
    }
}

/// The factor of weighted values and the sum of weights once there is one more score.
#[inline(always)]
fn with_sink<L: Lanes>(l: L, largest: f32, total: f32, sink: f32) -> (Option<f32>, f32) {
    let above = if sink > largest { sink } else { largest };
    let mut weights = Vector::default();
    (weights[0], weights[1]) = (largest - above, sink - above);
    let lanes = math::exp(l, l.load(&weights));
    l.store(lanes, &mut weights);
    (Some(weights[0]), total * weights[0] + weights[1])
}

/// Rows whose spans lie in records of their own: merges them and writes the output.
pub(super) struct Joined<'a> {
    /// `[spans][rows]`
    pub(super) records: &'a [Vector],
    pub(super) first_span: usize,
    /// Positions of the queries.
    pub(super) positions: QueryPositions<'a>,
    /// Tokens of their sequence.
    pub(super) context: usize,
    pub(super) params: AttentionParams,
    pub(super) output: Output<'a>,
}

impl Kernel for Joined<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let record = Record::new(self.output.value_dim);
        let rows = self.positions.len() * self.output.group;
        let mut all = vec![Vector::default(); record.len()];
        for row in 0..rows {
            let query = row / self.output.group;
            let visible = self.positions.visible(query, self.context, self.params);
            for (i, here) in self.records.chunks_exact(rows * record.len()).enumerate() {
                record.merge(l, visible, self.first_span + i, record.row(here, row), &mut all);
            }
            self.output.write(l, row, &all);
        }
    }
}
