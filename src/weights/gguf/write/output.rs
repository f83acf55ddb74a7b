//! A GGUF file on its way to the disk: the header, the tensors one after the other, and a name that it gets
//! when it is whole.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use candle_core::DType;
use candle_core::quantized::{GgmlDType, QTensor};

use super::super::kinds::{self, Kind};
use super::entries::text;
use crate::error::WeightError;
use crate::stored::StoredTensor;
use crate::tensors::bytes_of;

/// The version of the format that is written.
const VERSION: u32 = 3;
/// What tensors are aligned to, which is what files without an entry for it have.
const ALIGNMENT: usize = 32;
/// Elements that are rounded at a time, so that no tensor is in memory as a whole twice.
const STEP: usize = 1 << 22;

/// A tensor as the header has it.
pub(in super::super) struct Planned {
    pub(in super::super) name: String,
    /// Outermost first.
    pub(in super::super) shape: Vec<usize>,
    pub(in super::super) kind: Kind,
}

impl Planned {
    /// Bytes of the tensor.
    pub(in super::super) fn bytes(&self) -> Result<usize, String> {
        let bytes = kinds::byte_size(self.kind, &self.shape)
            .map_err(|error| format!("`{}` {error}", self.name))?;
        usize::try_from(bytes).map_err(|_| format!("`{}` is too large", self.name))
    }
}

/// Everything before the data: so many entries of metadata, encoded already, and where tensors are.
pub(in super::super) fn head(
    entries: usize,
    encoded: &[u8],
    tensors: &[Planned],
) -> Result<Vec<u8>, String> {
    let mut head = b"GGUF".to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((entries as u64).to_le_bytes());
    head.extend(encoded);
    let mut offset = 0;
    for tensor in tensors {
        text(&mut head, &tensor.name);
        let dims = u32::try_from(tensor.shape.len()).map_err(|error| error.to_string())?;
        head.extend(dims.to_le_bytes());
        for dim in tensor.shape.iter().rev() {
            head.extend((*dim as u64).to_le_bytes());
        }
        head.extend(kinds::number(tensor.kind).to_le_bytes());
        head.extend((offset as u64).to_le_bytes());
        offset += tensor.bytes()?.next_multiple_of(ALIGNMENT);
    }
    head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
    Ok(head)
}

/// Bytes of all tensors, as they are aligned in the file.
pub(in super::super) fn data_size(tensors: &[Planned]) -> Result<u64, String> {
    tensors.iter().map(|tensor| Ok(tensor.bytes()?.next_multiple_of(ALIGNMENT) as u64)).sum()
}

/// A file that is being written.
pub(in super::super) struct Output {
    out: BufWriter<File>,
    /// Where it is to be in the end.
    path: PathBuf,
    written: usize,
}

impl Output {
    /// Writes bytes.
    pub(in super::super) fn write(&mut self, bytes: &[u8]) -> Result<(), WeightError> {
        self.written += bytes.len();
        self.out.write_all(bytes).map_err(|source| WeightError::io(&self.path, source))
    }

    /// Fills up with zeros to where a tensor may begin.
    pub(in super::super) fn align(&mut self) -> Result<(), WeightError> {
        let zeros = self.written.next_multiple_of(ALIGNMENT) - self.written;
        self.write(&[0; ALIGNMENT][..zeros])
    }

    /// Writes rows of elements that are stored one by one in another kind.
    pub(in super::super) fn write_rounded(
        &mut self,
        stored: &StoredTensor,
        columns: usize,
        target: GgmlDType,
    ) -> Result<(), WeightError> {
        if stored.kind().ggml() == Some(target) {
            return self.write(stored.bytes());
        }
        let rows = stored.dims().iter().product::<usize>() / columns.max(1);
        let step = (STEP / columns.max(1)).max(1);
        let bytes = stored.bytes();
        let row_bytes = bytes.len() / rows.max(1);
        for start in (0..rows).step_by(step) {
            let end = rows.min(start + step);
            let part = bytes[start * row_bytes..end * row_bytes].to_vec();
            let wide = StoredTensor::owned(stored.kind(), vec![end - start, columns], part)
                .to_tensor(DType::F32)?;
            let dense = match target {
                GgmlDType::F32 => Some(DType::F32),
                GgmlDType::F16 => Some(DType::F16),
                GgmlDType::BF16 => Some(DType::BF16),
                _ => None,
            };
            let rounded = match dense {
                Some(dtype) => bytes_of(&wide.to_dtype(dtype)?)?.map(|(_, bytes)| bytes),
                None => Some(QTensor::quantize(&wide, target)?.data()?.into_owned()),
            };
            self.write(&rounded.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Makes the file at `path` of what `write` writes. It has another name in the same folder until it is whole,
/// and is gone if it never is.
pub(in super::super) fn create(
    path: &Path,
    write: impl FnOnce(&mut Output) -> Result<(), WeightError>,
) -> Result<(), WeightError> {
    let failed = |source| WeightError::io(path, source);
    let exists = || failed(std::io::Error::from(std::io::ErrorKind::AlreadyExists));
    if path.exists() {
        return Err(exists());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&partial).map_err(failed)?;
    let mut output = Output { out: BufWriter::new(file), path: path.to_owned(), written: 0 };
    let done = write(&mut output).and_then(|()| {
        let file = output.out.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        // Renaming would put it in the place of one that came meanwhile.
        if path.exists() { Err(exists()) } else { std::fs::rename(&partial, path).map_err(failed) }
    });
    if done.is_err() {
        // A part of a file helps nobody.
        let _ = std::fs::remove_file(&partial);
    }
    done
}
