//! One region of the thread team: all panels of some layers on the same rows.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use sconce_blocks::Kind;

#[cfg(target_arch = "x86_64")]
use super::activations::TILE_STEP;
use super::activations::{Activations, TILE_ROWS};
use super::args::Layer;
#[cfg(target_arch = "x86_64")]
use super::block_tiles::{TILES_FROM, TileBlocks};
use super::blocks::BlockPanel;
use super::dense::{DensePanel, Pairs, SingleF16, SingleF32, WidePairs};
use super::finish::FinishPanel;
use super::job::{Finish, Job, Sums};
#[cfg(target_arch = "x86_64")]
use super::pair_tiles::TilePanel;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Tiled;
use crate::cpu::{LANES, Level};
use crate::packed::PackedMatrix;
use crate::packed::formats::{PANEL, SUB_BLOCK, with_format};
use crate::pool;

/// Fewer multiply-adds than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;
/// Chunks a region is cut into, for each thread.
const CHUNKS_PER_THREAD: usize = 8;
/// Rows of a chunk, at most.
const MOST_ROWS: usize = 144;
/// Rows of a chunk are a multiple of every tile's.
const ROW_STEP: usize = 12;
/// Bytes of bf16 rows of a chunk, at most, where tiles multiply them: panels pass by so fast that
/// memory is what they wait for, unless many rows share them.
const TILED_ROWS_BYTES: usize = 1 << 19;

/// Buffers of a thread, kept between chunks.
#[derive(Default)]
struct Scratch {
    /// One per row: a panel of the product, and of its gated partner.
    sums: Vec<Sums>,
    up: Vec<Sums>,
    /// A panel of a kind without a packed form.
    widened: Vec<[f32; PANEL]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Writes all rows and columns of every job.
pub(super) fn run(level: Level, x: &Activations<'_>, jobs: &[Job<'_>]) {
    let panels: usize = jobs.iter().map(|job| job.layer.matrix.panels()).sum();
    if x.m == 0 || panels == 0 {
        return;
    }
    let (most, step) = if level.has_tiles() {
        ((TILED_ROWS_BYTES / (2 * x.k).max(1)).clamp(MOST_ROWS, 512), 2 * TILE_ROWS)
    } else {
        (MOST_ROWS, ROW_STEP)
    };
    let blocks = x.m.div_ceil(most);
    let rows = x.m.div_ceil(blocks).next_multiple_of(step);
    let blocks = x.m.div_ceil(rows);
    let group = (panels * blocks / (CHUNKS_PER_THREAD * pool::threads())).clamp(1, panels);
    let groups = panels.div_ceil(group);
    let chunk = |chunk: usize| {
        let (first, block) = (chunk / blocks * group, chunk % blocks);
        let rows = block * rows..x.m.min((block + 1) * rows);
        // Threads that are equally fast take chunks in turn.
        let next_chunk = (chunk + pool::threads()) / blocks * group;
        let last = panels.min(first + group) - 1;
        for panel in first..=last {
            let next = if panel == last { next_chunk } else { panel + 1 };
            run_panel(level, x, jobs, panel, next, rows.clone());
        }
    };
    if x.m * x.k * panels * PANEL < PARALLEL_FROM {
        (0..groups * blocks).for_each(chunk);
    } else {
        pool::for_each_chunk(groups * blocks, chunk);
    }
}

