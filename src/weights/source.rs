//! Everything one model is loaded from, as plain data.
//!
//! Opens folders, GGUF files, hub ids and the embedded demo, and hides which one it was. Knows
//! where files lie and that JSON is JSON; never what a configuration means.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use serde_json::Value;

use super::chat_template::ChatTemplates;
use super::compressed::CompressedSource;
use super::digest;
use super::drafter_files::MASK_EMBEDDING;
use super::error::WeightError;
use super::folder::ModelFolder;
use super::gguf::vocabulary::GgufVocabulary;
use super::gguf::{self, Holds, beside, split};
use super::hub::{self, HubOptions, is_model_gguf};
use super::made_up::MadeUp;
use super::model_ref::{ModelRef, has_gguf_ending};
use super::parametrized::without_adapters;
use super::projector::{self, ProjectorChoice};
use super::published_names::under_one_name;
use super::safetensors::SafetensorsSource;
use super::sentence_modules::SentenceModules;
use super::task_adapters::{self, TaskAdapter};
use super::tensors::{Outline, TensorSource, Weights};
use super::token_heads::TokenHeadFiles;
use super::with_head::WithHead;

/// One model's files, opened and checked; tensors are read when they are asked for.
///
/// Dropping it (and the [`Weights`] made from it) unmaps the files.
pub struct ModelSource {
    /// The hub id, or the name of the folder or file.
    pub name: String,
    /// `config.json`; for GGUF the same fields, made from its metadata.
    pub config: Value,
    /// `generation_config.json`; for GGUF the token ids that its metadata has.
    pub generation_config: Option<Value>,
    /// How pictures or sounds are prepared: `preprocessor_config.json`, or that part of
    /// `processor_config.json`.
    pub processor_config: Option<Value>,
    /// `tokenizer.json`, unparsed; few GGUF files carry one.
    pub tokenizer_json: Option<Vec<u8>>,
    /// SentencePiece's `tokenizer.model`, unparsed, where there is no `tokenizer.json`.
    pub tokenizer_model: Option<Vec<u8>>,
    /// `tekken.json`, unparsed, where there is neither.
    pub tekken_json: Option<Vec<u8>>,
    /// `tiktoken.model` or a file whose name ends in `.tiktoken`, unparsed, where there is nothing
    /// else.
    pub tiktoken_file: Option<Vec<u8>>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<Value>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<Value>,
    /// `added_tokens.json`, if there is one.
    pub added_tokens: Option<Value>,
    /// The chat template, if the checkpoint has one.
    pub chat_template: Option<String>,
    /// A second template for requests with tools, where the model has one.
    pub tool_use_template: Option<String>,
    /// The vocabulary of a GGUF file.
    pub gguf_vocabulary: Option<GgufVocabulary>,
    /// What stands behind the network, where sentence-transformers wrote the folder, or a GGUF file
    /// says how it pools.
    pub sentence_modules: Option<SentenceModules>,
    /// `artifact.metadata`: how queries and documents are read, where ColBERT's own library wrote the
    /// folder.
    pub artifact_metadata: Option<Value>,
    /// The layers of BGE-M3 that read every token, where a folder has them.
    pub token_heads: Option<TokenHeadFiles>,
    /// LoRA adapters for tasks, where a folder has them.
    pub task_adapters: Vec<TaskAdapter>,
    /// Whether there is nothing but a head that drafts, for a model in another file.
    pub is_draft_head: bool,
    /// The configuration as the file has it.
    stored_config: String,
    tensors: Arc<dyn TensorSource>,
}

impl ModelSource {
    /// Opens `model`, downloading it first where it is a hub id that the cache lacks. Blocks.
    ///
    /// # Errors
    /// When a file is missing, unreadable, truncated or inconsistent; the message names it.
    pub fn open(model: &ModelRef, options: &HubOptions) -> Result<Self, WeightError> {
        Self::open_with(model, options, &ProjectorChoice::Beside)
    }

    /// The same, with the vision tower of a model in GGUF where `projector` says.
    ///
    /// # Errors
    /// As [`ModelSource::open`]; a projector that is named, but belongs to another model.
    pub fn open_with(
        model: &ModelRef,
        options: &HubOptions,
        projector: &ProjectorChoice,
    ) -> Result<Self, WeightError> {
        match model {
            ModelRef::Folder(folder) => Self::open_folder(folder, path_name(folder), projector),
            ModelRef::GgufFile(path) => Self::open_gguf(path, path_name(path), projector),
            ModelRef::Hub(reference) => {
                let path = hub::fetch_blocking(reference, options)?;
                let name = reference.repository.clone();
                if path.is_dir() {
                    Self::open_folder(&path, name, projector)
                } else {
                    Self::open_gguf(&path, name, projector)
                }
            }
        }
    }

