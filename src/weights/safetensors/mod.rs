//! Tensors from Hugging Face checkpoints: `model.safetensors`, or shards with their index.
//!
//! Files are memory-mapped and tensors are read where they lie. Every header is checked against
//! the file's size before a tensor is touched.
//! Format: <https://huggingface.co/docs/safetensors>.

mod header;
mod index;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use safetensors::tensor::Dtype;

use crate::error::WeightError;
use crate::file_bytes::FileBytes;
use crate::folder::ModelFolder;
use crate::stored::StoredTensor;
use crate::tensors::{Outline, TensorSource};

/// All safetensors of one checkpoint.
#[derive(Debug)]
pub struct SafetensorsSource {
    files: Vec<Arc<FileBytes>>,
    tensors: HashMap<String, Location>,
    folder: PathBuf,
}

/// Where a tensor's bytes lie.
#[derive(Debug)]
struct Location {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    /// From the start of the file.
    bytes: Range<usize>,
}

impl SafetensorsSource {
    /// Opens the checkpoint in `folder`: `model.safetensors`, else the shards that
    /// `model.safetensors.index.json` names, else the only `.safetensors` file.
    ///
    /// # Errors
    /// When a file is missing, truncated or inconsistent; the message names it.
    pub fn open(folder: &Path) -> Result<Self, WeightError> {
        Self::from_folder(&ModelFolder::Disk(folder.to_owned()))
    }

    pub(crate) fn from_folder(folder: &ModelFolder) -> Result<Self, WeightError> {
        let plan = index::plan(folder)?;
        let mut source = Self {
            files: Vec::with_capacity(plan.files.len()),
            tensors: HashMap::new(),
            folder: folder.root().to_owned(),
        };
        for name in &plan.files {
            let Some(file) = folder.open(name)? else {
                return Err(plan.missing_shard(folder, name));
            };
            source.add(file)?;
        }
        plan.check(folder, |name| source.tensors.get(name).map(|at| at.file))?;
        Ok(source)
    }

    /// The tensors of one file, if it exists.
    pub(crate) fn from_file(folder: &ModelFolder, name: &str) -> Result<Option<Self>, WeightError> {
        let Some(file) = folder.open(name)? else { return Ok(None) };
        let folder = folder.root().to_owned();
        let mut source = Self { files: Vec::new(), tensors: HashMap::new(), folder };
        source.add(file)?;
        Ok(Some(source))
    }

    fn add(&mut self, file: FileBytes) -> Result<(), WeightError> {
        let header = header::read(&file)?;
        let index = self.files.len();
        for (name, info) in header.metadata.tensors() {
            let (start, end) = info.data_offsets;
            let bytes = header.data_start + start..header.data_start + end;
            let at = Location { file: index, dtype: info.dtype, shape: info.shape.clone(), bytes };
            if let Some(other) = self.tensors.insert(name.clone(), at) {
                let other = self.files[other.file].path().display();
                let reason = format!("tensor `{name}` is also in {other}; expected it once");
                return Err(WeightError::corrupt(file.path(), reason));
            }
        }
        self.files.push(Arc::new(file));
        Ok(())
    }
}

/// A tensor's bytes where they lie, of whatever dtype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawTensor<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

impl RawTensor<'_> {
    /// The 32-bit words of integers of 32 or 64 bits, low halves first.
    pub(crate) fn words(&self) -> Option<Vec<u32>> {
        let words = self.bytes.as_chunks::<4>().0.iter();
        matches!(self.dtype, Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64)
            .then(|| words.map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// The numbers of floats of 16 or 32 bits.
    pub(crate) fn floats(&self) -> Option<Vec<f32>> {
        let halves = self.bytes.as_chunks::<2>().0.iter();
        let words = self.bytes.as_chunks::<4>().0.iter();
        match self.dtype {
            Dtype::BF16 => Some(halves.map(|two| bf16::from_le_bytes(*two).to_f32()).collect()),
            Dtype::F16 => Some(halves.map(|two| f16::from_le_bytes(*two).to_f32()).collect()),
            Dtype::F32 => Some(words.map(|four| f32::from_le_bytes(*four)).collect()),
            _ => None,
        }
    }
}

impl SafetensorsSource {
    /// A tensor of any dtype.
    pub(crate) fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        let at = self.tensors.get(name)?;
        let bytes = &self.files[at.file].bytes()[at.bytes.clone()];
        Some(RawTensor { dtype: at.dtype, shape: &at.shape, bytes })
    }
}

impl TensorSource for SafetensorsSource {
    fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        let Some(at) = self.tensors.get(name) else {
            let origin = self.origin(name);
            return Err(WeightError::MissingTensor { name: name.to_owned(), origin });
        };
        let Some(kind) = dense_kind(at.dtype) else {
            return Err(WeightError::BadTensor {
                name: name.to_owned(),
                origin: self.origin(name),
                reason: format!("dtype {:?} is not supported, expected BF16, F16 or F32", at.dtype),
            });
        };
        let file = self.files[at.file].clone();
        Ok(StoredTensor::in_file(kind, at.shape.clone(), file, at.bytes.clone()))
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        let RawTensor { dtype, bytes, .. } = self.raw(name)?;
        let (short, long) = (bytes.as_chunks::<4>().0.iter(), bytes.as_chunks::<8>().0.iter());
        match dtype {
            Dtype::I32 => Some(short.map(|word| i32::from_le_bytes(*word).into()).collect()),
            Dtype::I64 => Some(long.map(|word| i64::from_le_bytes(*word)).collect()),
            _ => None,
        }
    }

    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        // Reading is only looking at where it lies.
        let tensor = self.read(name)?;
        let bytes = self.tensors.get(name).map_or(0, |at| at.bytes.len());
        let (kind, dims) = (tensor.kind(), tensor.dims().to_vec());
        Ok(Outline { name: name.to_owned(), kind, dims, bytes })
    }

    fn origin(&self, name: &str) -> String {
        let path = self.tensors.get(name).map(|at| self.files[at.file].path());
        path.unwrap_or(&self.folder).display().to_string()
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|at| at.bytes.len() as u64).sum()
    }

    fn release_pages(&self) {
        for file in &self.files {
            file.release(0..file.bytes().len());
        }
    }

    fn for_each_stored(&self, look: &mut dyn FnMut(&str, &[u8])) -> Result<(), WeightError> {
        let mut tensors: Vec<_> = self.tensors.iter().collect();
        tensors.sort_unstable_by_key(|(name, _)| *name);
        for (name, at) in tensors {
            let bytes = &self.files[at.file].bytes()[at.bytes.clone()];
            look(&format!("{name} {:?} {:?}", at.dtype, at.shape), bytes);
        }
        Ok(())
    }
}

/// The shards that a folder's index names.
pub(crate) fn shard_names(folder: &ModelFolder) -> Result<Vec<String>, WeightError> {
    index::shard_names(folder)
}

fn dense_kind(dtype: Dtype) -> Option<GgmlDType> {
    match dtype {
        Dtype::BF16 => Some(GgmlDType::BF16),
        Dtype::F16 => Some(GgmlDType::F16),
        Dtype::F32 => Some(GgmlDType::F32),
        _ => None,
    }
}
