//! Codes packed into 32-bit words, in the orders of GPTQ, AWQ and compressed-tensors.
//!
//! Frantar et al., "GPTQ", 2022 (layout of AutoGPTQ); Lin et al., "AWQ", 2023 (layout of its GEMM
//! kernels); the `pack-quantized` and `int-quantized` formats of compressed-tensors.

use safetensors::tensor::Dtype;

use super::codes::Codes;
use super::parts::{Fault, Parts};

/// Which output each 4-bit code of a word belongs to.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// `qweight [inputs / codes per word, outputs]`, `qzeros [groups, outputs / codes per word]`,
/// `scales [groups, outputs]`, perhaps `g_idx [inputs]`.
pub(super) fn gptq(parts: &Parts<'_>, zero_offset: u8) -> Result<Codes, Fault> {
    let (words, word_rows, outputs) = parts.words("qweight")?;
    let (zero_words, groups, zero_columns) = parts.words("qzeros")?;
    let per_word = per_word(outputs, zero_columns, "qzeros")?;
    let (bits, inputs) = (32 / per_word, word_rows * per_word);
    let mut elements = vec![0; outputs * inputs];
    for (row, words) in words.chunks_exact(outputs.max(1)).enumerate() {
        for (output, word) in words.iter().enumerate() {
            for at in 0..per_word {
                elements[output * inputs + row * per_word + at] = code(*word, at, bits);
            }
        }
    }
    let mut zeros = vec![0; outputs * groups];
    for (group, words) in zero_words.chunks_exact(zero_columns.max(1)).enumerate() {
        for output in 0..outputs {
            let zero = code(words[output / per_word], output % per_word, bits);
            zeros[output * groups + group] = zero.checked_add(zero_offset).ok_or_else(|| {
                Fault::new("qzeros", format!("the zero point {zero} plus {zero_offset} is 256"))
            })?;
        }
    }
    let scales = transposed(&parts.floats("scales")?, groups, outputs, "scales")?;
    let group_of = group_of(parts, "g_idx", inputs, groups)?;
    Ok(Codes { outputs, inputs, bits, elements, groups, zeros, scales, group_of })
}

/// `qweight [inputs, outputs / 8]`, `qzeros [groups, outputs / 8]`, `scales [groups, outputs]`.
pub(super) fn awq(parts: &Parts<'_>) -> Result<Codes, Fault> {
    let (words, inputs, columns) = parts.words("qweight")?;
    let (zero_words, groups, zero_columns) = parts.words("qzeros")?;
    if zero_columns != columns {
        let reason = format!("has {zero_columns} columns, expected {columns} as qweight");
        return Err(Fault::new("qzeros", reason));
    }
    let outputs = columns * AWQ_ORDER.len();
    // Rows of words to rows of outputs: [rows, outputs] becomes [outputs, rows].
    let spread = |words: &[u32], rows: usize| {
        let mut spread = vec![0; outputs * rows];
        for (row, words) in words.chunks_exact(columns.max(1)).enumerate() {
            for (column, word) in words.iter().enumerate() {
                for (at, output) in AWQ_ORDER.iter().enumerate() {
                    spread[(column * 8 + output) * rows + row] = code(*word, at, 4);
                }
            }
        }
        spread
    };
    Ok(Codes {
        outputs,
        inputs,
        bits: 4,
        elements: spread(&words, inputs),
        groups,
        zeros: spread(&zero_words, groups),
        scales: transposed(&parts.floats("scales")?, groups, outputs, "scales")?,
        group_of: None,
    })
}

