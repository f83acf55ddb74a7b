//! Whether stored numbers can be weights: no NaN, no infinity.
//!
//! Reading every weight would cost as much as loading it, so this looks where one bad number
//! spoils everything behind it and a corrupt file shows first: vectors (norms, biases,
//! scales).

use candle_core::DType;
use half::{bf16, f16};

/// The first value of a dense tensor that is NaN or infinite, with its index.
///
/// `bytes` are little-endian numbers of `dtype`; other dtypes than bf16, f16 and f32 pass.
pub(crate) fn first_non_finite(bytes: &[u8], dtype: DType) -> Option<(usize, f32)> {
    let value: fn(&[u8]) -> f32 = match dtype {
        DType::BF16 => |b| bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        DType::F16 => |b| f16::from_le_bytes([b[0], b[1]]).to_f32(),
        DType::F32 => |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        _ => return None,
    };
    bytes
        .chunks_exact(dtype.size_in_bytes())
        .map(value)
        .enumerate()
        .find(|(_, value)| !value.is_finite())
}
