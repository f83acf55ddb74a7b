//! A LoRA adapter's folder as PEFT writes it: `adapter_config.json` and
//! `adapter_model.safetensors`; or what a model's own tensors have for a task.
//!
//! Knows which module each tensor belongs to; never what a module is.

pub mod config;
pub(crate) mod files;
pub(crate) mod stack;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;

pub use config::LoraConfig;
use files::{CONFIG, DOWN, TENSORS, UP, WRAPPER};
use stack::{AdapterStack, OfTask};

use super::digest;
use super::error::WeightError;
use super::finite;
use super::folder::ModelFolder;
use super::hub::{self, HubOptions};
use super::model_ref::{HubFile, HubRef};
use super::safetensors::SafetensorsSource;
use super::stored::StoredTensor;
use super::tensors::{TensorSource, Weights};

const PICKLE: &str = "adapter_model.bin";

/// An adapter's files, opened and checked; tensors are read when they are asked for.
pub struct LoraFolder {
    config: LoraConfig,
    /// The configuration as the file has it.
    stored_config: String,
    source: Arc<dyn TensorSource>,
    modules: Vec<String>,
    /// Modules that are embeddings; PEFT's are not supported.
    embeddings: Vec<String>,
    /// What these are read from, and for which task.
    stack: Option<(AdapterStack, usize)>,
    path: PathBuf,
}

impl LoraFolder {
    /// Opens `folder`.
    ///
    /// # Errors
    /// When a file is missing, corrupt or asks for what is not supported; when a tensor is no
    /// adapter's, alone without its counterpart, or holds a number that is not finite.
    pub fn open(folder: &Path) -> Result<Self, WeightError> {
        let files = ModelFolder::Disk(folder.to_owned());
        let Some(json) = files.json_object(CONFIG)? else {
            return Err(incomplete(folder, format!("{CONFIG} is missing")));
        };
        let stored_config = json.to_string();
        let config = LoraConfig::from_json(json)
            .map_err(|reason| WeightError::corrupt(&files.path(CONFIG), reason))?;
        let Some(source) = SafetensorsSource::from_file(&files, TENSORS)? else {
            let pickle = files.path(PICKLE).exists();
            let hint = "; adapter_model.bin is a pickle, which can run code when read: save the \
                        adapter with safetensors";
            let hint = if pickle { hint } else { "" };
            return Err(incomplete(folder, format!("{TENSORS} is missing{hint}")));
        };
        let path = files.path(TENSORS);
        let modules = modules(&source, &path)?;
        check_finite(&source)?;
        let (embeddings, stack) = (Vec::new(), None);
        Ok(Self {
            config,
            stored_config,
            source: Arc::new(source),
            modules,
            embeddings,
            stack,
            path,
        })
    }

    /// The adapter of a model's own task, counted from 0.
    ///
    /// # Errors
    /// When a tensor has other dimensions than the stack says, or holds a number that is not finite.
    pub fn of_task(stack: &AdapterStack, task: usize) -> Result<Self, WeightError> {
        let found = stack.modules()?;
        let (modules, embeddings) = (found.layers.clone(), found.embeddings.clone());
        let source = OfTask { stack: stack.clone(), task, modules: found };
        check_finite(&source)?;
        for module in &embeddings {
            for tensor in stack.embedding(module, task)? {
                check_numbers(&tensor, module, &source)?;
            }
        }
        Ok(Self {
            config: LoraConfig::plain(stack.rank, stack.alpha),
            stored_config: format!("{} {} {task}", stack.rank, stack.alpha),
            source: Arc::new(source),
            modules,
            embeddings,
            stack: Some((stack.clone(), task)),
            path: stack.path.clone(),
        })
    }

    /// What the adapter says of itself.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// Paths in the base model of the modules that the adapter changes, ascending.
    pub fn modules(&self) -> &[String] {
        &self.modules
    }

    /// Paths of the embeddings that the adapter changes, ascending.
    pub fn embeddings(&self) -> &[String] {
        &self.embeddings
    }

