//! GGUF files: tensors under Hugging Face names, metadata in Hugging Face words.
//!
//! A model can't tell that its weights came from GGUF, but for their quantized kinds. The file is
//! mapped and tensors are read where they lie, but for those whose rows conversion had reordered.

mod config;
mod cursor;
mod head_order;
mod header;
mod kinds;
mod names;
mod value;
pub mod vocabulary;

use std::collections::HashMap;
use std::path::Path;
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
    let tensors = Arc::new(GgufSource { file: Arc::new(file), tensors });
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
    file: Arc<FileBytes>,
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
        let (kind, shape) = (info.kind, info.shape.clone());
        let Some(heads) = reordered_heads else {
            return Ok(StoredTensor::in_file(kind, shape, self.file.clone(), info.bytes.clone()));
        };
        let bytes = &self.file.bytes()[info.bytes.clone()];
        let restored = head_order::restore(bytes, shape[0], *heads);
        self.file.release(info.bytes.clone());
        Ok(StoredTensor::owned(kind, shape, restored))
    }

    fn origin(&self, name: &str) -> String {
        let path = self.file.path().display();
        match self.tensors.get(name) {
            Some(Location { info, .. }) => format!("{path} (as `{}`)", info.name),
            None => path.to_string(),
        }
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
