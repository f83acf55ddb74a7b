//! A GGUF file with its matrices in another kind: the metadata stays as it is, but for the kind's number.
//!
//! What is rounded, and to what, is as when a model is loaded with its matrices rounded to the kind: dense
//! matrices alone, embeddings and the output head to about eight bits at least, rows that blocks don't divide
//! to the next kind that does. So the file gives the same logits as the file it is made of with that rounding.

use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;

use super::cursor::Cursor;
use super::header::{self, TensorInfo};
use super::kinds::Kind;
use super::split;
use super::value::Value;
use super::write::entries::{Entries, Entry};
use super::write::output::{self, Planned};
use crate::error::WeightError;
use crate::file_bytes::FileBytes;
use crate::stored::StoredTensor;

/// The metadata entry that says what most matrices are stored as.
pub(super) const FILE_TYPE: &str = "general.file_type";
const ALIGNMENT_KEY: &str = "general.alignment";
/// Tensors that are matrices by their shape, but no product is computed with them; and routers, which stay as
/// they are when a model is loaded.
const DENSE: [&str; 8] = [
    "position_embd",
    "token_types",
    "_norm",
    "ssm_conv1d",
    "shortconv.conv",
    "rope_",
    "ssm_a",
    "ffn_gate_inp",
];

/// A tensor as it will be written.
struct Plan {
    info: TensorInfo,
    target: Option<GgmlDType>,
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
    let plans: Vec<Plan> = header.tensors.iter().map(|info| plan(info, kind)).collect();
    if plans.iter().all(|plan| plan.target.is_none()) {
        let reason = "it has no dense matrices to round; what is quantized can't be rounded again";
        return Err(WeightError::corrupt(from, reason));
    }
    let head = head(file.bytes(), &plans, kind).map_err(corrupt)?;
    output::create(to, |out| {
        out.write(&head)?;
        let all = plans.iter().map(|plan| plan.info.bytes.len() as u64).sum();
        let mut read = 0;
        for Plan { info, target } in &plans {
            match (target, info.kind) {
                (Some(target), Kind::Ggml(kind)) => {
                    let (shape, range) = (info.shape.clone(), info.bytes.clone());
                    let stored = StoredTensor::in_file(kind, shape, file.clone(), range);
                    out.write_rounded(&stored, info.shape.last().copied().unwrap_or(1), *target)?;
                }
                _ => out.write(&file.bytes()[info.bytes.clone()])?,
            }
            out.align()?;
            read += info.bytes.len() as u64;
            progress(read, all);
            file.release(info.bytes.clone());
        }
        Ok(())
    })
}

fn plan(info: &TensorInfo, kind: GgmlDType) -> Plan {
    let target = target(info, kind).filter(|target| Kind::Ggml(*target) != info.kind);
    Plan { info: info.clone(), target }
}

/// What a tensor is rounded to.
pub(super) fn target(info: &TensorInfo, kind: GgmlDType) -> Option<GgmlDType> {
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
    let (mut kept, mut count) = (Vec::new(), 0);
    for _ in 0..entries {
        let start = cursor.position();
        let key = cursor.text()?.into_owned();
        Value::read(&mut cursor)?;
        if key != FILE_TYPE && key != ALIGNMENT_KEY {
            kept.extend_from_slice(cursor.since(start));
            count += 1;
        }
    }
    let mut own = Entries::default();
    if let Some(number) = file_type(kind) {
        own.add(FILE_TYPE, Entry::U32(number));
        count += 1;
    }
    kept.extend(own.encode());
    let planned = plans.iter().map(|plan| Planned {
        name: plan.info.name.clone(),
        shape: plan.info.shape.clone(),
        kind: plan.target.map_or(plan.info.kind, Kind::Ggml),
    });
    output::head(count, &kept, &planned.collect::<Vec<_>>())
}

/// llama.cpp's number for files whose matrices are mostly of a kind.
pub(super) fn file_type(kind: GgmlDType) -> Option<u32> {
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
