//! GGUF files: tensors under Hugging Face names, metadata in Hugging Face words.
//!
//! A model can't tell that its weights came from GGUF, but for their quantized kinds. The file is
//! mapped; a tensor is copied out when it is asked for and its pages go back to the system.

mod config;
mod cursor;
mod head_order;
mod header;
mod kinds;
mod names;
mod value;
pub mod vocabulary;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Tensor};
use serde_json::Value as Json;

use config::{HeadCounts, ModelKeys};
use header::TensorInfo;
use names::{Architecture, Heads};
use value::Metadata;
use vocabulary::GgufVocabulary;

use super::error::WeightError;
use super::file_bytes::FileBytes;
use super::finite;
use super::tensors::{StoredTensor, TensorSource};

/// Everything that a GGUF file holds.
pub(crate) struct GgufModel {
    pub(crate) config: Json,
    pub(crate) generation_config: Json,
    pub(crate) vocabulary: GgufVocabulary,
    /// A whole `tokenizer.json`, which few files carry.
    pub(crate) tokenizer_json: Option<Vec<u8>>,
    pub(crate) chat_template: Option<String>,
    pub(crate) tool_use_template: Option<String>,
    pub(crate) tensors: Arc<dyn TensorSource>,
}

/// Opens and checks the file at `path`.
pub(crate) fn open(path: &Path) -> Result<GgufModel, WeightError> {
    let file = FileBytes::open(path)?;
    let header = header::read(file.bytes()).map_err(|r| WeightError::corrupt(path, r))?;
    let parts = read_parts(&file, &header).map_err(|r| WeightError::corrupt(path, r))?;
    let Parts { config, generation_config, vocabulary, tensors } = parts;
    let text = |key: &str| header.metadata.text(key).map_err(|r| WeightError::corrupt(path, r));
    let (tokenizer_json, chat_template, tool_use_template) = (
        text("tokenizer.huggingface.json")?.map(String::into_bytes),
        text("tokenizer.chat_template")?,
        text("tokenizer.chat_template.tool_use")?,
    );
    drop(header);
    let tensors = Arc::new(GgufSource { file, tensors });
    Ok(GgufModel {
        config,
        generation_config,
        vocabulary,
        tokenizer_json,
        chat_template,
        tool_use_template,
        tensors,
    })
}

/// What is made of a header.
struct Parts {
    config: Json,
    generation_config: Json,
    vocabulary: GgufVocabulary,
    tensors: HashMap<String, Location>,
}

fn read_parts(file: &FileBytes, header: &header::Header<'_>) -> Result<Parts, String> {
    let metadata = &header.metadata;
    refuse_other_files(metadata)?;
    let architecture = metadata
        .text("general.architecture")?
        .ok_or("metadata `general.architecture` is missing")?;
    let architecture = Architecture::find(&architecture)?;
    let keys = ModelKeys::new(metadata, architecture);
    let vocabulary = GgufVocabulary::read(metadata)?;
    let factors = header.tensors.iter().find(|tensor| tensor.name == names::ROPE_FACTORS);
    let factors = factors.map(|tensor| rope_factors(file, tensor)).transpose()?;
    Ok(Parts {
        config: keys.config(&header.tensors, factors.as_deref(), &vocabulary)?,
        generation_config: config::generation_config(metadata, &vocabulary)?,
        tensors: locations(&header.tensors, architecture, keys.heads()?)?,
        vocabulary,
    })
}

/// Files that are GGUF, but not a whole model.
fn refuse_other_files(metadata: &Metadata<'_>) -> Result<(), String> {
    if let Some(count) = metadata.u64("split.count")?.filter(|count| *count > 1) {
        let number = metadata.u64("split.no")?.unwrap_or(0) + 1;
        return Err(format!(
            "this is part {number} of a model in {count} files, which is not supported; merge \
             them once with `llama-gguf-split --merge`"
        ));
    }
    match metadata.text("general.type")?.as_deref() {
        None | Some("model") => Ok(()),
        Some("adapter") => Err("this is a LoRA adapter, not a whole model".to_owned()),
        Some(other) => Err(format!("this is a GGUF file of type `{other}`, expected `model`")),
    }
}

