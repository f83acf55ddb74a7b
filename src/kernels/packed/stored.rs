//! Rows as a file stores them: widened with candle's own block formats, so a row equals what
//! `QTensor::dequantize` gives, to the bit; and narrowed to another kind with candle's quantizers.

use std::cell::RefCell;
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, BlockQ8_1, BlockQ8K, GgmlType,
};
use candle_core::{Result, bail};
use half::{bf16, f16};
use sconce_blocks::{Kind, dequantize};

use super::formats::PANEL;

/// A matrix as a file stores it, and what its elements are rounded to.
pub(super) struct Stored<'a> {
    pub(super) kind: Kind,
    pub(super) rounded: Option<GgmlDType>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Row after row, whole ones.
    pub(super) bytes: &'a [u8],
}

/// Rows of a sample.
const SAMPLE: usize = 64;

impl Stored<'_> {
    /// Gives the rows of a panel to `then`, rounded.
    pub(super) fn panel(&self, panel: usize, then: impl FnOnce(&[u8])) {
        self.rows(panel * PANEL..self.rows.min((panel + 1) * PANEL), then);
    }

    /// Some rows from all of the matrix, rounded.
    pub(super) fn sample(&self) -> Vec<u8> {
        let mut sample = Vec::new();
        let count = self.rows.min(SAMPLE);
        for row in (0..count).map(|i| i * self.rows / count) {
            self.rows(row..row + 1, |row| sample.extend_from_slice(row));
        }
        sample
    }

    fn rows(&self, rows: Range<usize>, then: impl FnOnce(&[u8])) {
        let row_bytes = self.bytes.len() / self.rows.max(1);
        let from = &self.bytes[rows.start * row_bytes..rows.end * row_bytes];
        match self.rounded {
            None => then(from),
            Some(rounded) => with_rounded(self.kind, rounded, self.columns, from, then),
        }
    }
}

/// Bytes of a row of `columns` elements.
///
/// # Errors
///
/// Elements that don't divide into the blocks of `kind`.
pub(super) fn row_bytes(kind: Kind, columns: usize) -> Result<usize> {
    if !columns.is_multiple_of(kind.block_size()) {
        bail!("rows of {columns} elements don't divide into {kind:?} blocks");
    }
    Ok(columns / kind.block_size() * kind.type_size())
}

/// Calls `$run::<B>($arguments)` with the block type `B` of `$kind`.
macro_rules! with_blocks {
    ($kind:expr, $run:ident($($argument:expr),*)) => {
        match $kind {
            GgmlDType::Q4_0 => $run::<BlockQ4_0>($($argument),*),
            GgmlDType::Q4_1 => $run::<BlockQ4_1>($($argument),*),
            GgmlDType::Q5_0 => $run::<BlockQ5_0>($($argument),*),
            GgmlDType::Q5_1 => $run::<BlockQ5_1>($($argument),*),
            GgmlDType::Q8_0 => $run::<BlockQ8_0>($($argument),*),
            GgmlDType::Q8_1 => $run::<BlockQ8_1>($($argument),*),
            GgmlDType::Q2K => $run::<BlockQ2K>($($argument),*),
            GgmlDType::Q3K => $run::<BlockQ3K>($($argument),*),
            GgmlDType::Q4K => $run::<BlockQ4K>($($argument),*),
            GgmlDType::Q5K => $run::<BlockQ5K>($($argument),*),
            GgmlDType::Q6K => $run::<BlockQ6K>($($argument),*),
            GgmlDType::Q8K => $run::<BlockQ8K>($($argument),*),
            GgmlDType::F32 => $run::<f32>($($argument),*),
            GgmlDType::F16 => $run::<f16>($($argument),*),
            GgmlDType::BF16 => $run::<bf16>($($argument),*),
        }
    };
}

/// Widens whole blocks of `kind`, at any address, to f32; `out` has one element for each of theirs.
pub(super) fn widen(kind: Kind, bytes: &[u8], out: &mut [f32]) {
    match kind {
        Kind::Ggml(kind) => with_blocks!(kind, widen_blocks(bytes, out)),
        Kind::Coded(kind) => dequantize(kind, bytes, out),
        Kind::W8A8 => widen_blocks::<BlockQ8_0>(bytes, out),
    }
}

/// Rounds floats to whole blocks of `kind`, appended to `out`.
pub(super) fn narrow(kind: GgmlDType, from: &[f32], out: &mut Vec<u8>) {
    with_blocks!(kind, narrow_blocks(from, out));
}

/// Gives rows of `from_kind` to `then` as rows of `kind`.
pub(super) fn with_rounded(
    from_kind: Kind,
    kind: GgmlDType,
    columns: usize,
    from: &[u8],
    then: impl FnOnce(&[u8]),
) {
    thread_local! {
        static ROWS: RefCell<(Vec<f32>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
    }
    ROWS.with_borrow_mut(|(wide, rounded)| {
        let rows = from.len() / (columns / from_kind.block_size() * from_kind.type_size()).max(1);
        wide.resize(rows * columns, 0.0);
        widen(from_kind, from, wide);
        rounded.clear();
        narrow(kind, wide, rounded);
        then(rounded);
    });
}

fn widen_blocks<B: GgmlType>(bytes: &[u8], out: &mut [f32]) {
    let blocks: Vec<B> = bytes
        .chunks_exact(size_of::<B>())
        .map(|block| {
            // SAFETY: candle's blocks are repr(C) structs of integers and f16 without padding, for
            // which every bit pattern is valid; the read needs no alignment and stays in the chunk.
            unsafe { block.as_ptr().cast::<B>().read_unaligned() }
        })
        .collect();
    B::to_float(&blocks, out);
}

fn narrow_blocks<B: GgmlType>(from: &[f32], out: &mut Vec<u8>) {
    let mut blocks = vec![B::zeros(); from.len() / B::BLCK_SIZE];
    B::from_float(from, &mut blocks);
    let size = size_of_val(blocks.as_slice());
    // SAFETY: the blocks are structs of integers and f16 without padding.
    out.extend_from_slice(unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), size) });
}