/// Panel `panel` of all jobs' panels, for some rows; panel `next` will follow, if there is one.
fn run_panel(
    level: Level,
    x: &Activations<'_>,
    jobs: &[Job<'_>],
    panel: usize,
    next: usize,
    rows: Range<usize>,
) {
    let (job, panel) = locate(jobs, panel).expect("panels are counted over all jobs");
    let next = locate(jobs, next).map_or(&[][..], |(job, panel)| job.layer.matrix.panel(panel));
    let mut scratch = SCRATCH.take();
    let Scratch { sums, up, widened } = &mut scratch;
    let matrix = job.layer.matrix;
    if let Finish::Gated { up: Layer { matrix: partner, .. }, .. } = job.finish {
        let operand = Operand { matrix, panel, next: partner.panel(panel) };
        product(level, x, operand, rows.clone(), sums, widened);
        let operand = Operand { matrix: partner, panel, next };
        product(level, x, operand, rows.clone(), up, widened);
    } else {
        product(level, x, Operand { matrix, panel, next }, rows.clone(), sums, widened);
    }
    level.run(FinishPanel { job, panel, rows, sums, up });
    SCRATCH.set(scratch);
}

/// The job that panel `panel` of all jobs' panels belongs to, and which of its own it is.
fn locate<'a, 'j>(jobs: &'a [Job<'j>], mut panel: usize) -> Option<(&'a Job<'j>, usize)> {
    for job in jobs {
        let panels = job.layer.matrix.panels();
        if panel < panels {
            return Some((job, panel));
        }
        panel -= panels;
    }
    None
}

/// A panel, and the bytes that will be wanted after it.
struct Operand<'a> {
    matrix: &'a PackedMatrix,
    panel: usize,
    next: &'a [u8],
}

/// Products of some rows with one panel, one entry of `sums` for each row.
fn product(
    level: Level,
    x: &Activations<'_>,
    Operand { matrix, panel, next }: Operand<'_>,
    rows: Range<usize>,
    sums: &mut Vec<Sums>,
    widened: &mut Vec<[f32; PANEL]>,
) {
    sums.resize(rows.len(), Sums([[0.0; LANES]; PANEL / LANES]));
    let sums = sums.as_mut_slice();
    let (k, bytes) = (x.k, matrix.panel(panel));
    let floats = || &x.rows[rows.start * k..rows.end * k];
    match matrix.kind() {
        Kind::Ggml(GgmlDType::F32) => {
            level.run(DensePanel::<SingleF32> { x: floats(), steps: k, panel: bytes, next, sums });
        }
        Kind::Ggml(GgmlDType::F16) => {
            level.run(DensePanel::<SingleF16> { x: floats(), steps: k, panel: bytes, next, sums });
        }
        #[cfg(target_arch = "x86_64")]
        Kind::Ggml(GgmlDType::BF16) if let Some(Tiled { amx, .. }) = level.tiles() => {
            let width = k.next_multiple_of(TILE_STEP);
            let x = &x.tiles()[rows.start * width..rows.end * width];
            TilePanel { x, panel: bytes, next, sums }.run(amx);
        }
        Kind::Ggml(GgmlDType::BF16) => {
            let steps = k.div_ceil(2);
            let rows = rows.start * steps..rows.end * steps;
            if level.multiplies_pairs() {
                let x = &x.pairs()[rows];
                level.run(DensePanel::<Pairs> { x, steps, panel: bytes, next, sums });
            } else {
                let x = &x.wide_pairs()[rows];
                level.run(DensePanel::<WidePairs> { x, steps, panel: bytes, next, sums });
            }
        }
        kind => with_format!(kind, F => {
            let blocks = k / SUB_BLOCK;
            let x = &x.bytes()[rows.start * blocks..rows.end * blocks];
            let format = PhantomData;
            #[cfg(target_arch = "x86_64")]
            if let Some(tiled) = level.tiles().filter(|_| rows.len() >= TILES_FROM) {
                let amx = tiled.amx;
                tiled.run(TileBlocks::<F> { amx, x, blocks, panel: bytes, next, sums, format });
                return;
            }
            level.run(BlockPanel::<F> { x, blocks, panel: bytes, next, sums, format });
        }, {
            widened.resize(k, [0.0; PANEL]);
            matrix.widen_panel(panel, widened.as_flattened_mut());
            // SAFETY: floats are four bytes without padding.
            let panel = unsafe {
                std::slice::from_raw_parts(widened.as_ptr().cast(), size_of_val(widened.as_slice()))
            };
            level.run(DensePanel::<SingleF32> { x: floats(), steps: k, panel, next: &[], sums });
        }),
    }
}
