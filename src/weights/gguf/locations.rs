//! Where each Hugging Face tensor lies in the files, and what undoes its conversion.

use std::collections::HashMap;
use std::ops::Range;

use candle_core::quantized::GgmlDType;

use super::architecture::Architecture;
use super::header::TensorInfo;
use super::keys::HeadCounts;
use super::kinds::Kind;
use super::names::Place;
use super::rope_tensors::{LONG_ROPE_FACTORS, ROPE_FACTORS};

/// One tensor under its Hugging Face name.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// Its part of the file: a tensor, or some rows of one.
    pub(super) info: TensorInfo,
    /// What undoes the conversion.
    pub(super) change: Option<Change>,
}

/// What undoes the conversion of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Pair the halves of each head, of which there are so many.
    InHalves(usize),
    /// Put queries, keys and values of each of so many key heads together.
    ByGroup { query: usize, key: usize },
    /// Take off the 1 that was added.
    MinusOne,
    /// Turn signs round.
    Negated,
}

/// Tensors that checkpoints have as a matrix of one row, files sometimes as a vector.
const ONE_ROW: [&str; 2] =
    ["mlp.shared_expert_gate.weight", "mlp.moe_statics.e_score_correction_bias"];

/// Every tensor of the first `layers` layers, around them and of the head that drafts behind them by its
/// Hugging Face name.
pub(super) fn locations(
    tensors: &[TensorInfo],
    architecture: &Architecture,
    heads: HeadCounts,
    layers: usize,
) -> Result<HashMap<String, Location>, String> {
    let mut locations = HashMap::with_capacity(tensors.len());
    for tensor in tensors.iter().filter(|tensor| !is_configuration(&tensor.name)) {
        // Layers behind the last one draft tokens.
        if layer_of(&tensor.name).is_some_and(|layer| layer >= layers) {
            continue;
        }
        let place = architecture.place(&tensor.name).ok_or_else(|| {
            format!("tensor `{}` is no part of a `{}` model", tensor.name, architecture.gguf)
        })?;
        for (name, location) in located(tensor, &place, architecture, heads)? {
            if locations.insert(name, location).is_some() {
                return Err(format!("tensor `{}` appears twice", tensor.name));
            }
        }
    }
    for (name, location) in draft_head(tensors, architecture, heads, layers)? {
        locations.entry(name).or_insert(location);
    }
    Ok(locations)
}

/// The tensors of the head that drafts: what the architecture has behind the last layer. A second head
/// and further ones draft nothing, and one with a tensor that its architecture lacks computes something
/// else, so that it is left out.
fn draft_head(
    tensors: &[TensorInfo],
    architecture: &Architecture,
    heads: HeadCounts,
    layers: usize,
) -> Result<Vec<(String, Location)>, String> {
    let mut located_tensors = Vec::new();
    let Some(head) = &architecture.draft_head else { return Ok(located_tensors) };
    let behind = tensors.iter().filter(|tensor| layer_of(&tensor.name) == Some(layers));
    for tensor in behind.filter(|tensor| !is_configuration(&tensor.name)) {
        let Some(place) = architecture.place_in_head(&tensor.name, head) else {
            let (name, gguf) = (&tensor.name, architecture.gguf);
            tracing::warn!("the head that drafts is left out: a `{gguf}` has no tensor `{name}`");
            return Ok(Vec::new());
        };
        located_tensors.extend(located(tensor, &place, architecture, heads)?);
    }
    Ok(located_tensors)
}

