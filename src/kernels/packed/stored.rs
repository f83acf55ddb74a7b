//! Rows as a file stores them: widened with candle's own block formats, so a row equals what
//! `QTensor::dequantize` gives, to the bit; and narrowed to another kind with candle's quantizers.

use candle_core::quantized::GgmlDType;
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, BlockQ8_1, BlockQ8K, GgmlType,
};
use candle_core::{Result, bail};
use half::{bf16, f16};
use sconce_blocks::{Kind, dequantize};

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
