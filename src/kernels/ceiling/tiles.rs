//! What tile registers can do at most.

use crate::backend::cpu_level;
use crate::cpu::amx::{TILE_ROWS, Tiles};
use crate::pool;

/// Steps of one run, of four products of tiles each.
const STEPS: usize = 100_000;

/// Products of bytes, or of bf16, on all threads: how many operations one run does, and the run;
/// `None` where the level has no tiles.
pub(super) fn run(bytes: bool) -> Option<(usize, impl Fn())> {
    let tiled = cpu_level().tiles()?;
    // Words along K times columns times rows, of two bf16 or of four bytes.
    let products = 4 * TILE_ROWS * TILE_ROWS * TILE_ROWS * if bytes { 4 } else { 2 };
    let threads = pool::threads();
    let run = move || {
        pool::for_each_chunk(threads, |_| Tiles::new(tiled.amx).multiply_only(STEPS, bytes));
    };
    Some((threads * STEPS * 2 * products, run))
}