    /// Opens the headers of a model of the hub: what isn't in them reads as zeros, small matrices as random
    /// numbers and vectors as ones.
    ///
    /// # Errors
    /// As [`ModelSource::open`].
    #[cfg(feature = "hub")]
    pub fn open_headers(
        headers: &hub::headers::Headers,
        name: String,
    ) -> Result<Self, WeightError> {
        let source = match &headers.gguf {
            Some(path) => Self::open_gguf(path, name, &ProjectorChoice::Absent)?,
            None => Self::open_folder(headers.folder(), name, &ProjectorChoice::Absent)?,
        };
        let tensors = Arc::new(MadeUp(source.tensors.clone()));
        Ok(Self { tensors, ..source })
    }

    /// Opens a model whose files are part of the binary: file name and content.
    ///
    /// # Errors
    /// As [`ModelSource::open`].
    pub fn embedded(name: &str, files: &[(&str, &'static [u8])]) -> Result<Self, WeightError> {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        Self::from_folder(&ModelFolder::Embedded(files), name.to_owned())
    }

    /// The tensors, for a model on `device`.
    pub fn weights(&self, device: &Device) -> Weights {
        Weights::new(self.tensors.clone(), device.clone())
    }

    /// Bytes of all tensors as stored: about what they take when loaded as they are.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors.total_bytes()
    }

    /// All tensors without their bytes, by name.
    ///
    /// # Errors
    /// When a tensor is of a type that can't be read.
    pub fn outlines(&self) -> Result<Vec<Outline>, WeightError> {
        self.weights(&Device::Cpu).outlines()
    }

    /// Where the tensors come from.
    pub(crate) fn tensors(&self) -> Arc<dyn TensorSource> {
        self.tensors.clone()
    }

    /// Whether the configuration says that its tensors are quantized, in whatever way.
    pub fn was_quantized(&self) -> bool {
        let config: Value = serde_json::from_str(&self.stored_config).unwrap_or_default();
        let fields = ["quantization_config", "compression_config"];
        fields.iter().any(|field| config.get(field).is_some_and(|value| !value.is_null()))
    }

    /// A digest of the configuration and of the weights as they are stored, equal for equal checkpoints
    /// wherever they are.
    ///
    /// # Errors
    /// When a tensor can't be read.
    pub fn digest(&self) -> Result<[u8; 32], WeightError> {
        digest::of_checkpoint(&self.stored_config, self.tensors.as_ref())
    }

    /// Whether `config.json` names the class of ColBERT's own library, whose folders have no modules.
    pub fn is_colbert(&self) -> bool {
        let names = self.config.get("architectures").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|name| name == "HF_ColBERT"))
    }

    /// Whether there is a file with a tokenizer.
    pub fn has_tokenizer(&self) -> bool {
        let files = [&self.tokenizer_json, &self.tokenizer_model, &self.tekken_json];
        files.into_iter().chain([&self.tiktoken_file]).any(Option::is_some)
    }

    /// Gives the memory of file pages that were read back to the system; reading goes on to work.
    pub fn release_pages(&self) {
        self.tensors.release_pages();
    }

    fn open_folder(
        folder: &Path,
        name: String,
        projector: &ProjectorChoice,
    ) -> Result<Self, WeightError> {
        let files = ModelFolder::Disk(folder.to_owned());
        match (only_gguf(&files.names()?), projector) {
            (Some(file), _) => Self::open_gguf(&folder.join(file), name, projector),
            (None, ProjectorChoice::At(path)) => Err(WeightError::corrupt(
                path,
                "a projector belongs to a model in GGUF; other checkpoints have their own tower",
            )),
            (None, _) => Self::from_folder(&files, name),
        }
    }

    fn from_folder(folder: &ModelFolder, name: String) -> Result<Self, WeightError> {
        let tensors = SafetensorsSource::from_folder(folder)?;
        let Some(mut config) = folder.json_object("config.json")? else {
            return Err(WeightError::Incomplete {
                folder: folder.root().to_owned(),
                reason: missing_config(folder)?,
            });
        };
        let stored_config = config.to_string();
        let stored = decompressed(tensors, &mut config);
        let task_adapters = task_adapters::find(folder, &config, &stored)?;
        let tensors = under_one_name(without_adapters(stored));
        let names = folder.names()?;
        if names.iter().any(|name| name == MASK_EMBEDDING) {
            // No field of a configuration tells of it.
            config["mask_embedding"] = MASK_EMBEDDING.into();
        }
        let tokenizer_config = folder.json_object("tokenizer_config.json")?;
        let templates = ChatTemplates::read(folder, tokenizer_config.as_ref())?;
        let tokenizer_json = folder.read("tokenizer.json")?;
        let unless = |known: bool, name| if known { Ok(None) } else { folder.read(name) };
        let tokenizer_model = unless(tokenizer_json.is_some(), "tokenizer.model")?;
        let known = tokenizer_json.is_some() || tokenizer_model.is_some();
        let tekken_json = unless(known, "tekken.json")?;
        let known = known || tekken_json.is_some();
        let tiktoken = names.iter().find(|name| is_tiktoken(name)).filter(|_| !known);
        Ok(Self {
            name,
            config,
            generation_config: folder.json_object("generation_config.json")?,
            processor_config: processor_config(folder)?,
            tekken_json,
            tiktoken_file: tiktoken.map_or(Ok(None), |name| folder.read(name))?,
            tokenizer_json,
            tokenizer_model,
            tokenizer_config,
            special_tokens_map: folder.json_object("special_tokens_map.json")?,
            added_tokens: folder.json("added_tokens.json")?,
            chat_template: templates.default,
            tool_use_template: templates.tool_use,
            gguf_vocabulary: None,
            sentence_modules: SentenceModules::read(folder)?,
            artifact_metadata: folder.json_object("artifact.metadata")?,
            token_heads: TokenHeadFiles::find(folder)?,
            task_adapters,
            is_draft_head: false,
            stored_config,
            tensors,
        })
    }

    /// Takes the head that drafts of another file.
    ///
    /// # Errors
    /// What is not the same of the two.
    pub fn take_draft_head(&mut self, head: &Self) -> Result<(), String> {
        if !head.is_draft_head {
            return Err("it is a whole model".to_owned());
        }
        for field in ["architectures", "hidden_size", "num_hidden_layers", "vocab_size"] {
            let [own, other] =
                [&*self, head].map(|source| source.config.get(field).cloned().unwrap_or_default());
            if own != other {
                return Err(format!("its `{field}` is {other}, the model's is {own}"));
            }
        }
        // What the head's own file alone knows.
        let own = "mtp_layer_types";
        if let Some(kinds) = head.config.get(own) {
            self.config[own] = kinds.clone();
        }
        let (model, head) = (self.tensors.clone(), head.tensors.clone());
        self.tensors = Arc::new(WithHead { model, head });
        Ok(())
    }

    /// Opens a GGUF file, and those beside it that have the tower which looks at pictures and the head
    /// which drafts, if there are any.
    fn open_gguf(
        path: &Path,
        name: String,
        projector: &ProjectorChoice,
    ) -> Result<Self, WeightError> {
        let (mut source, holds) = Self::gguf_alone(path, name, projector)?;
        if let Some(head) = head_beside(path).filter(|_| holds == Holds::Model) {
            let file = head.display();
            let opened = Self::gguf_alone(&head, path_name(&head), &ProjectorChoice::Absent);
            let opened = opened.map_err(|error| error.to_string());
            match opened.and_then(|(head, _)| source.take_draft_head(&head)) {
                Ok(()) => tracing::info!(%file, "a head that drafts is beside the model"),
                Err(why) => tracing::warn!(%file, why, "the head beside the model is not used"),
            }
        }
        Ok(source)
    }

    /// Opens a GGUF file, or all parts of a model, with a tower.
    fn gguf_alone(
        path: &Path,
        name: String,
        projector: &ProjectorChoice,
    ) -> Result<(Self, Holds), WeightError> {
        let mut model = gguf::open(path)?;
        match projector {
            ProjectorChoice::Absent => {}
            ProjectorChoice::At(file) => model.add_projector(file)?,
            ProjectorChoice::Beside => add_projector_beside(&mut model, path),
        }
        let source = Self {
            name,
            stored_config: model.config.to_string(),
            config: model.config,
            generation_config: Some(model.generation_config),
            processor_config: model.processor_config,
            tokenizer_json: model.tokenizer_json,
            tokenizer_model: None,
            tekken_json: None,
            tiktoken_file: None,
            tokenizer_config: None,
            special_tokens_map: None,
            added_tokens: None,
            chat_template: model.chat_template,
            tool_use_template: model.tool_use_template,
            gguf_vocabulary: Some(model.vocabulary),
            sentence_modules: model.sentence_modules,
            artifact_metadata: None,
            token_heads: None,
            task_adapters: Vec::new(),
            is_draft_head: model.holds == Holds::Head,
            tensors: model.tensors,
        };
        Ok((source, model.holds))
    }
}

