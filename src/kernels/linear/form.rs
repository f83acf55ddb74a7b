//! Forms of the kernels for products on NVIDIA GPUs: what a block of threads takes.

use candle_core::DType;

/// Most tokens of these kernels; for more of them cuBLAS is faster.
pub(crate) const FEW_TOKENS: usize = 64;
/// Threads that share a tile of rows.
pub(super) const TILE_THREADS: usize = 256;

/// A form of the kernel, and the measures of its launch.
pub(crate) struct Form {
    /// The end of the kernel's name.
    pub(crate) kind: String,
    /// Tokens that a block takes at a time.
    pub(crate) capacity: usize,
    /// Rows of a matrix in a tile.
    pub(crate) tile_rows: usize,
    /// Tiles that a block of threads takes.
    pub(crate) tiles_at_once: usize,
    /// Threads of a block.
    pub(crate) threads: usize,
    /// Bytes of shared memory.
    pub(crate) shared: usize,
    /// Inputs that are staged at a time.
    pub(crate) stage: usize,
    /// Bytes of shared memory where a block takes tiles of several rounds, if there is such a kernel.
    pub(crate) shared_in_rounds: Option<usize>,
}

impl Form {
    /// The form for many tokens of each expert, with weights of half precision; other products of many
    /// tokens are cuBLAS's.
    pub(crate) fn for_many(dtype: DType) -> Self {
        let name = if dtype == DType::F16 { "f16" } else { "bf16" };
        let (tile_rows, capacity) = (128, FEW_TOKENS);
        Self {
            kind: format!("{name}_many"),
            capacity,
            tile_rows,
            tiles_at_once: 1,
            threads: 128,
            shared: 3 * 2 * 64 * (tile_rows + capacity),
            stage: 0,
            shared_in_rounds: None,
        }
    }

    /// The grid of a kernel by tokens and tiles, for matrices of these many rows.
    pub(super) fn grid(&self, (tokens, gated): (usize, bool), rows: &[usize]) -> [usize; 3] {
        let Self { tile_rows, tiles_at_once, capacity, .. } = *self;
        let tiles: usize = if gated {
            rows[0].div_ceil(tile_rows / 2)
        } else {
            rows.iter().map(|rows| rows.div_ceil(tile_rows)).sum()
        };
        let blocks = tiles.div_ceil(tiles_at_once);
        let height = blocks.clamp(1, 65_535);
        [tokens.div_ceil(capacity), height, blocks.div_ceil(height)]
    }
}
