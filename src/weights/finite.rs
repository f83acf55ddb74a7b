//! Whether stored numbers can be weights: no NaN, no infinity.
//!
//! Reading every weight would cost as much as loading it, so this looks where one bad number
//! spoils everything behind it and a corrupt file shows first: vectors (norms, biases, scales)
//! and the scales of quantized blocks.

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use sconce_blocks::{Coded, Kind};

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

/// The first block whose scale (or minimum) is NaN or infinite, with its index and that number.
pub(crate) fn first_bad_block(bytes: &[u8], kind: Kind) -> Option<(usize, f32)> {
    let scales = scale_offsets(kind);
    let blocks = bytes.chunks_exact(kind.type_size());
    blocks.enumerate().find_map(|(index, block)| {
        let bad = scales.iter().find(|scale| !scale.is_finite(block));
        bad.map(|scale| (index, scale.read(block)))
    })
}

/// Where a block keeps a floating-point number, in bytes from its start.
enum Scale {
    F16(usize),
    F32(usize),
}

impl Scale {
    /// Looks at the exponent only: this is done for every block of a file.
    fn is_finite(&self, block: &[u8]) -> bool {
        match *self {
            Self::F16(at) => f16::from_le_bytes([block[at], block[at + 1]]).is_finite(),
            Self::F32(_) => self.read(block).is_finite(),
        }
    }

    fn read(&self, block: &[u8]) -> f32 {
        match *self {
            Self::F16(at) => f16::from_le_bytes([block[at], block[at + 1]]).to_f32(),
            Self::F32(at) => {
                f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
            }
        }
    }
}

/// Block layouts of ggml (`ggml-common.h`): where `d`, `dmin`, `m` and `s` lie.
fn scale_offsets(kind: Kind) -> &'static [Scale] {
    let kind = match kind {
        Kind::Ggml(kind) => kind,
        // 48 bytes of five trits each and 4 of four come first.
        Kind::Coded(Coded::Tq1_0) => return &[Scale::F16(52)],
        Kind::Coded(Coded::Tq2_0) => return &[Scale::F16(64)],
        // Two have scales that are always finite, the third one's is in four parts.
        Kind::Coded(Coded::Nvfp4 | Coded::Mxfp4 | Coded::Iq1M) => return &[],
        Kind::Coded(_) => return &[Scale::F16(0)],
        Kind::W8A8 => GgmlDType::Q8_0,
    };
    match kind {
        GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => &[],
        GgmlDType::Q4_0 | GgmlDType::Q5_0 | GgmlDType::Q8_0 => &[Scale::F16(0)],
        GgmlDType::Q4_1 | GgmlDType::Q5_1 | GgmlDType::Q8_1 | GgmlDType::Q4K | GgmlDType::Q5K => {
            &[Scale::F16(0), Scale::F16(2)]
        }
        // 16 scale bytes and 64 quant bytes come first.
        GgmlDType::Q2K => &[Scale::F16(80), Scale::F16(82)],
        // 32 mask bytes, 64 quant bytes and 12 scale bytes come first.
        GgmlDType::Q3K => &[Scale::F16(108)],
        // 128 low nibbles, 64 high bits and 16 scales come first.
        GgmlDType::Q6K => &[Scale::F16(208)],
        GgmlDType::Q8K => &[Scale::F32(0)],
    }
}