/// The file beside that of a model that has the head which drafts for it, by its name.
fn head_beside(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let names = ModelFolder::Disk(folder.unwrap_or(Path::new(".")).to_owned()).names().ok()?;
    let name = path.file_name()?.to_str()?;
    let head = beside::head_of(name, names.iter().map(String::as_str))?;
    Some(path.with_file_name(head))
}

/// Adds the first projector beside the file that belongs to it.
fn add_projector_beside(model: &mut gguf::GgufModel, path: &Path) {
    for file in projector::beside(path) {
        match model.add_projector(&file) {
            Ok(()) => {
                tracing::info!("pictures are looked at by {}", file.display());
                return;
            }
            Err(error) => tracing::warn!("{error}; the file is left out"),
        }
    }
}

/// How pictures are prepared, from the one or the other file.
fn processor_config(folder: &ModelFolder) -> Result<Option<Value>, WeightError> {
    if let Some(config) = folder.json_object("preprocessor_config.json")? {
        return Ok(Some(config));
    }
    let whole = folder.json_object("processor_config.json")?;
    let part = |name| whole.as_ref()?.get(name).cloned();
    Ok(part("image_processor").or_else(|| part("feature_extractor")))
}

/// Whether a file's name says that it is one of tiktoken.
fn is_tiktoken(name: &str) -> bool {
    name == "tiktoken.model" || name.ends_with(".tiktoken")
}

