//! The header of a safetensors file, and what is wrong with one that can't be read.
//!
//! The format's own crate decides whether a header is valid; this file turns its verdict into a
//! message that names the tensor, what was found and what was expected.

use safetensors::SafeTensors;
use safetensors::tensor::{Metadata, SafeTensorError};
use serde_json::Value;

use crate::error::WeightError;
use crate::file_bytes::FileBytes;
use crate::folder::json_kind;

/// Bytes of the little-endian header length at the start of the file.
const LENGTH_BYTES: usize = 8;

/// A header that fits its file: every tensor's range lies inside, none overlap.
pub(crate) struct Header {
    pub(crate) metadata: Metadata,
    /// Where tensor data starts, in bytes from the start of the file.
    pub(crate) data_start: usize,
}

/// Reads and checks the header of `file`.
pub(crate) fn read(file: &FileBytes) -> Result<Header, WeightError> {
    let bytes = file.bytes();
    match SafeTensors::read_metadata(bytes) {
        Ok((length, metadata)) => Ok(Header { metadata, data_start: LENGTH_BYTES + length }),
        Err(error) => Err(WeightError::corrupt(file.path(), explain(bytes, &error))),
    }
}

fn explain(bytes: &[u8], error: &SafeTensorError) -> String {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return format!("{} bytes are no safetensors file: truncated?", bytes.len());
    };
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"\x80\x02") {
        return "this is a pickle checkpoint with a .safetensors name; convert it".to_owned();
    }
    if bytes.starts_with(b"<!DOCTYPE") || bytes.starts_with(b"<html") {
        return "this is an HTML page, not a safetensors file; download it again".to_owned();
    }
    let length = u64::from_le_bytes(*length);
    let room = (bytes.len() - LENGTH_BYTES) as u64;
    if length > room {
        return format!(
            "the header claims {length} bytes, the file has {room} after its length field: \
             truncated, or not a safetensors file"
        );
    }
    let end = LENGTH_BYTES + usize::try_from(length).expect("below the file's length");
    let data = (bytes.len() - end) as u64;
    match serde_json::from_slice::<Value>(&bytes[LENGTH_BYTES..end]) {
        Ok(header) => explain_tensors(&header, data)
            .unwrap_or_else(|| format!("the safetensors header is not valid: {error}")),
        Err(_) => format!("the safetensors header is not valid: {error}"),
    }
}

/// The first thing that is wrong with the tensors of a header that is JSON.
fn explain_tensors(header: &Value, data: u64) -> Option<String> {
    let Some(entries) = header.as_object() else {
        return Some(format!("the header is {}, expected an object", json_kind(header)));
    };
    let mut ranges = Vec::with_capacity(entries.len());
    for (name, entry) in entries.iter().filter(|(name, _)| *name != "__metadata__") {
        match range_of(entry) {
            Ok(range) => ranges.push((range, name)),
            Err(reason) => return Some(format!("tensor `{name}` in the header {reason}")),
        }
    }
    ranges.sort_unstable();
    let needed = ranges.last().map_or(0, |((_, end), _)| *end);
    if needed > data {
        return Some(format!(
            "the tensors need {needed} bytes of data, the file has {data}: truncated, or an \
             incomplete download"
        ));
    }
    let mut expected = 0;
    for ((start, end), name) in ranges {
        if start != expected {
            return Some(format!(
                "tensor `{name}` starts at data byte {start}, expected {expected}: tensors \
                 overlap or leave a gap"
            ));
        }
        expected = end;
    }
    let extra = data - needed;
    (extra > 0).then(|| format!("{extra} bytes follow the last tensor, expected none"))
}

/// The data range of one header entry, checked against its shape and dtype.
fn range_of(entry: &Value) -> Result<(u64, u64), String> {
    let offset = |index: usize| entry["data_offsets"].get(index).and_then(Value::as_u64);
    let (Some(start), Some(end)) = (offset(0), offset(1)) else {
        return Err("has no valid `data_offsets`, expected [start, end]".to_owned());
    };
    if end < start {
        return Err(format!("has data_offsets [{start}, {end}], expected start <= end"));
    }
    let dtype = entry["dtype"].as_str().ok_or("has no `dtype`")?;
    let bits = bits_of(dtype).ok_or_else(|| format!("has the unknown dtype `{dtype}`"))?;
    let shape = entry["shape"].as_array().ok_or("has no `shape`")?;
    let elements = shape.iter().try_fold(1u64, |product, size| product.checked_mul(size.as_u64()?));
    let size = elements.and_then(|count| count.checked_mul(bits)).map(|bits| bits / 8);
    let shape = &entry["shape"];
    match size {
        None => Err(format!("has the shape {shape}, which no file can hold")),
        Some(size) if size != end - start => Err(format!(
            "has {} bytes of data, expected {size} for dtype {dtype} and shape {shape}",
            end - start
        )),
        Some(_) => Ok((start, end)),
    }
}

fn bits_of(dtype: &str) -> Option<u64> {
    let name = Value::String(dtype.to_owned());
    let dtype: safetensors::Dtype = serde_json::from_value(name).ok()?;
    Some(dtype.bitsize() as u64)
}
