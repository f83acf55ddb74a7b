//! 8-bit floats (e4m3, without infinities) with scales, widened to bf16.
//!
//! Micikevicius et al., "FP8 Formats for Deep Learning", 2022; scales of blocks as in DeepSeek-V3.

use candle_core::quantized::GgmlDType;
use safetensors::tensor::Dtype;

use super::parts::{Fault, Parts, dense};
use crate::stored::StoredTensor;

/// The matrix `weight` times its scales: one, one for each row, or one for each block of rows and
/// columns.
pub(super) fn matrix(
    parts: &Parts<'_>,
    block: Option<(usize, usize)>,
) -> Result<StoredTensor, Fault> {
    let (weight, rows, columns) = parts.matrix("weight")?;
    if weight.dtype != Dtype::F8_E4M3 {
        let reason = format!("dtype {:?} is not supported, expected F8_E4M3", weight.dtype);
        return Err(Fault::new("weight", reason));
    }
    let inverse = parts.get("weight_scale_inv").is_some();
    let part = if inverse { "weight_scale_inv" } else { "weight_scale" };
    let scales = parts.floats(part)?;
    let (block_rows, block_columns) = match (block, scales.len()) {
        (_, 1) => (rows.max(1), columns.max(1)),
        (None, count) if count == rows => (1, columns.max(1)),
        (Some(block), count) if count == rows.div_ceil(block.0) * columns.div_ceil(block.1) => {
            block
        }
        (_, count) => {
            let reason = format!("has {count} scales for {rows} rows of {columns} columns");
            return Err(Fault::new(part, reason));
        }
    };
    let per_row = columns.div_ceil(block_columns);
    let table: Vec<f32> = (0..=u8::MAX).map(e4m3).collect();
    let mut values = Vec::with_capacity(rows * columns);
    for (row, codes) in weight.bytes.chunks_exact(columns.max(1)).enumerate() {
        let scales = &scales[row / block_rows * per_row..][..per_row];
        for (codes, scale) in codes.chunks(block_columns).zip(scales) {
            values.extend(codes.iter().map(|code| table[usize::from(*code)] * scale));
        }
    }
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        let (row, column) = (at / columns, at % columns);
        return Err(Fault::new("weight", format!("row {row}, column {column} is no number")));
    }
    Ok(dense(GgmlDType::BF16, [rows, columns], &values))
}

/// The number that a code stands for: 4 bits of exponent, 3 of mantissa.
pub(super) fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2.0f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2.0f32.powi(exponent - 7),
    };
    if code & 0x80 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_for_the_numbers_of_the_format() {
        for (code, number) in [
            (0x00, 0.0),
            (0x01, 0.001_953_125),
            (0x08, 0.015_625),
            (0x38, 1.0),
            (0x3c, 1.5),
            (0x7e, 448.0),
            (0xb8, -1.0),
            (0xfe, -448.0),
        ] {
            assert!((e4m3(code) - number).abs() < f32::EPSILON, "{code:x}");
        }
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
    }
}
