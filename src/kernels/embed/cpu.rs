//! Rows of a packed matrix on the CPU.

use candle_core::{Device, Result, Tensor, bail};

use crate::cpu::Level;
use crate::fresh::{Parts, filled};
use crate::packed::PackedMatrix;
use crate::pool;

/// Rows of one chunk.
const CHUNK_ROWS: usize = 8;

/// Rows of `matrix`, widened by the kernels of a level.
pub(super) fn embed(level: Level, matrix: &PackedMatrix, ids: &[u32]) -> Result<Tensor> {
    let (rows, width) = (matrix.rows(), matrix.columns());
    if let Some(id) = ids.iter().find(|id| **id as usize >= rows) {
        bail!("embed: token id {id} is outside of a vocabulary of {rows}");
    }
    let fill = |out: &Parts<'_, std::mem::MaybeUninit<f32>>| {
        pool::for_each_chunk(ids.len().div_ceil(CHUNK_ROWS), |chunk| {
            let first = chunk * CHUNK_ROWS;
            for (i, id) in ids.iter().enumerate().skip(first).take(CHUNK_ROWS) {
                // SAFETY: every row is its own part.
                let row = unsafe { out.part(i * width..(i + 1) * width) };
                row.fill(std::mem::MaybeUninit::new(0.0));
                // SAFETY: filled just now.
                matrix.widen_row(level, *id as usize, unsafe { row.assume_init_mut() });
            }
        });
    };
    // SAFETY: the chunks cover all rows, and each row is filled.
    let out = unsafe { filled(ids.len() * width, fill) };
    Tensor::from_vec(out, (ids.len(), width), &Device::Cpu)
}
