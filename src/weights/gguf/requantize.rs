//! A GGUF file with its matrices in another kind: the metadata stays as it is, but for the kind's number.
//!
//! What is rounded, and to what, is as when a model is loaded with its matrices rounded to the kind: dense
//! matrices alone, embeddings and the output head to about eight bits at least, rows that blocks don't divide
//! to the next kind that does. So the file gives the same logits as the file it is made of with that rounding.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use candle_core::DType;
use candle_core::quantized::{GgmlDType, QTensor};

use super::cursor::Cursor;
use super::header::{self, TensorInfo};
use super::kinds::{self, Kind};
use super::split;
use super::value::Value;
use crate::error::WeightError;
use crate::file_bytes::FileBytes;
use crate::stored::StoredTensor;
use crate::tensors::bytes_of;

/// The version of the format that is written.
const VERSION: u32 = 3;
const ALIGNMENT: usize = 32;
/// The metadata entry that says what most matrices are stored as, and the type of its value.
const FILE_TYPE: &str = "general.file_type";
const ALIGNMENT_KEY: &str = "general.alignment";
const U32: u32 = 4;
/// Tensors that are matrices by their shape, but no product is computed with them.
const DENSE: [&str; 7] =
    ["position_embd", "token_types", "_norm", "ssm_conv1d", "shortconv.conv", "rope_", "ssm_a"];
/// Elements that are rounded at a time, so that no tensor is in memory as a whole twice.
const STEP: usize = 1 << 22;

/// A tensor as it will be written.
struct Plan {
    info: TensorInfo,
    target: Option<GgmlDType>,
    offset: usize,
    bytes: usize,
}

/// Writes the model of `from` to `to` with its dense matrices in `kind`; `progress` is told of bytes that were
/// read and of all. A file that is there already is not touched.
///
/// # Errors
/// `from` is no GGUF file, or one of several; its matrices are quantized already; `to` exists or can't be
/// written. What was written is removed then.
pub fn requantize(
    from: &Path,
    to: &Path,
    kind: GgmlDType,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), WeightError> {
    let name = from.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if split::parts(name).is_some() {
        let reason = "it is a part of a model in several files; merge them first";
        return Err(WeightError::corrupt(from, reason));
    }
    let file = Arc::new(FileBytes::open(from)?);
    let corrupt = |reason: String| WeightError::corrupt(from, reason);
    let header = header::read(file.bytes()).map_err(corrupt)?;
    let plans = plan(&header.tensors, kind).map_err(corrupt)?;
    if plans.iter().all(|plan| plan.target.is_none()) {
        let reason = "it has no dense matrices to round; what is quantized can't be rounded again";
        return Err(WeightError::corrupt(from, reason));
    }
    let head = head(file.bytes(), &plans, kind).map_err(corrupt)?;
    let failed = |source| WeightError::io(to, source);
    let written = File::create_new(to).map_err(failed)?;
    let write = || -> Result<(), WeightError> {
        let mut out = BufWriter::new(written);
        out.write_all(&head).map_err(failed)?;
        let all = plans.iter().map(|plan| plan.info.bytes.len() as u64).sum();
        let mut read = 0;
        for plan in &plans {
            write_tensor(&mut out, plan, &file, to)?;
            out.write_all(&vec![0; padding(plan.bytes, ALIGNMENT)]).map_err(failed)?;
            read += plan.info.bytes.len() as u64;
            progress(read, all);
            file.release(plan.info.bytes.clone());
        }
        out.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)
    };
    let done = write();
    if done.is_err() {
        // A part of a file helps nobody.
        let _ = std::fs::remove_file(to);
    }
    done
}

fn plan(tensors: &[TensorInfo], kind: GgmlDType) -> Result<Vec<Plan>, String> {
    let mut offset = 0;
    let mut plans = Vec::with_capacity(tensors.len());
    for info in tensors {
        let target = target(info, kind).filter(|target| Kind::Ggml(*target) != info.kind);
        let bytes = match target {
            Some(target) => {
                let bytes = kinds::byte_size(Kind::Ggml(target), &info.shape)?;
                usize::try_from(bytes).map_err(|_| format!("`{}` is too large", info.name))?
            }
            None => info.bytes.len(),
        };
        plans.push(Plan { info: info.clone(), target, offset, bytes });
        offset += bytes + padding(bytes, ALIGNMENT);
    }
    Ok(plans)
}

/// What a tensor is rounded to.
fn target(info: &TensorInfo, kind: GgmlDType) -> Option<GgmlDType> {
    let matrix = info.shape.len() >= 2 && info.shape.iter().filter(|dim| **dim > 1).count() >= 2;
    let dense = DENSE.iter().any(|part| info.name.contains(part));
    if !matrix || dense || !info.kind.is_single() {
        return None;
    }
    let outer = ["token_embd", "output", "per_layer_token_embd"];
    let outer = outer.iter().any(|name| info.name == format!("{name}.weight"));
    let kind = match kind {
        GgmlDType::Q4K
        | GgmlDType::Q5K
        | GgmlDType::Q4_0
        | GgmlDType::Q4_1
        | GgmlDType::Q5_0
        | GgmlDType::Q5_1
            if outer =>
        {
            GgmlDType::Q6K
        }
        kind => kind,
    };
    Some(fitting(kind, info.shape.last().copied().unwrap_or(1)))
}