/// Takes the quantization out of `config` where it is one that reading undoes.
fn decompressed(tensors: SafetensorsSource, config: &mut Value) -> Arc<dyn TensorSource> {
    let quantization = config.get("quantization_config").or(config.get("compression_config"));
    let Some(quantization) = quantization.filter(|value| !value.is_null()) else {
        return Arc::new(tensors);
    };
    match CompressedSource::new(tensors, quantization) {
        Ok(source) => {
            if let Some(config) = config.as_object_mut() {
                config.remove("quantization_config");
                config.remove("compression_config");
            }
            Arc::new(source)
        }
        Err(tensors) => Arc::new(tensors),
    }
}

impl std::fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelSource")
            .field("name", &self.name)
            .field("weight_bytes", &self.weight_bytes())
            .finish_non_exhaustive()
    }
}

/// The GGUF file of a folder that holds one model in GGUF and no safetensors.
fn only_gguf(names: &[String]) -> Option<&str> {
    if names.iter().any(|name| name.ends_with(".safetensors") || name.ends_with(".index.json")) {
        return None;
    }
    let ggufs: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| is_model_gguf(name)).collect();
    let first = *ggufs.first()?;
    // One file, or the parts of one.
    let parts = split::parts(first).unwrap_or_else(|| vec![first.to_owned()]);
    ggufs.iter().all(|name| parts.iter().any(|part| part == name)).then_some(first)
}

fn missing_config(folder: &ModelFolder) -> Result<String, WeightError> {
    let original_release = folder.names()?.iter().any(|name| name == "params.json");
    Ok(if original_release {
        "config.json is missing; params.json belongs to the original release format, which is not \
         supported: take the Hugging Face format of this model"
            .to_owned()
    } else {
        "config.json is missing; a checkpoint needs it beside its weights".to_owned()
    })
}

/// The last part of a path without `.gguf`; `.` and `..` are resolved.
fn path_name(path: &Path) -> String {
    let resolved = path.canonicalize();
    let path = match path.file_name() {
        Some(_) => path,
        None => resolved.as_deref().unwrap_or(path),
    };
    let gguf = path.to_str().is_some_and(has_gguf_ending);
    let name = if gguf { path.file_stem() } else { path.file_name() };
    name.map_or("model".to_owned(), |name| name.to_string_lossy().into_owned())
}
