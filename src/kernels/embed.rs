//! Rows of a stored matrix as f32: token ids to hidden states.

use candle_core::{Device, Result, Tensor, bail};

use super::backend::cpu_level;
use super::cpu::Level;
use super::fresh::{Parts, filled};
use super::packed::PackedMatrix;
use super::pool;

/// Rows of one chunk.
const CHUNK_ROWS: usize = 8;

/// Rows `ids` of `matrix [V, D]`, widened exactly: `[ids.len(), D]` in f32 on the CPU.
pub fn embed(matrix: &PackedMatrix, ids: &[u32]) -> Result<Tensor> {
    embed_at(cpu_level(), matrix, ids)
}

fn embed_at(level: Level, matrix: &PackedMatrix, ids: &[u32]) -> Result<Tensor> {
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

#[cfg(test)]
mod tests;