/// The kind nearest to `kind` whose blocks divide rows of `columns` elements.
pub fn fitting(kind: GgmlDType, columns: usize) -> GgmlDType {
    let smaller = match kind {
        GgmlDType::Q4K => GgmlDType::Q5_0,
        GgmlDType::Q5K => GgmlDType::Q5_1,
        GgmlDType::Q6K => GgmlDType::Q8_0,
        other => other,
    };
    let fits = |kind: &GgmlDType| columns.is_multiple_of(kind.block_size());
    [kind, smaller].into_iter().find(fits).unwrap_or(GgmlDType::BF16)
}

/// Everything before the data: the metadata as it was, and where tensors are now.
fn head(bytes: &[u8], plans: &[Plan], kind: GgmlDType) -> Result<Vec<u8>, String> {
    let mut cursor = Cursor::new(bytes);
    // The magic and the version, which were checked.
    cursor.take(8)?;
    let (_, entries) = (cursor.u64()?, cursor.u64()?);
    let (mut kept, mut count) = (Vec::new(), 0_u64);
    for _ in 0..entries {
        let start = cursor.position();
        let key = cursor.text()?.into_owned();
        Value::read(&mut cursor)?;
        if key != FILE_TYPE && key != ALIGNMENT_KEY {
            kept.extend_from_slice(cursor.since(start));
            count += 1;
        }
    }
    if let Some(number) = file_type(kind) {
        text(&mut kept, FILE_TYPE);
        kept.extend(U32.to_le_bytes());
        kept.extend(number.to_le_bytes());
        count += 1;
    }
    let mut head = b"GGUF".to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((plans.len() as u64).to_le_bytes());
    head.extend(count.to_le_bytes());
    head.extend(kept);
    for plan in plans {
        text(&mut head, &plan.info.name);
        let dims = u32::try_from(plan.info.shape.len()).map_err(|error| error.to_string())?;
        head.extend(dims.to_le_bytes());
        for dim in plan.info.shape.iter().rev() {
            head.extend((*dim as u64).to_le_bytes());
        }
        let kind = plan.target.map_or(plan.info.kind, Kind::Ggml);
        head.extend(kinds::number(kind).to_le_bytes());
        head.extend((plan.offset as u64).to_le_bytes());
    }
    head.extend(vec![0; padding(head.len(), ALIGNMENT)]);
    Ok(head)
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn padding(length: usize, alignment: usize) -> usize {
    length.next_multiple_of(alignment) - length
}

fn write_tensor(
    out: &mut impl Write,
    plan: &Plan,
    file: &Arc<FileBytes>,
    to: &Path,
) -> Result<(), WeightError> {
    let failed = |source| WeightError::io(to, source);
    let (Some(target), Kind::Ggml(kind)) = (plan.target, plan.info.kind) else {
        return out.write_all(&file.bytes()[plan.info.bytes.clone()]).map_err(failed);
    };
    let columns = plan.info.shape.last().copied().unwrap_or(1);
    let rows: usize = plan.info.shape.iter().product::<usize>() / columns.max(1);
    let step = (STEP / columns.max(1)).max(1);
    let stored =
        StoredTensor::in_file(kind, vec![rows, columns], file.clone(), plan.info.bytes.clone());
    for start in (0..rows).step_by(step) {
        let some = start..rows.min(start + step);
        let part = stored.rows(std::slice::from_ref(&some))?;
        let wide = part.to_tensor(DType::F32)?;
        let dense = match target {
            GgmlDType::F32 => Some(DType::F32),
            GgmlDType::F16 => Some(DType::F16),
            GgmlDType::BF16 => Some(DType::BF16),
            _ => None,
        };
        let bytes = match dense {
            Some(dtype) => bytes_of(&wide.to_dtype(dtype)?)?.map(|(_, bytes)| bytes),
            None => Some(QTensor::quantize(&wide, target)?.data()?.into_owned()),
        };
        out.write_all(&bytes.unwrap_or_default()).map_err(failed)?;
    }
    Ok(())
}

/// llama.cpp's number for files whose matrices are mostly of a kind.
fn file_type(kind: GgmlDType) -> Option<u32> {
    Some(match kind {
        GgmlDType::F32 => 0,
        GgmlDType::F16 => 1,
        GgmlDType::Q4_0 => 2,
        GgmlDType::Q4_1 => 3,
        GgmlDType::Q8_0 => 7,
        GgmlDType::Q5_0 => 8,
        GgmlDType::Q5_1 => 9,
        GgmlDType::Q4K => 15,
        GgmlDType::Q5K => 17,
        GgmlDType::Q6K => 18,
        GgmlDType::BF16 => 32,
        _ => return None,
    })
}
