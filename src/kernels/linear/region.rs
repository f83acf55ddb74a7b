//! One region of the thread team: all panels of some layers on the same rows.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use half::bf16;
use sconce_blocks::Kind;

#[cfg(target_arch = "x86_64")]
use super::activations::TILE_STEP;
use super::activations::{Activations, Form, TILE_ROWS};
use super::args::Layer;
#[cfg(target_arch = "x86_64")]
use super::block_tiles::TileBlocks;
use super::blocks::BlockPanel;
use super::dense::{DensePanel, Pairs, SingleF16, SingleF32, Step, WidePairs};
use super::finish::FinishPanel;
use super::job::{Job, Sums};
#[cfg(target_arch = "x86_64")]
use super::pair_tiles::{TilePanel, Weights};
use super::scaled_rows::ScaledPanel;
#[cfg(target_arch = "x86_64")]
use super::scaled_tiles::ScaledTiles;
use super::twelve_bits::DecodedPanel;
use crate::cpu::{LANES, Level};
use crate::packed::PackedMatrix;
use crate::packed::formats::{PANEL, SUB_BLOCK, with_format};
use crate::packed::twelve_bits::Row;
use crate::pool;

/// Fewer multiply-adds than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;
/// Chunks a region is cut into, for each thread.
const CHUNKS_PER_THREAD: usize = 8;
/// The same where rows are taken in parts.
const PARTED_CHUNKS_PER_THREAD: usize = 2;
/// Rows of a chunk, at most.
const MOST_ROWS: usize = 144;
/// Rows of a chunk are a multiple of every tile's.
const ROW_STEP: usize = 12;
/// Bytes of bf16 rows of a chunk, at most, where tiles multiply them: panels pass by so fast that
/// memory is what they wait for, unless many rows share them.
const TILED_ROWS_BYTES: usize = 1 << 19;
/// What of the second-level cache such rows may take while one panel after the other passes by.
const TILED_CACHE: usize = 1 << 20;
/// Elements of K in a part of rows that would take more.
const TILED_PART: usize = 1024;
/// Panels of a chunk, at most, where rows are taken in parts: their sums stay in that cache, too.
const TILED_PANELS: usize = 8;

/// Buffers of a thread, kept between chunks.
#[derive(Default)]
struct Scratch {
    /// One per row: a panel of the product, and of its gated partner.
    sums: Vec<Sums>,
    up: Vec<Sums>,
    room: Room,
}

/// Room for parts of panels in the form that is multiplied.
#[derive(Default)]
struct Room {
    /// A panel of a kind without a packed form.
    widened: Vec<[f32; PANEL]>,
    /// Rows of bf16 in twelve bits each.
    decoded: Vec<Row>,
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
    let part = part(level, x, jobs);
    let (most, step) = if level.has_tiles() {
        ((TILED_ROWS_BYTES / (2 * part).max(1)).clamp(MOST_ROWS, 512), 2 * TILE_ROWS)
    } else {
        (MOST_ROWS, ROW_STEP)
    };
    let blocks = x.m.div_ceil(most);
    let rows = x.m.div_ceil(blocks).next_multiple_of(step);
    let blocks = x.m.div_ceil(rows);
    let (chunks, most) = if part < x.k {
        (PARTED_CHUNKS_PER_THREAD, TILED_PANELS)
    } else {
        (CHUNKS_PER_THREAD, panels)
    };
    let group = (panels * blocks / (chunks * pool::threads())).clamp(1, most);
    let groups = panels.div_ceil(group);
    let chunk = |chunk: usize| {
        let (first, block) = (chunk / blocks * group, chunk % blocks);
        let rows = block * rows..x.m.min((block + 1) * rows);
        // Threads that are equally fast take chunks in turn.
        let next = (chunk + pool::threads()) / blocks * group;
        let panels = first..panels.min(first + group);
        run_panels(level, x, jobs, Chunk { panels, next, rows, part });
    };
    if x.m * x.k * panels * PANEL < PARALLEL_FROM {
        (0..groups * blocks).for_each(chunk);
    } else {
        pool::for_each_chunk(groups * blocks, chunk);
    }
}

/// Elements of K that all panels of a chunk meet before any of them goes on: all of them, unless rows are so many and
/// so long that they would leave the second-level cache with each panel.
fn part(level: Level, x: &Activations<'_>, jobs: &[Job<'_>]) -> usize {
    let tiled = |layer: Layer<'_>| Form::of(level, layer.matrix.kind()) == Form::Tiles;
    let in_tiles = |job: &Job<'_>| tiled(job.layer) && job.finish.partner().is_none_or(tiled);
    let bytes = x.m.min(TILED_ROWS_BYTES / (2 * TILED_PART)) * 2 * x.k;
    if bytes > TILED_CACHE && jobs.iter().all(in_tiles) { TILED_PART } else { x.k }
}

/// What a thread does at a time.
struct Chunk {
    /// Of all jobs' panels.
    panels: Range<usize>,
    /// The panel that this thread will begin with next, most likely.
    next: usize,
    rows: Range<usize>,
    /// Elements of K in a part.
    part: usize,
}

