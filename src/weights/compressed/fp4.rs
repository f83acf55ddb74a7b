//! 4-bit floats (e2m1) in blocks that share a scale: MXFP4 and NVFP4.
//!
//! Open Compute Project, "OCP Microscaling Formats (MX) Specification", 2023: 32 numbers share a
//! power of two, as in the GGUF kind of that name. NVFP4: 16 numbers share an 8-bit float, and all of them one more
//! factor.

use candle_core::quantized::GgmlDType;
use safetensors::tensor::Dtype;
use sconce_blocks::Coded;

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

/// Blocks of 32 codes and an exponent each, as GGUF has them: the exponent, and then the first half of the codes in
/// the lower halves of the bytes, the second half in the others.
fn powers(dims: Vec<usize>, packed: &[u8], exponents: &[u8]) -> StoredTensor {
    let mut bytes = Vec::with_capacity(exponents.len() * Coded::Mxfp4.type_size());
    for (codes, exponent) in packed.as_chunks::<{ BLOCK / 2 }>().0.iter().zip(exponents) {
        bytes.push(*exponent);
        let (first, second) = codes.split_at(BLOCK / 4);
        for (first, second) in first.iter().zip(second) {
            bytes.push(first & 15 | second << 4);
            bytes.push(first >> 4 | second & 0xf0);
        }
    }
    StoredTensor::owned(Coded::Mxfp4, dims, bytes)
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    /// What a code stands for.
    const NUMBERS: [f32; 16] =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

    #[test]
    fn blocks_hold_the_numbers_that_codes_stand_for() {
        let packed: Vec<u8> = (0..32u8).map(|i| i.wrapping_mul(37).wrapping_add(11)).collect();
        for exponents in [[127, 121], [104, 143], [127, 90], [200, 127], [0, 1]] {
            let tensor = powers(vec![2, 32], &packed, &exponents);
            assert_eq!((tensor.kind(), tensor.dims()), (Coded::Mxfp4.into(), &[2, 32][..]));
            let values = tensor.to_tensor(DType::F32).unwrap().to_vec2::<f32>().unwrap();
            for (row, exponent) in values.iter().zip(exponents) {
                let codes = in_order(&packed[if exponent == exponents[0] { 0 } else { 16 }..]);
                for (value, code) in row.iter().zip(codes) {
                    let expected = f64::from(NUMBERS[code]) * (f64::from(exponent) - 127.0).exp2();
                    let off = f64::from(*value) - expected;
                    assert!(off == 0.0, "exponent {exponent}, code {code}: {value}");
                }
            }
        }
    }
}
