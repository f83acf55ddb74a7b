//! The header of a GGUF file: metadata, and where each tensor lies.
//!
//! Everything is checked against the file's size before it is used: counts, lengths, offsets,
//! alignment, overlaps. Versions 2 and 3, little-endian.
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::HashSet;
use std::ops::Range;

use super::cursor::Cursor;
use super::kinds::{self, Kind};
use super::value::{Metadata, Value};

const DEFAULT_ALIGNMENT: u64 = 32;
/// The tensor library reads blocks where they lie, and the widest number in one has 8 bytes.
const MIN_ALIGNMENT: u64 = 8;
const MAX_ALIGNMENT: u64 = 1 << 20;
const MAX_DIMS: u32 = 4;
/// Key length, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Name length, number of dimensions, kind, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// A header that fits its file.
#[derive(Debug)]
pub(crate) struct Header<'a> {
    pub(crate) metadata: Metadata<'a>,
    pub(crate) tensors: Vec<TensorInfo>,
}

/// One tensor of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorInfo {
    /// The tensor's GGUF name.
    pub(crate) name: String,
    /// Outermost dimension first, as everywhere in this program (the file has it reversed).
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: Kind,
    /// From the start of the file.
    pub(crate) bytes: Range<usize>,
    /// The index, among the model's files, of the one that the tensor is in.
    pub(crate) file: usize,
}

/// A tensor as declared, before its range is checked.
struct Declared {
    name: String,
    shape: Vec<usize>,
    kind: Kind,
    offset: u64,
}

/// Reads the header of a whole file.
pub(crate) fn read(bytes: &[u8]) -> Result<Header<'_>, String> {
    read_beginning(bytes, bytes.len() as u64)
}

/// Reads the header of a file of this size that begins with `bytes`.
pub(super) fn read_beginning(bytes: &[u8], size: u64) -> Result<Header<'_>, String> {
    let mut cursor = Cursor::new(bytes);
    check_magic(&mut cursor)?;
    let tensor_count = cursor.u64()?;
    let entry_count = cursor.u64()?;
    let needed = entry_count
        .saturating_mul(MIN_ENTRY_BYTES)
        .saturating_add(tensor_count.saturating_mul(MIN_TENSOR_BYTES));
    if needed > cursor.remaining() {
        return Err(format!(
            "{tensor_count} tensors and {entry_count} metadata entries need at least {needed} \
             bytes, {} remain: truncated or corrupt",
            cursor.remaining()
        ));
    }
    let mut metadata = Metadata::default();
    for index in 0..entry_count {
        let key = cursor.text().map_err(|error| format!("metadata key {index}: {error}"))?;
        let value =
            Value::read(&mut cursor).map_err(|error| format!("metadata `{key}` {error}"))?;
        metadata.insert(key, value)?;
    }
    let mut declared = Vec::new();
    for index in 0..tensor_count {
        declared.push(tensor(&mut cursor).map_err(|error| format!("tensor {index}: {error}"))?);
    }
    let alignment = alignment(&metadata)?;
    let data_start = (cursor.position() as u64).next_multiple_of(alignment);
    let tensors = locate(declared, data_start, alignment, size)?;
    Ok(Header { metadata, tensors })
}

/// Where the data of a file begins, if `bytes`, its beginning, has all of the header.
#[cfg(feature = "hub")]
pub(crate) fn end(bytes: &[u8]) -> Option<usize> {
    let mut cursor = Cursor::new(bytes);
    check_magic(&mut cursor).ok()?;
    let (tensors, entries) = (cursor.u64().ok()?, cursor.u64().ok()?);
    for _ in 0..entries {
        cursor.text().ok()?;
        Value::read(&mut cursor).ok()?;
    }
    for _ in 0..tensors {
        tensor(&mut cursor).ok()?;
    }
    Some(cursor.position())
}