    /// The two matrices of an embedding, `[rows, rank]` and `[rank, columns]`.
    ///
    /// # Errors
    /// When a tensor can't be read.
    pub fn embedding(&self, module: &str) -> Result<[StoredTensor; 2], WeightError> {
        let stack = self.stack.as_ref().filter(|_| self.embeddings.iter().any(|own| own == module));
        let (stack, task) = stack.ok_or_else(|| {
            WeightError::corrupt(
                &self.path,
                format!("there is no adapter of the embedding {module}"),
            )
        })?;
        stack.embedding(module, *task)
    }

    /// The tensors of a module, `lora_A.weight` and `lora_B.weight`, for a model on `device`.
    pub fn weights(&self, module: &str, device: &Device) -> Weights {
        Weights::new(self.source.clone(), device.clone()).scope_as(&format!("{WRAPPER}{module}."))
    }

    /// A digest of all that is in the adapter.
    ///
    /// # Errors
    /// When a tensor can't be read.
    pub fn digest(&self) -> Result<[u8; 16], WeightError> {
        digest::of_adapter(&self.stored_config, self.source.as_ref())
    }

    /// The file of the tensors, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Where an adapter is: a folder, or what the cache has or gets of a hub id. `None` where `text`
/// is neither.
///
/// # Errors
/// When the hub, or the cache that stands for it, did not give the files.
pub fn find(text: &str, options: &HubOptions) -> Result<Option<PathBuf>, WeightError> {
    let path = Path::new(text);
    if path.exists() {
        return Ok(Some(path.to_owned()));
    }
    match HubRef::parse(text, None) {
        Ok(HubRef { repository, revision, file: None }) => {
            let reference = HubRef { repository, revision, file: Some(HubFile::Adapter) };
            Ok(Some(hub::fetch_blocking(&reference, options)?))
        }
        _ => Ok(None),
    }
}

/// The modules of all tensors, each of which has both.
fn modules(source: &SafetensorsSource, path: &Path) -> Result<Vec<String>, WeightError> {
    let mut found: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for name in source.names() {
        let inner = name.strip_prefix(WRAPPER);
        let split = inner.and_then(|inner| {
            let down = inner.strip_suffix(DOWN).map(|module| (module, 0));
            down.or(inner.strip_suffix(UP).map(|module| (module, 1)))
        });
        let Some((module, which)) = split else {
            return Err(WeightError::corrupt(path, stranger(&name)));
        };
        found.entry(module.to_owned()).or_default()[which] = true;
    }
    if let Some((module, has)) = found.iter().find(|(_, has)| **has != [true, true]) {
        let missing = if has[0] { UP } else { DOWN };
        let reason =
            format!("tensor `{WRAPPER}{module}{missing}` is missing, its counterpart is there");
        return Err(WeightError::corrupt(path, reason));
    }
    if found.is_empty() {
        return Err(WeightError::corrupt(path, "there is no tensor in it"));
    }
    Ok(found.into_keys().collect())
}

/// What to say of a tensor that is no adapter's.
fn stranger(name: &str) -> String {
    let hint = if name.contains(".base_layer.") {
        "; PEFT leaves the base model's own layers out with save_embedding_layers=False"
    } else if name.contains("lora_embedding_") {
        "; adapters of embeddings are not supported"
    } else {
        ""
    };
    format!(
        "tensor `{name}` can't be used, expected names like {WRAPPER}MODULE{DOWN} and {UP}{hint}"
    )
}

/// Adapters are small enough to look at every number.
fn check_finite(source: &dyn TensorSource) -> Result<(), WeightError> {
    source.names().iter().try_for_each(|name| check_numbers(&source.read(name)?, name, source))
}

fn check_numbers(
    tensor: &StoredTensor,
    name: &str,
    source: &dyn TensorSource,
) -> Result<(), WeightError> {
    let Some(dtype) = tensor.dense_dtype() else { return Ok(()) };
    let Some((index, value)) = finite::first_non_finite(tensor.bytes(), dtype) else {
        return Ok(());
    };
    let (name, reason) = (name.to_owned(), format!("element {index} is {value}"));
    Err(WeightError::BadTensor { origin: source.origin(&name), name, reason })
}

fn incomplete(folder: &Path, reason: String) -> WeightError {
    WeightError::Incomplete { folder: folder.to_owned(), reason }
}
