//! Tensors from Hugging Face checkpoints: `model.safetensors`, or shards with their index.
//!
//! Files are memory-mapped and each tensor is copied out when it is asked for; its pages go back
//! to the system at once, so loading needs the memory of the weights only once. Every header is
//! checked against the file's size before a tensor is touched.
//! Format: <https://huggingface.co/docs/safetensors>.

mod header;
mod index;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use safetensors::tensor::Dtype;

use crate::weights::error::WeightError;
use crate::weights::file_bytes::FileBytes;
use crate::weights::finite;
use crate::weights::folder::ModelFolder;

use crate::weights::tensors::{StoredTensor, TensorSource};

/// All safetensors of one checkpoint.
#[derive(Debug)]
pub struct SafetensorsSource {
    files: Vec<FileBytes>,
    tensors: HashMap<String, Location>,
    folder: PathBuf,
}

/// Where a tensor lies.
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
        self.files.push(file);
        Ok(())
    }

    fn bad(&self, name: &str, reason: String) -> WeightError {
        WeightError::BadTensor { name: name.to_owned(), origin: self.origin(name), reason }
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
        let dtype = dense_dtype(at.dtype).ok_or_else(|| {
            let reason =
                format!("dtype {:?} is not supported, expected BF16, F16 or F32", at.dtype);
            self.bad(name, reason)
        })?;
        let file = &self.files[at.file];
        let bytes = &file.bytes()[at.bytes.clone()];
        if at.shape.len() == 1
            && let Some((index, value)) = finite::first_non_finite(bytes, dtype)
        {
            return Err(self.bad(name, format!("element {index} is {value}; the file is corrupt")));
        }
        let tensor = Tensor::from_raw_buffer(bytes, dtype, &at.shape, &Device::Cpu)?;
        file.release(at.bytes.clone());
        Ok(StoredTensor::Dense(tensor))
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
}

/// The shards that a folder's index names.
pub(crate) fn shard_names(folder: &ModelFolder) -> Result<Vec<String>, WeightError> {
    index::shard_names(folder)
}

fn dense_dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::BF16 => Some(DType::BF16),
        Dtype::F16 => Some(DType::F16),
        Dtype::F32 => Some(DType::F32),
        _ => None,
    }
}
