//! One row back out of a panel, as f32: for embeddings that share the output head's matrix.

use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use sconce_blocks::Kind;

use super::super::cpu::{Kernel, LANES, Level, Products};
use super::formats::{Format, PANEL, SUB_BLOCK, Values, with_format};
use super::stored;

/// Writes column `column` of a panel of `kind` to `out [K]`.
pub(super) fn row(level: Level, kind: Kind, panel: &[u8], column: usize, out: &mut [f32]) {
    match kind {
        Kind::Ggml(GgmlDType::F32) => {
            for (out, words) in out.iter_mut().zip(panel.chunks_exact(4 * PANEL)) {
                *out = f32::from_le_bytes(*part(words, column));
            }
        }
        Kind::Ggml(GgmlDType::F16) => {
            for (out, halves) in out.iter_mut().zip(panel.chunks_exact(2 * PANEL)) {
                *out = f16::from_le_bytes(*part(halves, column)).to_f32();
            }
        }
        Kind::Ggml(GgmlDType::BF16) => {
            for (pair, words) in out.chunks_mut(2).zip(panel.chunks_exact(4 * PANEL)) {
                let halves: &[u8; 4] = part(words, column);
                for (out, half) in pair.iter_mut().zip(halves.as_chunks::<2>().0) {
                    *out = bf16::from_le_bytes(*half).to_f32();
                }
            }
        }
        _ => with_format!(kind, F => level.run(Column::<F> {
            panel, index: column, out, format: std::marker::PhantomData,
        }), {
            let bytes = out.len() / kind.block_size() * kind.type_size();
            stored::widen(kind, &panel[column * bytes..(column + 1) * bytes], out);
        }),
    }
}

/// Element `index` of an array of `N` bytes each.
fn part<const N: usize>(bytes: &[u8], index: usize) -> &[u8; N] {
    &bytes.as_chunks::<N>().0[index]
}

struct Column<'a, F> {
    panel: &'a [u8],
    index: usize,
    out: &'a mut [f32],
    format: std::marker::PhantomData<F>,
}

impl<F: Format> Kernel for Column<'_, F> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let (v, lane) = (self.index / LANES, self.index % LANES);
        let cells = self.panel.chunks_exact(F::CELL);
        for (cell, out) in cells.zip(self.out.chunks_exact_mut(F::SUBS * SUB_BLOCK)) {
            let (head, subs) = cell.split_at(F::HEAD);
            for (sub, out) in subs.chunks_exact(F::SUB).zip(out.chunks_exact_mut(SUB_BLOCK)) {
                let values = &sub[F::SCALES..];
                let min = lane_of(l, F::min(l, head, sub, v), lane);
                for group in 0..8 {
                    let half = if F::HALVES == 2 { group / 4 } else { 0 };
                    let scale = lane_of(l, F::scale(l, head, sub, half, v), lane);
                    let bytes = l.bytes_to_array(F::Values::load(l, values, group, v));
                    for (i, out) in out[4 * group..4 * group + 4].iter_mut().enumerate() {
                        let value = i32::from(bytes[4 * lane + i]) - F::OFFSET;
                        #[expect(clippy::cast_precision_loss, reason = "eight bits")]
                        let product = scale * value as f32;
                        *out = if F::MINS { product + min } else { product };
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn lane_of<L: Products>(l: L, v: L::V, lane: usize) -> f32 {
    let mut lanes = [0.0; LANES];
    l.store(v, &mut lanes);
    lanes[lane]
}
