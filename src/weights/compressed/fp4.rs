//! 4-bit floats (e2m1) in blocks that share a scale: MXFP4 and NVFP4.
//!
//! Open Compute Project, "OCP Microscaling Formats (MX) Specification", 2023: 32 numbers share a
//! power of two. Twice a number is an integer from -12 to 12, so a block of the GGUF kind Q5_0,
//! whose scale is half of that power, holds the same numbers; powers that no f16 holds make the
//! whole tensor bf16. NVFP4: 16 numbers share an 8-bit float, and all of them one more factor.

use candle_core::quantized::GgmlDType;
use half::f16;
use safetensors::tensor::Dtype;

use super::fp8::e4m3;
use super::parts::{Fault, Parts, dense};
use crate::stored::StoredTensor;

/// Numbers that share a scale in MXFP4.
const BLOCK: usize = 32;
/// Numbers that share a scale in NVFP4.
const SMALL_BLOCK: usize = 16;
/// Twice the number that each code stands for.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Experts `x_blocks [experts, outputs, inputs / 32, 16]` times powers of two
/// `x_scales [experts, outputs, inputs / 32]`: `[experts, outputs, inputs]`.
pub(super) fn experts(parts: &Parts<'_>) -> Result<StoredTensor, Fault> {
    let blocks = parts.need("_blocks")?;
    let &[experts, outputs, groups, 16] = blocks.shape else {
        let reason = format!("has shape {:?}, expected [.., .., .., 16]", blocks.shape);
        return Err(Fault::new("_blocks", reason));
    };
    let scales = bytes_of(parts, "_scales", experts * outputs * groups)?;
    only_bytes("_blocks", blocks.dtype)?;
    Ok(powers(vec![experts, outputs, groups * BLOCK], blocks.bytes, scales))
}

/// `weight_packed [outputs, inputs / 2]` times scales `weight_scale` of 32 or 16 numbers each.
pub(super) fn matrix(parts: &Parts<'_>) -> Result<StoredTensor, Fault> {
    let (packed, outputs, half) = parts.matrix("weight_packed")?;
    only_bytes("weight_packed", packed.dtype)?;
    let inputs = 2 * half;
    if parts.need("weight_scale")?.dtype == Dtype::F8_E4M3 {
        return small_blocks(parts, packed.bytes, [outputs, inputs]);
    }
    if !inputs.is_multiple_of(BLOCK) {
        let reason = format!("has {inputs} codes in a row, expected a multiple of {BLOCK}");
        return Err(Fault::new("weight_packed", reason));
    }
    let scales = bytes_of(parts, "weight_scale", outputs * inputs / BLOCK)?;
    Ok(powers(vec![outputs, inputs], packed.bytes, scales))
}

/// Blocks as files of another kind have them: the exponent, and then 16 bytes with the first half
/// of the codes in their lower halves, the second half in the others.
pub(crate) fn mxfp4_blocks(dims: Vec<usize>, bytes: &[u8]) -> StoredTensor {
    let blocks = bytes.as_chunks::<{ 1 + BLOCK / 2 }>().0;
    let mut packed = Vec::with_capacity(blocks.len() * BLOCK / 2);
    let mut exponents = Vec::with_capacity(blocks.len());
    for [exponent, codes @ ..] in blocks {
        exponents.push(*exponent);
        let pairs = || codes.as_chunks::<2>().0.iter();
        packed.extend(pairs().map(|[first, second]| first & 15 | second << 4));
        packed.extend(pairs().map(|[first, second]| first >> 4 | second & 0xf0));
    }
    powers(dims, &packed, &exponents)
}

fn small_blocks(parts: &Parts<'_>, packed: &[u8], dims: [usize; 2]) -> Result<StoredTensor, Fault> {
    let scales = parts.need("weight_scale")?;
    let global = parts.floats("weight_global_scale")?;
    let [global] = global[..] else {
        let reason = format!("has {} numbers, expected one", global.len());
        return Err(Fault::new("weight_global_scale", reason));
    };
    if scales.bytes.len() * SMALL_BLOCK != 2 * packed.len() {
        let reason = format!("has {} scales for {} codes", scales.bytes.len(), 2 * packed.len());
        return Err(Fault::new("weight_scale", reason));
    }
    let mut values = Vec::with_capacity(2 * packed.len());
    for (codes, scale) in packed.chunks_exact(SMALL_BLOCK / 2).zip(scales.bytes) {
        let scale = e4m3(*scale) / global / 2.0;
        values.extend(in_order(codes).map(|code| f32::from(DOUBLED[code]) * scale));
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(Fault::new("weight_scale", format!("element {at} is no number"))),
        None => Ok(dense(GgmlDType::BF16, dims, &values)),
    }
}

fn only_bytes(part: &'static str, dtype: Dtype) -> Result<(), Fault> {
    match dtype {
        Dtype::U8 => Ok(()),
        other => Err(Fault::new(part, format!("dtype {other:?} is not supported, expected U8"))),
    }
}