/// Tensors that are part of the configuration.
fn is_configuration(name: &str) -> bool {
    name == ROPE_FACTORS || LONG_ROPE_FACTORS.contains(&name) || {
        // Some files repeat them for each layer.
        name.starts_with("blk.")
            && (name.ends_with(ROPE_FACTORS)
                || LONG_ROPE_FACTORS.iter().any(|factors| name.ends_with(factors)))
    }
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// The tensors that one of the file stands for.
fn located(
    tensor: &TensorInfo,
    place: &Place,
    architecture: &Architecture,
    heads: HeadCounts,
) -> Result<Vec<(String, Location)>, String> {
    let change = change(tensor, place, architecture, heads)?;
    let mut located = Vec::new();
    let experts = place.names[0].contains('*');
    let each = if experts { each_of_first_dimension(tensor)? } else { vec![tensor.clone()] };
    for (index, info) in each.into_iter().enumerate() {
        let parts = parts(&info, place.names.len(), heads)?;
        for (name, mut info) in place.names.iter().zip(parts) {
            if ONE_ROW.iter().any(|ending| name.ends_with(ending)) && info.shape.len() == 1 {
                info.shape.insert(0, 1);
            }
            if place.part.starts_with("ssm_conv1d_") {
                // Channels and taps, among dimensions of one.
                let taps = info.shape.last().copied().unwrap_or(1).max(1);
                let channels = info.shape.iter().product::<usize>() / taps;
                info.shape = vec![channels, 1, taps];
            }
            if place.part == "ssm_norm" {
                // A row for each group; checkpoints have one of all.
                info.shape = vec![info.shape.iter().product()];
            }
            let name = name.replace('*', &index.to_string());
            located.push((name, Location { info, change }));
        }
    }
    Ok(located)
}

/// What undoes the conversion, if the tensor's rows are as many as that needs.
pub(super) fn change(
    tensor: &TensorInfo,
    place: &Place,
    architecture: &Architecture,
    heads: HeadCounts,
) -> Result<Option<Change>, String> {
    let part = place.part.as_str();
    // That of what a recurrence gives is as in the checkpoint.
    let norm = part.ends_with("norm") && tensor.name.ends_with(".weight") && part != "ssm_norm";
    Ok(match part {
        _ if norm && architecture.norms_plus_one => Some(Change::MinusOne),
        "ssm_a" if architecture.gguf == "bailingmoe3" => Some(Change::Negated),
        // Which layer has how many is known when it is loaded.
        "attn_q" | "attn_k" if architecture.gguf == "deci" => {
            let rows = tensor.shape.first().copied().unwrap_or(0);
            check_rows(tensor, rows / heads.dim, heads.dim)?;
            Some(Change::InHalves(rows / heads.dim))
        }
        "attn_q" if architecture.interleaved_rope => {
            check_rows(tensor, heads.query, heads.dim)?;
            Some(Change::InHalves(heads.query))
        }
        "attn_k" if architecture.interleaved_rope => {
            check_rows(tensor, heads.key, heads.dim)?;
            Some(Change::InHalves(heads.key))
        }
        "attn_qkv" if matches!(architecture.gguf, "gptneox" | "bloom" | "falcon") => {
            let HeadCounts { query, key, dim, .. } = heads;
            check_rows(tensor, query + 2 * key, dim)?;
            Some(Change::ByGroup { query, key })
        }
        _ => None,
    })
}

/// Whether the tensor's rows divide into heads.
fn check_rows(tensor: &TensorInfo, heads: usize, dim: usize) -> Result<(), String> {
    let found = tensor.shape.first().copied().unwrap_or(0);
    if heads.checked_mul(dim) == Some(found) {
        return Ok(());
    }
    Err(format!("tensor `{}` has {found} rows, expected {heads} heads of {dim} rows", tensor.name))
}

/// The parts of a tensor along its first dimension, one for each index: matrices, or biases.
fn each_of_first_dimension(tensor: &TensorInfo) -> Result<Vec<TensorInfo>, String> {
    let bias = tensor.name.rsplit('.').next() == Some("bias");
    let (count, rows, shape) = match (tensor.shape.as_slice(), bias) {
        (&[count, rows, columns], false) => (count, rows, vec![count * rows, columns]),
        (&[count, rows], true) if tensor.kind.is_single() => (count, rows, vec![count * rows]),
        (shape, _) => {
            return Err(format!(
                "tensor `{}` is {:?} of shape {shape:?}, expected experts, outputs and inputs or, in \
                 a bias without blocks, experts and outputs",
                tensor.name, tensor.kind
            ));
        }
    };
    let flat = TensorInfo { shape, ..tensor.clone() };
    Ok((0..count).map(|index| some_rows(&flat, index * rows..(index + 1) * rows)).collect())
}

/// The tensor whole, its halves, or its rows of queries, keys and values.
fn parts(tensor: &TensorInfo, count: usize, heads: HeadCounts) -> Result<Vec<TensorInfo>, String> {
    let rows = tensor.shape.first().copied().unwrap_or(0);
    match count {
        1 => Ok(vec![tensor.clone()]),
        2 if rows.is_multiple_of(2) => {
            Ok(vec![some_rows(tensor, 0..rows / 2), some_rows(tensor, rows / 2..rows)])
        }
        2 => Err(format!("tensor `{}` has {rows} rows, expected two halves", tensor.name)),
        _ => {
            let HeadCounts { query, key, dim, value, .. } = heads;
            let keys = query * dim;
            // Where values are smaller than keys, layers differ.
            let count = if value == dim {
                check_rows(tensor, query + 2 * key, dim)?;
                key
            } else {
                rows.saturating_sub(keys) / (dim + value)
            };
            let values = keys + count * dim;
            if count == 0 || values + count * value != rows {
                return Err(format!(
                    "tensor `{}` has {rows} rows, expected {query} queries of {dim}, and as many keys \
                     of {dim} as values of {value}",
                    tensor.name
                ));
            }
            let ranges = [0..keys, keys..values, values..rows];
            Ok(ranges.map(|range| some_rows(tensor, range)).to_vec())
        }
    }
}

/// Rows of a matrix, or elements of a vector whose elements are stored one by one.
fn some_rows(tensor: &TensorInfo, rows: Range<usize>) -> TensorInfo {
    let row_bytes = tensor.bytes.len() / tensor.shape[0];
    let start = tensor.bytes.start;
    let mut shape = tensor.shape.clone();
    shape[0] = rows.len();
    TensorInfo {
        shape,
        bytes: start + rows.start * row_bytes..start + rows.end * row_bytes,
        ..tensor.clone()
    }
}

/// The numbers of a small tensor that is part of the configuration.
pub(super) fn floats(bytes: &[u8], tensor: &TensorInfo) -> Result<Vec<f32>, String> {
    if tensor.kind != Kind::Ggml(GgmlDType::F32) || tensor.shape.len() != 1 {
        return Err(format!(
            "`{}` is {:?} of shape {:?}, expected F32 with one dimension",
            tensor.name, tensor.kind, tensor.shape
        ));
    }
    let numbers = bytes[tensor.bytes.clone()].chunks_exact(4);
    Ok(numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}
