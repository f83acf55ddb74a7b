//! Rows rounded to bf16: in pairs, and in tiles.

use half::bf16;

use crate::cpu::{Element, Kernel, LANES, Products, load_tail};

/// Rows of a block of tiles.
pub(crate) const TILE_ROWS: usize = 16;
/// Elements of K in a row of a tile of bf16.
pub(crate) const TILE_STEP: usize = 32;

/// Where the elements of a row from a multiple of 32 columns on lie in tiles of `m` rows as wide as
/// `width`, up to the next one: see [`Activations::tiles`].
#[inline(always)]
pub(crate) fn place_in_tiles(m: usize, width: usize, row: usize, column: usize) -> usize {
    let (block, within) = (row - row % TILE_ROWS, row % TILE_ROWS);
    let rows = TILE_ROWS.min(m - block);
    block * width + (column / TILE_STEP * rows + within) * TILE_STEP
}

pub(super) struct RoundRow<'a> {
    pub(super) row: &'a [f32],
    pub(super) out: &'a mut [[bf16; 2]],
}

impl Kernel for RoundRow<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let (row, tail) = self.row.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_flattened_mut().as_chunks_mut::<LANES>();
        for (row, out) in row.iter().zip(&mut *out) {
            *out = l.narrow_bf16(l.load(row));
        }
        let last = l.narrow_bf16(load_tail(l, tail));
        match out.get_mut(row.len()) {
            // Fifteen elements and the zero that fills them up.
            Some(whole) => *whole = last,
            None => out_tail.copy_from_slice(&last[..out_tail.len()]),
        }
    }
}

pub(super) struct RoundRowWide<'a> {
    pub(super) row: &'a [f32],
    pub(super) out: &'a mut [[f32; 2]],
}

impl Kernel for RoundRowWide<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let (row, tail) = self.row.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_flattened_mut().as_chunks_mut::<LANES>();
        for (row, out) in row.iter().zip(&mut *out) {
            l.store(l.load_bf16(&l.narrow_bf16(l.load(row))), out);
        }
        let mut last = [0.0; LANES];
        l.store(l.load_bf16(&l.narrow_bf16(load_tail(l, tail))), &mut last);
        match out.get_mut(row.len()) {
            // Fifteen elements and the zero that fills them up.
            Some(whole) => *whole = last,
            None => out_tail.copy_from_slice(&last[..out_tail.len()]),
        }
    }
}

/// Rows of one block of tiles, rounded if they aren't yet.
pub(super) struct CutTiles<'a, T> {
    /// `[rows][k]`
    pub(super) x: &'a [T],
    pub(super) k: usize,
    /// `[k / 32][rows][32]`
    pub(super) out: &'a mut [bf16],
}

impl<T: Element> Kernel for CutTiles<'_, T> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let rows = self.x.len() / self.k.max(1);
        let width = self.k.next_multiple_of(TILE_STEP);
        for (r, row) in self.x.chunks_exact(self.k.max(1)).enumerate() {
            for (step, row) in row.chunks(TILE_STEP).enumerate() {
                let place = place_in_tiles(rows, width, r, step * TILE_STEP);
                let out = &mut self.out[place..][..TILE_STEP];
                for (v, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    let row = row.get(v * LANES..).unwrap_or_default();
                    let lanes = match row.first_chunk::<LANES>() {
                        Some(whole) => T::load(l, whole),
                        None => load_tail(l, row),
                    };
                    *out = l.narrow_bf16(lanes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::random::Random;

    #[test]
    fn an_odd_row_of_pairs_ends_with_zero() {
        for k in [1, 15, 16, 31, 33] {
            let row: Vec<f32> = Random::new(4).floats(2 * k);
            for level in Level::tested() {
                let mut activations = Activations::new(level, Rows::Floats(&row), 2, k);
                activations.prepare(Form::Pairs);
                activations.prepare(Form::WidePairs);
                let width = k.div_ceil(2);
                for (i, row) in row.chunks(k).enumerate() {
                    let pairs = &activations.pairs()[i * width..(i + 1) * width];
                    let mut expected: Vec<bf16> = row.iter().map(|x| bf16::from_f32(*x)).collect();
                    expected.resize(2 * width, bf16::ZERO);
                    assert_eq!(pairs.as_flattened(), expected);
                    let wide = &activations.wide_pairs()[i * width..(i + 1) * width];
                    let expected: Vec<f32> = expected.into_iter().map(bf16::to_f32).collect();
                    assert_eq!(wide.as_flattened(), expected);
                }
            }
        }
    }

    #[test]
    fn tiles_hold_blocks_of_rows_step_by_step() {
        let (m, k) = (19, 33);
        let row: Vec<f32> = Random::new(5).floats(m * k);
        for level in Level::tested() {
            let mut activations = Activations::new(level, Rows::Floats(&row), m, k);
            activations.prepare(Form::Tiles);
            let tiles = activations.tiles();
            assert_eq!(tiles.len(), m * 2 * TILE_STEP);
            for r in 0..m {
                let (block, r_in) = (r / TILE_ROWS, r % TILE_ROWS);
                let rows = (m - block * TILE_ROWS).min(TILE_ROWS);
                for i in 0..2 * TILE_STEP {
                    let at = block * TILE_ROWS * 2 * TILE_STEP
                        + (i / TILE_STEP * rows + r_in) * TILE_STEP
                        + i % TILE_STEP;
                    let expected = if i < k { bf16::from_f32(row[r * k + i]) } else { bf16::ZERO };
                    assert_eq!(tiles[at], expected, "row {r}, element {i}");
                }
            }
        }
    }
}
