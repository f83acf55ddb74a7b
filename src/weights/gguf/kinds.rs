//! How tensor elements are stored in GGUF: the numbers and names of ggml's kinds.

use candle_core::quantized::GgmlDType;
use sconce_blocks::Coded;

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kind that the tensor library has.
    Ggml(GgmlDType),
    /// A kind whose blocks hold codes.
    Coded(Coded),
    /// Whole numbers of 64 bits, which are no weights.
    Whole,
}

impl Kind {
    /// Whether elements are stored one by one, not in blocks.
    pub(crate) fn is_single(self) -> bool {
        match self {
            Self::Ggml(kind) => kind.block_size() == 1,
            Self::Coded(_) => false,
            Self::Whole => true,
        }
    }
}

/// The kind behind a number in a file.
pub(crate) fn from_number(number: u32) -> Result<Kind, String> {
    if let Some(kind) = Coded::ALL.into_iter().find(|kind| kind.number() == number) {
        return Ok(Kind::Coded(kind));
    }
    Ok(Kind::Ggml(match number {
        27 => return Ok(Kind::Whole),
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        9 => GgmlDType::Q8_1,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        15 => GgmlDType::Q8K,
        30 => GgmlDType::BF16,
        other => {
            let name = unsupported_name(other);
            return Err(format!(
                "has the kind {name}, which is not supported; supported are F32, F16, BF16, Q4_0, \
                 Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K to Q8_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0, MXFP4 and \
                 NVFP4"
            ));
        }
    }))
}

/// The number that stands for a kind.
pub(crate) fn number(kind: Kind) -> u32 {
    let all = 0..=64;
    let found = all.into_iter().find(|number| from_number(*number) == Ok(kind));
    found.expect("every kind was read from a number")
}

/// Bytes of a tensor, whose rows must be whole blocks.
pub(crate) fn byte_size(kind: Kind, shape: &[usize]) -> Result<u64, String> {
    let (block, bytes) = match kind {
        Kind::Ggml(kind) => (kind.block_size(), kind.type_size()),
        Kind::Coded(kind) => (kind.block_size(), kind.type_size()),
        Kind::Whole => (1, 8),
    };
    let row = shape.last().copied().unwrap_or(1);
    if row % block != 0 {
        return Err(format!("has rows of {row} elements, expected a multiple of {block}"));
    }
    let elements = shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size as u64));
    elements
        .and_then(|elements| (elements / block as u64).checked_mul(bytes as u64))
        .ok_or_else(|| format!("has the shape {shape:?}, which no file can hold"))
}

fn unsupported_name(number: u32) -> String {
    let name = match number {
        24 => "I8",
        25 => "I16",
        26 => "I32",
        28 => "F64",
        other => return format!("number {other}"),
    };
    name.to_owned()
}