fn check_magic(cursor: &mut Cursor<'_>) -> Result<(), String> {
    let magic = cursor.array::<4>().map_err(|_| "too short for a GGUF file".to_owned())?;
    match &magic {
        b"GGUF" => {}
        b"lmgg" | b"tjgg" | b"fmgg" => {
            return Err("this is the old GGML format; convert the model to GGUF".to_owned());
        }
        b"<htm" | b"<!DO" => return Err("an HTML page, not GGUF; download it again".to_owned()),
        other => {
            let found = other.escape_ascii();
            return Err(format!("starts with `{found}`, expected `GGUF`: not a GGUF file"));
        }
    }
    match cursor.u32()? {
        2 | 3 => Ok(()),
        version if version.swap_bytes() <= 3 && version != 0 => {
            Err("a big-endian GGUF file; only little-endian files are supported".to_owned())
        }
        version => Err(format!("GGUF version {version} is not supported, expected 2 or 3")),
    }
}

fn tensor(cursor: &mut Cursor<'_>) -> Result<Declared, String> {
    let name = cursor.text()?.into_owned();
    let dims = cursor.u32()?;
    if dims > MAX_DIMS {
        return Err(format!("`{name}` has {dims} dimensions, expected at most {MAX_DIMS}"));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let size = cursor.u64()?;
        let size = usize::try_from(size).ok().filter(|size| *size > 0);
        shape.push(size.ok_or_else(|| format!("`{name}` has a dimension of no possible size"))?);
    }
    shape.reverse();
    let kind = kinds::from_number(cursor.u32()?).map_err(|error| format!("`{name}` {error}"))?;
    Ok(Declared { name, shape, kind, offset: cursor.u64()? })
}

fn alignment(metadata: &Metadata<'_>) -> Result<u64, String> {
    let alignment = metadata.u64("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && (MIN_ALIGNMENT..=MAX_ALIGNMENT).contains(&alignment) {
        return Ok(alignment);
    }
    Err(format!(
        "general.alignment is {alignment}, expected a power of two from {MIN_ALIGNMENT} to \
         {MAX_ALIGNMENT}"
    ))
}

/// Checks every tensor's range: inside the file, aligned, not over another tensor.
fn locate(
    declared: Vec<Declared>,
    data_start: u64,
    alignment: u64,
    file_size: u64,
) -> Result<Vec<TensorInfo>, String> {
    let mut names = HashSet::new();
    let mut tensors = Vec::with_capacity(declared.len());
    for Declared { name, shape, kind, offset } in declared {
        if !names.insert(name.clone()) {
            return Err(format!("tensor `{name}` appears twice"));
        }
        if offset % alignment != 0 {
            return Err(format!(
                "tensor `{name}` is at offset {offset}, not aligned to {alignment}"
            ));
        }
        let size = kinds::byte_size(kind, &shape).map_err(|error| format!("`{name}` {error}"))?;
        let start = data_start.checked_add(offset);
        let range = start.and_then(|start| Some((start, start.checked_add(size)?)));
        let Some((start, end)) = range.filter(|(_, end)| *end <= file_size) else {
            return Err(format!(
                "tensor `{name}` needs {size} bytes at data offset {offset}, the file has {} \
                 bytes of data: truncated, or an incomplete download",
                file_size.saturating_sub(data_start)
            ));
        };
        let fits = "inside a file that is mapped";
        let bytes = usize::try_from(start).expect(fits)..usize::try_from(end).expect(fits);
        tensors.push(TensorInfo { name, shape, kind, bytes, file: 0 });
    }
    refuse_overlaps(&tensors)?;
    Ok(tensors)
}

fn refuse_overlaps(tensors: &[TensorInfo]) -> Result<(), String> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.bytes.start);
    for pair in order.windows(2) {
        if pair[0].bytes.end > pair[1].bytes.start {
            return Err(format!("tensors `{}` and `{}` overlap", pair[0].name, pair[1].name));
        }
    }
    Ok(())
}
