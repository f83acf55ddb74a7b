//! Rows of floats to panels: a transposition of 64 rows.

use super::super::cpu::{Kernel, LANES, Lanes, Level};
use super::formats::PANEL;

/// Moves words of four bytes: word `w` of row `r` (rows begin `stride` bytes apart in `from`) to
/// `to [words][64]`, column `r`.
pub(super) fn transpose_words(
    level: Level,
    words: usize,
    from: &[u8],
    stride: usize,
    to: &mut [u8],
) {
    level.run(TransposeWords { words, from, stride, to });
}

struct TransposeWords<'a> {
    words: usize,
    from: &'a [u8],
    stride: usize,
    to: &'a mut [u8],
}

impl Kernel for TransposeWords<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let rows = self.from.len() / self.stride.max(1);
        let whole = self.words / LANES * LANES;
        for row in (0..rows).step_by(LANES) {
            for word in (0..whole).step_by(LANES) {
                let mut tile = [l.splat(0.0); LANES];
                for (i, lanes) in tile.iter_mut().enumerate().take(rows - row) {
                    *lanes = l.load(&words_at(self.from, (row + i) * self.stride + 4 * word));
                }
                for (i, lanes) in l.transpose(tile).into_iter().enumerate() {
                    let mut column = [0.0; LANES];
                    l.store(lanes, &mut column);
                    put_words(&column, self.to, 4 * ((word + i) * PANEL + row));
                }
            }
        }
        for (row, from) in self.from.chunks_exact(self.stride.max(1)).enumerate() {
            for word in whole..self.words {
                let at = 4 * (word * PANEL + row);
                self.to[at..at + 4].copy_from_slice(&from[4 * word..4 * word + 4]);
            }
        }
    }
}

/// Sixteen words at any address. Vectors of floats only carry them: nothing is computed, so no
/// bit changes.
#[inline(always)]
fn words_at(from: &[u8], at: usize) -> [f32; LANES] {
    let bytes: &[u8; 4 * LANES] = from[at..].first_chunk().expect("a whole vector is left");
    // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
    unsafe { std::mem::transmute::<[u8; 4 * LANES], [f32; LANES]>(*bytes) }
}

#[inline(always)]
fn put_words(words: &[f32; LANES], to: &mut [u8], at: usize) {
    let to: &mut [u8; 4 * LANES] = to[at..].first_chunk_mut().expect("a panel has whole vectors");
    // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
    *to = unsafe { std::mem::transmute::<[f32; LANES], [u8; 4 * LANES]>(*words) };
}

/// The last half word of each row, as the lower half of word `word`.
pub(super) fn put_last_halves(word: usize, from: &[u8], stride: usize, to: &mut [u8]) {
    for (row, from) in from.chunks_exact(stride).enumerate() {
        let at = 4 * (word * PANEL + row);
        to[at..at + 2].copy_from_slice(&from[stride - 2..]);
    }
}

/// Moves halves of a word to `to [columns][64]`.
pub(super) fn transpose_halves(columns: usize, from: &[u8], to: &mut [u8]) {
    for (row, from) in from.chunks_exact((2 * columns).max(1)).enumerate() {
        for (column, half) in from.as_chunks::<2>().0.iter().enumerate() {
            to[2 * (column * PANEL + row)..][..2].copy_from_slice(half);
        }
    }
}