fn bytes_of<'a>(parts: &Parts<'a>, part: &'static str, count: usize) -> Result<&'a [u8], Fault> {
    let tensor = parts.need(part)?;
    if tensor.dtype != Dtype::F8_E8M0 {
        only_bytes(part, tensor.dtype)?;
    }
    if tensor.bytes.len() != count {
        let reason = format!("has {} scales, expected {count}", tensor.bytes.len());
        return Err(Fault::new(part, reason));
    }
    Ok(tensor.bytes)
}

/// Codes in order, the lower half of a byte first.
fn in_order(packed: &[u8]) -> impl Iterator<Item = usize> {
    packed.iter().flat_map(|byte| [usize::from(byte & 15), usize::from(byte >> 4)])
}

/// Blocks of 32 codes and an exponent each, as Q5_0 if all scales are f16, else as bf16.
fn powers(dims: Vec<usize>, packed: &[u8], exponents: &[u8]) -> StoredTensor {
    let blocks = || packed.as_chunks::<{ BLOCK / 2 }>().0.iter().zip(exponents);
    // A number of exponent 127 is itself; half of its scale counts for its double.
    let scale = |exponent: u8| (f32::from(exponent) - 128.0).exp2();
    let exact = |exponent: &u8| {
        let scale = scale(*exponent);
        f16::from_f32(scale).to_f32().to_bits() == scale.to_bits()
    };
    let mut bytes = Vec::with_capacity(exponents.len() * GgmlDType::Q5_0.type_size());
    if exponents.iter().all(exact) {
        for (codes, exponent) in blocks() {
            bytes.extend_from_slice(&f16::from_f32(scale(*exponent)).to_le_bytes());
            put_fives(codes, &mut bytes);
        }
        return StoredTensor::owned(GgmlDType::Q5_0, dims, bytes);
    }
    for (codes, exponent) in blocks() {
        for code in in_order(codes) {
            let value = f32::from(DOUBLED[code]) * scale(*exponent);
            bytes.extend_from_slice(&half::bf16::from_f32(value).to_le_bytes());
        }
    }
    StoredTensor::owned(GgmlDType::BF16, dims, bytes)
}

/// The numbers of a block as Q5_0 has them behind the scale: fifth bits, then the lower four, the
/// first half of the block in the lower halves of the bytes.
fn put_fives(packed: &[u8; BLOCK / 2], to: &mut Vec<u8>) {
    let mut numbers = [0u8; BLOCK];
    for (number, code) in numbers.iter_mut().zip(in_order(packed)) {
        *number = (DOUBLED[code] + 16).unsigned_abs();
    }
    let (first, second) = numbers.split_at(BLOCK / 2);
    let fifths = numbers.iter().rev().fold(0u32, |bits, number| bits << 1 | u32::from(number >> 4));
    to.extend_from_slice(&fifths.to_le_bytes());
    to.extend(first.iter().zip(second).map(|(low, high)| low & 15 | (high & 15) << 4));
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    /// What a code stands for.
    const NUMBERS: [f32; 16] =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

    #[test]
    fn blocks_with_halves_apart_hold_the_same_numbers() {
        let bytes: Vec<u8> = (0..34u8).map(|i| i.wrapping_mul(37).wrapping_add(90)).collect();
        let tensor = mxfp4_blocks(vec![2, 32], &bytes);
        let values = tensor.to_tensor(DType::F32).unwrap().to_vec2::<f32>().unwrap();
        for (row, block) in values.iter().zip(bytes.chunks(17)) {
            let scale = (f32::from(block[0]) - 127.0).exp2();
            let codes = block[1..].iter();
            let codes = codes.clone().map(|byte| byte & 15).chain(codes.map(|byte| byte >> 4));
            let expected: Vec<f32> = codes.map(|code| NUMBERS[usize::from(code)] * scale).collect();
            assert_eq!(*row, expected);
        }
    }

    #[test]
    fn blocks_hold_the_numbers_that_codes_stand_for() {
        let packed: Vec<u8> = (0..32u8).map(|i| i.wrapping_mul(37).wrapping_add(11)).collect();
        for (exponents, kind) in [
            ([127, 121], GgmlDType::Q5_0),
            ([104, 143], GgmlDType::Q5_0),
            ([127, 90], GgmlDType::BF16),
            ([200, 127], GgmlDType::BF16),
        ] {
            let tensor = powers(vec![2, 32], &packed, &exponents);
            assert_eq!((tensor.kind(), tensor.dims()), (kind.into(), &[2, 32][..]));
            let values = tensor.to_tensor(DType::F32).unwrap().to_vec2::<f32>().unwrap();
            for (row, exponent) in values.iter().zip(exponents) {
                let codes = in_order(&packed[if exponent == exponents[0] { 0 } else { 16 }..]);
                for (value, code) in row.iter().zip(codes) {
                    let expected = NUMBERS[code] * (f32::from(exponent) - 127.0).exp2();
                    assert!((value - expected).abs() < f32::EPSILON * expected.abs().max(1e-30));
                }
            }
        }
    }
}
