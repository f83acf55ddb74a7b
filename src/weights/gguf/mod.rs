//! GGUF files: tensors under Hugging Face names, metadata in Hugging Face words.
//!
//! A model can't tell that its weights came from GGUF, but for their quantized kinds. The file is
//! mapped and tensors are read where they lie, but for those whose rows conversion had reordered. Of
//! a model in several files the first has the metadata, and any of them names it.

mod config;
mod cursor;
mod head_order;
mod header;
mod kinds;
mod names;
pub(super) mod split;
mod value;
pub mod vocabulary;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use serde_json::Value as Json;

use config::{HeadCounts, ModelKeys};
use header::TensorInfo;
use names::{Architecture, Heads};
use value::Metadata;
use vocabulary::GgufVocabulary;

use super::error::WeightError;
use super::file_bytes::FileBytes;
use super::stored::StoredTensor;
use super::tensors::TensorSource;

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

/// Opens and checks the file at `path`, and the others of its model if it is in several.
pub(crate) fn open(path: &Path) -> Result<GgufModel, WeightError> {
    let paths = paths(path);
    let files: Result<Vec<FileBytes>, _> = paths.iter().map(|path| FileBytes::open(path)).collect();
    let files = files?;
    let path = &paths[0];
    let mut header = header::read(files[0].bytes()).map_err(|r| WeightError::corrupt(path, r))?;
    check_part(&header.metadata, 0, files.len()).map_err(|r| WeightError::corrupt(path, r))?;
    for (index, (file, path)) in files.iter().zip(&paths).enumerate().skip(1) {
        let corrupt = |reason| WeightError::corrupt(path, reason);
        let part = header::read(file.bytes()).map_err(corrupt)?;
        check_part(&part.metadata, index, files.len()).map_err(corrupt)?;
        let tensors = part.tensors.into_iter();
        header.tensors.extend(tensors.map(|tensor| TensorInfo { file: index, ..tensor }));
    }
    let parts = read_parts(&files, &header).map_err(|r| WeightError::corrupt(path, r))?;
    let Parts { config, generation_config, vocabulary, tensors } = parts;
    let text = |key: &str| header.metadata.text(key).map_err(|r| WeightError::corrupt(path, r));
    let (tokenizer_json, chat_template, tool_use_template) = (
        text("tokenizer.huggingface.json")?.map(String::into_bytes),
        text("tokenizer.chat_template")?,
        text("tokenizer.chat_template.tool_use")?,
    );
    drop(header);
    let tensors =
        Arc::new(GgufSource { files: files.into_iter().map(Arc::new).collect(), tensors });
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

/// The files of the model that `path` is one of, the first part first.
fn paths(path: &Path) -> Vec<PathBuf> {
    let parts = path.file_name().and_then(|name| split::parts(name.to_str()?));
    match parts {
        Some(parts) => parts.iter().map(|part| path.with_file_name(part)).collect(),
        None => vec![path.to_owned()],
    }
}

/// Checks that a file is the part that its name says.
fn check_part(metadata: &Metadata<'_>, index: usize, files: usize) -> Result<(), String> {
    let count = metadata.u64("split.count")?.unwrap_or(1).max(1);
    let number = metadata.u64("split.no")?.unwrap_or(0);
    if count == files as u64 && number == index as u64 {
        return Ok(());
    }
    Err(format!(
        "this is part {} of a model in {count} files, but by its name part {} of {files}; parts \
         are named like model-00001-of-00002.gguf",
        number.saturating_add(1),
        index + 1
    ))
}

/// What is made of a header.
struct Parts {
    config: Json,
    generation_config: Json,
    vocabulary: GgufVocabulary,
    tensors: HashMap<String, Location>,
}

fn read_parts(files: &[FileBytes], header: &header::Header<'_>) -> Result<Parts, String> {
    let metadata = &header.metadata;
    refuse_other_files(metadata)?;
    let architecture = metadata
        .text("general.architecture")?
        .ok_or("metadata `general.architecture` is missing")?;
    let architecture = Architecture::find(&architecture)?;
    let keys = ModelKeys::new(metadata, architecture);
    let vocabulary = GgufVocabulary::read(metadata)?;
    let factors = header.tensors.iter().find(|tensor| tensor.name == names::ROPE_FACTORS);
    let factors = factors.map(|tensor| rope_factors(&files[tensor.file], tensor)).transpose()?;
    Ok(Parts {
        config: keys.config(&header.tensors, factors.as_deref(), &vocabulary)?,
        generation_config: config::generation_config(metadata, &vocabulary)?,
        tensors: locations(&header.tensors, architecture, keys.heads()?)?,
        vocabulary,
    })
}

/// Files that are GGUF, but not a whole model.
fn refuse_other_files(metadata: &Metadata<'_>) -> Result<(), String> {
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
        let location = Location { info: tensor.clone(), reordered_heads };
        if locations.insert(name, location).is_some() {
            return Err(format!("tensor `{}` appears twice", tensor.name));
        }
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

/// The tensors of a model's GGUF files, by Hugging Face names.
#[derive(Debug)]
struct GgufSource {
    files: Vec<Arc<FileBytes>>,
    tensors: HashMap<String, Location>,
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
        let (kind, shape, file) = (info.kind, info.shape.clone(), &self.files[info.file]);
        let Some(heads) = reordered_heads else {
            return Ok(StoredTensor::in_file(kind, shape, file.clone(), info.bytes.clone()));
        };
        let bytes = &file.bytes()[info.bytes.clone()];
        let restored = head_order::restore(bytes, shape[0], *heads);
        file.release(info.bytes.clone());
        Ok(StoredTensor::owned(kind, shape, restored))
    }

    fn origin(&self, name: &str) -> String {
        let path = |file: usize| self.files[file].path().display();
        match self.tensors.get(name) {
            Some(Location { info, .. }) => format!("{} (as `{}`)", path(info.file), info.name),
            None => path(0).to_string(),
        }
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|at| at.info.bytes.len() as u64).sum()
    }

    fn release_pages(&self) {
        for file in &self.files {
            file.release(0..file.bytes().len());
        }
    }
}