/// Some panels of all jobs' panels, for some rows.
fn run_panels(level: Level, x: &Activations<'_>, jobs: &[Job<'_>], chunk: Chunk) {
    let Chunk { panels, next: next_chunk, rows, part } = chunk;
    let parts = x.k.div_ceil(part.max(1)).max(1);
    let mut scratch = SCRATCH.take();
    let Scratch { sums, up, room } = &mut scratch;
    // Sums of all panels are kept only where they wait for the next part.
    let kept = if parts > 1 { panels.len() } else { 1 };
    for all in [&mut *sums, up] {
        let most = all.len().max(kept * rows.len());
        all.resize(most, Sums([[0.0; LANES]; PANEL / LANES]));
    }
    for i in 0..parts {
        let steps = i * part..x.k.min((i + 1) * part);
        for panel in panels.clone() {
            let next = match panel + 1 {
                next if next < panels.end => (next, steps.start),
                _ if i + 1 < parts => (panels.start, steps.end),
                _ => (next_chunk, 0),
            };
            let place = if parts > 1 { panel - panels.start } else { 0 } * rows.len();
            let [sums, up] = [&mut *sums, up].map(|all| &mut all[place..place + rows.len()]);
            let (job, panel) = locate(jobs, panel).expect("panels are counted over all jobs");
            let next = locate(jobs, next.0)
                .map_or(&[][..], |(job, panel)| ahead(job.layer.matrix, panel, next.1));
            let matrix = job.layer.matrix;
            let operand = |matrix, next| Operand { matrix, panel, next, steps: steps.clone() };
            if let Some(Layer { matrix: partner, .. }) = job.finish.partner() {
                let of_partner = ahead(partner, panel, steps.start);
                product(level, x, operand(matrix, of_partner), rows.clone(), sums, room);
                product(level, x, operand(partner, next), rows.clone(), up, room);
            } else {
                product(level, x, operand(matrix, next), rows.clone(), sums, room);
            }
            if i + 1 == parts {
                level.run(FinishPanel { job, panel, rows: rows.clone(), sums, up });
            }
        }
    }
    SCRATCH.set(scratch);
}

/// What is fetched of a panel before it is read from element `start` of K on. Only bf16 is read in parts.
fn ahead(matrix: &PackedMatrix, panel: usize, start: usize) -> &[u8] {
    let bytes = matrix.panel(panel);
    &bytes[bytes.len().min(matrix.offset_of(start))..]
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
    /// Elements of K: all of them, but for tiles of bf16.
    steps: Range<usize>,
}

/// Products of some rows with one panel, one entry of `sums` for each row.
fn product(
    level: Level,
    x: &Activations<'_>,
    Operand { matrix, panel, next, steps }: Operand<'_>,
    rows: Range<usize>,
    sums: &mut [Sums],
    Room { widened, decoded }: &mut Room,
) {
    let (k, bytes) = (x.k, matrix.panel(panel));
    let floats = || &x.floats()[rows.start * k..rows.end * k];
    debug_assert!(steps == (0..k) || level.has_tiles(), "only tiles take K in parts");
    match matrix.kind() {
        Kind::Ggml(GgmlDType::F32) => {
            level.run(DensePanel::<SingleF32> { x: floats(), steps: k, panel: bytes, next, sums });
        }
        Kind::Ggml(GgmlDType::F16) => {
            level.run(DensePanel::<SingleF16> { x: floats(), steps: k, panel: bytes, next, sums });
        }
        #[cfg(target_arch = "x86_64")]
        Kind::Ggml(GgmlDType::BF16) if let Some(tiled) = level.tiles() => {
            let width = k.next_multiple_of(TILE_STEP);
            let x = &x.tiles()[rows.start * width..rows.end * width];
            let weights = match matrix.twelve_bit_panel(panel) {
                Some(panel) => Weights::TwelveBits(panel, decoded),
                None => Weights::Whole(bytes),
            };
            let amx = tiled.amx;
            tiled.run(TilePanel { amx, x, weights, elements: steps, next, sums });
        }
        Kind::Ggml(GgmlDType::BF16) => {
            let pairs = k.div_ceil(2);
            let rows = rows.start * pairs..rows.end * pairs;
            let operand = Operand { matrix, panel, next, steps };
            if level.multiplies_pairs() {
                product_of_pairs::<Pairs>(level, &x.pairs()[rows], operand, sums, decoded);
            } else {
                product_of_pairs::<WidePairs>(level, &x.wide_pairs()[rows], operand, sums, decoded);
            }
        }
        Kind::W8A8 => {
            #[cfg(target_arch = "x86_64")]
            if let (Some(tiled), Some(x)) = (level.tiles(), x.byte_tiles(rows.clone())) {
                return tiled.run(ScaledTiles { amx: tiled.amx, x, panel: bytes, next, sums });
            }
            let blocks = k / SUB_BLOCK;
            let x = &x.scaled_bytes()[rows.start * blocks..rows.end * blocks];
            level.run(ScaledPanel { x, blocks, panel: bytes, next, sums });
        }
        kind => with_format!(kind, F => {
            let blocks = k / SUB_BLOCK;
            let x = &x.bytes()[rows.start * blocks..rows.end * blocks];
            let format = PhantomData;
            #[cfg(target_arch = "x86_64")]
            if let Some(tiled) = level.tiles().filter(|_| TileBlocks::<F>::are_faster(rows.len())) {
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

/// Products with a panel of bf16, of a level without tiles.
fn product_of_pairs<S: Step<Weight = [bf16; 2]>>(
    level: Level,
    x: &[S::Activation],
    Operand { matrix, panel, next, steps }: Operand<'_>,
    sums: &mut [Sums],
    room: &mut Vec<Row>,
) {
    if let Some(panel) = matrix.twelve_bit_panel(panel) {
        level.run(DecodedPanel::<S> { x, panel, next, sums, room });
    } else {
        let (steps, panel) = (steps.len().div_ceil(2), matrix.panel(panel));
        level.run(DensePanel::<S> { x, steps, panel, next, sums });
    }
}