fn rope_factors(file: &FileBytes, tensor: &TensorInfo) -> Result<Vec<f32>, String> {
    if tensor.kind != GgmlDType::F32 || tensor.shape.len() != 1 {
        return Err(format!(
            "`{}` is {:?} of shape {:?}, expected F32 with one dimension",
            tensor.name, tensor.kind, tensor.shape
        ));
    }
    let numbers = file.bytes()[tensor.bytes.clone()].chunks_exact(4);
    Ok(numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn locations(
    tensors: &[TensorInfo],
    architecture: &Architecture,
    heads: HeadCounts,
) -> Result<HashMap<String, Location>, String> {
    let mut locations = HashMap::with_capacity(tensors.len());
    for tensor in tensors.iter().filter(|tensor| tensor.name != names::ROPE_FACTORS) {
        let name = architecture.hugging_face_name(&tensor.name).ok_or_else(|| {
            format!("tensor `{}` is no part of a `{}` model", tensor.name, architecture.gguf)
        })?;
        let reordered_heads = match architecture.reordered_heads(&tensor.name) {
            Some(whose) => Some(check_rows(tensor, whose, heads)?),
            None => None,
        };
        locations.insert(name, Location { info: tensor.clone(), reordered_heads });
    }
    Ok(locations)
}

/// The number of heads, if the tensor's rows divide into them.
fn check_rows(tensor: &TensorInfo, whose: Heads, heads: HeadCounts) -> Result<usize, String> {
    let count = match whose {
        Heads::Query => heads.query,
        Heads::Key => heads.key,
    };
    let found = tensor.shape.first().copied().unwrap_or(0);
    if count.checked_mul(heads.dim) == Some(found) {
        return Ok(count);
    }
    Err(format!(
        "tensor `{}` has {found} rows, expected {count} heads of {} rows",
        tensor.name, heads.dim
    ))
}

/// Where a tensor lies, and how its rows are to be ordered.
#[derive(Debug)]
struct Location {
    info: TensorInfo,
    /// Undo the conversion's row order within each of so many heads.
    reordered_heads: Option<usize>,
}

/// The tensors of one GGUF file, by Hugging Face names.
#[derive(Debug)]
struct GgufSource {
    file: FileBytes,
    tensors: HashMap<String, Location>,
}

impl GgufSource {
    fn bad(&self, name: &str, gguf: &str, reason: &str) -> WeightError {
        WeightError::BadTensor {
            name: name.to_owned(),
            origin: self.origin(name),
            reason: format!("{reason} (`{gguf}` in the file); the file is corrupt"),
        }
    }

    /// Refuses numbers that can't be weights, where a look is cheap.
    fn check_numbers(&self, name: &str, info: &TensorInfo) -> Result<(), WeightError> {
        let bytes = &self.file.bytes()[info.bytes.clone()];
        let reason = match dense_dtype(info.kind) {
            Some(_) if info.shape.len() != 1 => None,
            Some(dtype) => finite::first_non_finite(bytes, dtype)
                .map(|(index, value)| format!("element {index} is {value}")),
            None => finite::first_bad_block(bytes, info.kind)
                .map(|(index, value)| format!("block {index} has the scale {value}")),
        };
        reason.map_or(Ok(()), |reason| Err(self.bad(name, &info.name, &reason)))
    }
}

impl TensorSource for GgufSource {
    fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        let Some(Location { info, reordered_heads }) = self.tensors.get(name) else {
            let origin = self.origin(name);
            return Err(WeightError::MissingTensor { name: name.to_owned(), origin });
        };
        self.check_numbers(name, info)?;
        let bytes = &self.file.bytes()[info.bytes.clone()];
        let tensor = match reordered_heads {
            None => stored(info, bytes)?,
            Some(heads) => {
                let restored = head_order::restore(bytes, info.shape[0], *heads)
                    .map_err(|source| WeightError::io(self.file.path(), source))?;
                stored(info, &restored)?
            }
        };
        self.file.release(info.bytes.clone());
        Ok(tensor)
    }

    fn origin(&self, _name: &str) -> String {
        self.file.path().display().to_string()
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|at| at.info.bytes.len() as u64).sum()
    }

    fn release_pages(&self) {
        self.file.release(0..self.file.bytes().len());
    }
}

/// A copy of a tensor's bytes as a tensor. `bytes` is aligned to 8, as the header demands of
/// offsets and the system gives to mappings.
fn stored(info: &TensorInfo, bytes: &[u8]) -> Result<StoredTensor, WeightError> {
    if let Some(dtype) = dense_dtype(info.kind) {
        let tensor = Tensor::from_raw_buffer(bytes, dtype, &info.shape, &Device::Cpu)?;
        return Ok(StoredTensor::Dense(tensor));
    }
    let storage = QStorage::from_data(Cow::Borrowed(bytes), &Device::Cpu, info.kind)?;
    let tensor = QTensor::new(storage, info.shape.as_slice())?;
    Ok(StoredTensor::Quantized(Arc::new(tensor)))
}

fn dense_dtype(kind: GgmlDType) -> Option<DType> {
    match kind {
        GgmlDType::F32 => Some(DType::F32),
        GgmlDType::F16 => Some(DType::F16),
        GgmlDType::BF16 => Some(DType::BF16),
        _ => None,
    }
}