/// `weight_packed [outputs, words]`, `weight_scale [outputs, groups]`, `weight_shape`, perhaps
/// `weight_zero_point [words, groups]` and `weight_g_idx [inputs]`.
pub(super) fn compressed_tensors(parts: &Parts<'_>) -> Result<Codes, Fault> {
    let (words, outputs, columns) = parts.words("weight_packed")?;
    let shape = parts.need("weight_shape")?.words().unwrap_or_default();
    // The shape is in 64-bit words: every second one of 32 is the upper half.
    let inputs = match shape[..] {
        [_, inputs] | [_, _, inputs, 0] => inputs as usize,
        _ => return Err(Fault::new("weight_shape", "is no pair of sizes")),
    };
    let per_word = per_word(inputs, columns, "weight_packed")?;
    let bits = 32 / per_word;
    let mut elements = Vec::with_capacity(outputs * inputs);
    for words in words.chunks_exact(columns.max(1)) {
        elements
            .extend((0..inputs).map(|input| code(words[input / per_word], input % per_word, bits)));
    }
    let scales = parts.floats("weight_scale")?;
    if outputs == 0 || !scales.len().is_multiple_of(outputs) {
        let reason = format!("has {} numbers for {outputs} outputs", scales.len());
        return Err(Fault::new("weight_scale", reason));
    }
    let groups = scales.len() / outputs;
    let mut zeros = vec![1 << (bits - 1); outputs * groups];
    if parts.get("weight_zero_point").is_some() {
        let (words, rows, columns) = parts.words("weight_zero_point")?;
        if rows * per_word < outputs || columns != groups {
            let reason = format!("has shape [{rows}, {columns}] for {outputs} outputs");
            return Err(Fault::new("weight_zero_point", reason));
        }
        for (at, zero) in zeros.iter_mut().enumerate() {
            let (output, group) = (at / groups, at % groups);
            *zero = code(words[output / per_word * groups + group], output % per_word, bits);
        }
    }
    let group_of = group_of(parts, "weight_g_idx", inputs, groups)?;
    Ok(Codes { outputs, inputs, bits, elements, groups, zeros, scales, group_of })
}

/// `weight [outputs, inputs]` of signed bytes, `weight_scale` with one number for all or for each
/// output.
pub(super) fn int8(parts: &Parts<'_>) -> Result<Codes, Fault> {
    let (weight, outputs, inputs) = parts.matrix("weight")?;
    let scales = match parts.floats("weight_scale")?[..] {
        [scale] => vec![scale; outputs],
        ref scales => scales.to_vec(),
    };
    if weight.dtype != Dtype::I8 {
        let reason = format!("dtype {:?} is not supported, expected I8", weight.dtype);
        return Err(Fault::new("weight", reason));
    }
    Ok(Codes {
        outputs,
        inputs,
        bits: 8,
        elements: weight.bytes.iter().map(|byte| byte ^ 0x80).collect(),
        groups: 1,
        zeros: vec![128; outputs],
        scales,
        group_of: None,
    })
}

/// The code at a place of a word, counted from the lowest bits.
fn code(word: u32, at: usize, bits: usize) -> u8 {
    u8::try_from(word >> (at * bits) & ((1 << bits) - 1)).expect("at most 8 bits")
}

/// How many codes a word holds, if `count` of them are in `words`.
fn per_word(count: usize, words: usize, part: &'static str) -> Result<usize, Fault> {
    [8, 4].into_iter().find(|per_word| count.div_ceil(*per_word) == words).ok_or_else(|| {
        let reason = format!("{count} codes in {words} words; 4 and 8 bits are supported");
        Fault::new(part, reason)
    })
}

/// `[rows, columns]` as `[columns, rows]`.
fn transposed(
    values: &[f32],
    rows: usize,
    columns: usize,
    part: &'static str,
) -> Result<Vec<f32>, Fault> {
    if values.len() != rows * columns {
        let reason = format!("has {} numbers, expected {rows} times {columns}", values.len());
        return Err(Fault::new(part, reason));
    }
    let transposed =
        (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    Ok(transposed.map(|at| values[at]).collect())
}

/// The group of each input, unless groups are runs of inputs.
fn group_of(
    parts: &Parts<'_>,
    part: &'static str,
    inputs: usize,
    groups: usize,
) -> Result<Option<Vec<usize>>, Fault> {
    let Some(tensor) = parts.get(part) else { return Ok(None) };
    let words = tensor.words().filter(|words| words.len() == inputs);
    let Some(words) = words else {
        let reason = format!("has shape {:?}, expected [{inputs}] of I32", tensor.shape);
        return Err(Fault::new(part, reason));
    };
    // Without an order of their own, some writers put -1 here.
    let absent = words.iter().all(|word| *word == u32::MAX);
    let group_of: Vec<usize> = words.into_iter().map(|word| word as usize).collect();
    let run = inputs.div_ceil(groups.max(1)).max(1);
    let in_order = group_of.iter().enumerate().all(|(input, group)| *group == input / run);
    Ok((!absent && !in_order).then_some(group_of))
}
