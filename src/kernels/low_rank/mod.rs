//! Low-rank terms: `y + factor * up(down(x))`, each for rows of its own, all of them in one region of
//! the thread team.
//!
//! Sheng et al., "S-LoRA: Serving Thousands of Concurrent LoRA Adapters", 2023, computes adapters of a
//! batch together in this way. The matrices are small and every row reads those of its own adapter
//! alone, so they are not packed into panels, which a rank of 8 or 16 would leave empty for the most
//! part: `down` lies row by row, and `up` transposed, so that both are read along the lanes.
//!
//! Each output element is one chain of additions in f32, the same in every tile shape: a row's result
//! doesn't depend on the other rows.

use candle_core::{Result, Tensor, bail};

pub use self::args::{LowRank, LowRankRows};
use super::backend::cpu_level;
use super::storage::{read, write};

mod args;
mod cpu;
#[cfg(test)]
mod tests;

const NAME: &str = "low_rank_add";

/// Adds `factor * up(down(x))` to the rows of `y [T, outputs]` that the parts name, in place; `x [T,
/// inputs]` and `y` are f32, on the CPU.
///
/// # Errors
///
/// A row behind the last one or named twice, or widths that a term doesn't have.
pub fn low_rank_add(x: &Tensor, y: &Tensor, parts: &[LowRankRows<'_>]) -> Result<()> {
    let ((count, inputs), (outer, outputs)) = (x.dims2()?, y.dims2()?);
    if outer != count {
        bail!("{NAME}: {count} rows of x, {outer} of y");
    }
    let mut named = vec![false; count];
    for LowRankRows { term, rows, .. } in parts {
        if (term.inputs, term.outputs) != (inputs, outputs) {
            let LowRank { inputs: wanted, outputs: made, .. } = term;
            bail!(
                "{NAME}: a term from {wanted} to {made} features on one from {inputs} to {outputs}"
            );
        }
        for row in *rows {
            match named.get_mut(*row as usize) {
                None => bail!("{NAME}: row {row} of {count}"),
                Some(true) => bail!("{NAME}: row {row} is named twice"),
                Some(named) => *named = true,
            }
        }
    }
    let x = read(NAME, x);
    let x = x.contiguous::<f32>()?;
    write::<f32>(NAME, y, |y| {
        cpu::low_rank_add(cpu_level(), x, y, parts);
        Ok(())
    })
}
