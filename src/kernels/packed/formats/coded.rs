//! What the kinds whose values are codes have in common: rows of bytes, one for each column.
//!
//! A cell keeps the codes, in as many bytes as the file; they become numbers as a kernel loads them.

use super::format::{Format, PANEL, halves};
use crate::cpu::{LANES, Products};

/// Sub-blocks of a block of 256.
pub(super) const SUBS: usize = 8;

/// Sixteen columns of row `row` of bytes, one for each column.
#[inline(always)]
pub(super) fn row(rows: &[u8], row: usize, v: usize) -> &[u8; LANES] {
    rows[PANEL * row + LANES * v..][..LANES].first_chunk().expect("sixteen bytes")
}

/// Writes bytes of one column, each to its row.
pub(super) fn put_rows(bytes: impl IntoIterator<Item = u8>, column: usize, rows: &mut [u8]) {
    for (byte, row) in bytes.into_iter().zip(rows.chunks_exact_mut(PANEL)) {
        row[column] = byte;
    }
}

/// The sub-blocks of a cell.
pub(super) fn subs<F: Format>(cell: &mut [u8]) -> impl Iterator<Item = (usize, &mut [u8])> {
    cell[F::HEAD..].chunks_exact_mut(F::SUB).enumerate()
}

/// Four bits of sixteen numbers as floats, of which each is plus `plus`.
#[inline(always)]
pub(super) fn scales_of<L: Products>(
    l: L,
    head: &[u8],
    four: [u8; LANES],
    v: usize,
    plus: f32,
) -> L::V {
    l.mul(halves(l, head, v), l.add(l.load_u8(&four), l.splat(plus)))
}

/// The scale at the start of a block.
pub(super) fn put_scale(block: &[u8], column: usize, cell: &mut [u8]) {
    cell[2 * column..][..2].copy_from_slice(&block[..2]);
}
