//! The two products of attention on register tiles: scores of some rows against a block's keys,
//! and sums of a block's values weighted for some rows.
//!
//! A score is summed along the head in ascending order, a sum over positions in ascending order,
//! however many rows and columns share a tile.

use crate::cache::KV_BLOCK;
use crate::cache::kv_element::Vector;
use crate::cpu::{Element, Kernel, LANES, Lanes, Products};

/// Vectors of a block's positions.
pub(super) const HALVES: usize = KV_BLOCK / LANES;

/// Rows that share a register tile, at most.
#[inline(always)]
pub(super) fn most_rows<L: Lanes>() -> usize {
    if L::WIDE { 8 } else { 3 }
}

/// Evaluates an expression with the constant that equals a number of rows.
macro_rules! with_rows {
    ($level:ty, $rows:expr, $count:ident => $call:expr) => {
        match $rows {
            1 => with_rows!(@ 1, $count => $call),
            2 => with_rows!(@ 2, $count => $call),
            3 => with_rows!(@ 3, $count => $call),
            4 if <$level>::WIDE => with_rows!(@ 4, $count => $call),
            5 if <$level>::WIDE => with_rows!(@ 5, $count => $call),
            6 if <$level>::WIDE => with_rows!(@ 6, $count => $call),
            7 if <$level>::WIDE => with_rows!(@ 7, $count => $call),
            8 if <$level>::WIDE => with_rows!(@ 8, $count => $call),
            other => unreachable!("{other} rows in a register tile"),
        }
    };
    (@ $value:literal, $count:ident => $call:expr) => {{
        const $count: usize = $value;
        $call
    }};
}
pub(super) use with_rows;

/// Rows of queries, `group` of which lie one behind the other.
#[derive(Clone, Copy)]
pub(super) struct QueryRows<'a> {
    /// Elements from the first row on.
    pub(super) q: &'a [f32],
    pub(super) group: usize,
    /// Elements from a group to the next one.
    pub(super) stride: usize,
    pub(super) head_dim: usize,
}

impl<'a> QueryRows<'a> {
    #[inline(always)]
    fn row(self, row: usize) -> &'a [f32] {
        let start = row / self.group * self.stride + row % self.group * self.head_dim;
        &self.q[start..start + self.head_dim]
    }
}

/// Scores of `rows` rows from `first` on against a block's keys `[head_dim][32]`. Those of one row
/// go to `out`, those of the next one to `out[stride..]`.
pub(super) struct Scores<'a, E> {
    pub(super) q: QueryRows<'a>,
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) keys: &'a [E],
    /// Prefetched meanwhile: the next block's keys and this one's values.
    pub(super) next: [&'a [E]; 2],
    pub(super) out: &'a mut [Vector],
    /// Vectors from a row's scores to the next row's.
    pub(super) stride: usize,
}

impl<E: Element> Kernel for Scores<'_, E> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        with_rows!(L, self.rows, R => {
            let mut q: [&[f32]; R] = [&[]; R];
            for (i, q) in q.iter_mut().enumerate() {
                *q = self.q.row(self.first + i);
            }
            let products = products::<L, E, R>(l, q, self.keys, self.next);
            for (r, halves) in products.into_iter().enumerate() {
                for (h, product) in halves.into_iter().enumerate() {
                    l.store(product, &mut self.out[r * self.stride + h]);
                }
            }
        });
    }
}

#[inline(always)]
fn products<L: Lanes, E: Element, const R: usize>(
    l: L,
    q: [&[f32]; R],
    keys: &[E],
    next: [&[E]; 2],
) -> [[L::V; HALVES]; R] {
    let (columns, _) = keys.as_chunks::<KV_BLOCK>();
    let mut queries = q;
    for q in &mut queries {
        *q = &q[..columns.len()];
    }
    let mut acc = [[l.splat(0.0); HALVES]; R];
    for (d, column) in columns.iter().enumerate() {
        l.prefetch(next[0].as_ptr().wrapping_add(d * KV_BLOCK));
        l.prefetch(next[1].as_ptr().wrapping_add(d * KV_BLOCK));
        let (halves, _) = column.as_chunks::<LANES>();
        let mut q = [l.splat(0.0); R];
        for r in 0..R {
            // SAFETY: every row of `queries` has one element per column.
            q[r] = l.splat(unsafe { *queries[r].get_unchecked(d) });
        }
        // One half after the other: on some levels registers hold no more beside the sums.
        for h in 0..HALVES {
            let key = E::load(l, &halves[h]);
            for r in 0..R {
                acc[r][h] = l.mul_add(q[r], key, acc[r][h]);
            }
        }
    }
    acc
}

/// Adds weighted values to the sums of `rows` rows: weights of row `r`, one a position, start at
/// `weights[r * weight_stride]`; values are rows of `stride`; sums of row `r` start at
/// `sums[r * sum_stride]` and have `columns` vectors.
pub(super) struct Weighted<'a, E> {
    pub(super) rows: usize,
    pub(super) weights: &'a [f32],
    pub(super) weight_stride: usize,
    pub(super) values: &'a [E],
    pub(super) stride: usize,
    pub(super) positions: usize,
    pub(super) columns: usize,
    pub(super) sums: &'a mut [Vector],
    pub(super) sum_stride: usize,
}

impl<E: Element> Kernel for Weighted<'_, E> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        with_rows!(L, self.rows, R => self.add_rows::<L, R>(l));
    }
}

impl<E: Element> Weighted<'_, E> {
    #[inline(always)]
    fn add_rows<L: Lanes, const R: usize>(self, l: L) {
        let Self { weights, weight_stride, values, stride, positions, columns, .. } = self;
        let mut rows: [&[f32]; R] = [&[]; R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = &weights[r * weight_stride..][..positions];
        }
        let values = &values[..positions * stride];
        let (sums, sum_stride) = (self.sums, self.sum_stride);
        let mut column = 0;
        // Few rows need more columns for the additions to overlap, as far as registers hold them.
        if R == 1 || R == 2 && L::WIDE {
            while column + 4 <= columns {
                let sums = &mut sums[column..];
                add_columns::<L, E, R, 4>(l, rows, values, stride, column, sums, sum_stride);
                column += 4;
            }
        }
        while column + 2 <= columns {
            let sums = &mut sums[column..];
            add_columns::<L, E, R, 2>(l, rows, values, stride, column, sums, sum_stride);
            column += 2;
        }
        if column < columns {
            let sums = &mut sums[column..];
            add_columns::<L, E, R, 1>(l, rows, values, stride, column, sums, sum_stride);
        }
    }
}

#[inline(always)]
fn add_columns<L: Lanes, E: Element, const R: usize, const C: usize>(
    l: L,
    weights: [&[f32]; R],
    values: &[E],
    stride: usize,
    first: usize,
    sums: &mut [Vector],
    sum_stride: usize,
) {
    let mut acc = [[l.splat(0.0); C]; R];
    for r in 0..R {
        for c in 0..C {
            acc[r][c] = l.load(&sums[r * sum_stride + c]);
        }
    }
    for (position, row) in values.chunks_exact(stride).enumerate() {
        let (row, _) = row.as_chunks::<LANES>();
        for c in 0..C {
            let value = E::load(l, &row[first + c]);
            for r in 0..R {
                acc[r][c] = l.mul_add(l.splat(weights[r][position]), value, acc[r][c]);
            }
        }
    }
    for r in 0..R {
        for c in 0..C {
            l.store(acc[r][c], &mut sums[r * sum_stride + c]);
        }
    }
}
