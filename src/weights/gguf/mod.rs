//! GGUF files: tensors under Hugging Face names, metadata in Hugging Face words.
//!
//! A model can't tell that its weights came from GGUF, but for their quantized kinds. The file is
//! mapped and tensors are read where they lie, but for those that conversion had changed. Of
//! a model in several files the first has the metadata, and any of them names it.

mod architecture;
mod architectures;
pub(crate) mod beside;
mod by_layer;
mod config;
mod cursor;
mod drafters;
mod encoders;
mod families;
mod gemma3n;
mod gemma4;
mod header;
mod keys;
mod kinds;
mod latent;
mod linear_attention;
mod locations;
mod names;
mod other_layers;
mod parts;
mod projector;
mod recurrent;
mod refused;
pub mod requantize;
mod rope;
mod rope_tensors;
mod row_order;
pub(super) mod split;
mod state_spaces;
mod value;
pub mod vocabulary;
mod with_experts;
pub mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use serde_json::Value as Json;

use architecture::{Architecture, Outer};
use header::TensorInfo;
use keys::ModelKeys;
use kinds::Kind;
use locations::{Change, Location};
use rope_tensors::{LONG_ROPE_FACTORS, ROPE_FACTORS, RopeTensors};
use value::Metadata;
use vocabulary::GgufVocabulary;

use super::error::WeightError;
use super::file_bytes::FileBytes;
use super::sentence_modules::SentenceModules;
use super::stored::StoredTensor;
use super::tensors::{Outline, TensorSource};

/// Everything that a GGUF file holds.
pub(crate) struct GgufModel {
    /// `general.architecture`.
    architecture: &'static str,
    pub(crate) config: Json,
    /// How pictures are prepared, of a file with a projector.
    pub(crate) processor_config: Option<Json>,
    pub(crate) generation_config: Json,
    pub(crate) vocabulary: GgufVocabulary,
    /// A whole `tokenizer.json`, which few files carry.
    pub(crate) tokenizer_json: Option<Vec<u8>>,
    pub(crate) chat_template: Option<String>,
    pub(crate) tool_use_template: Option<String>,
    pub(crate) sentence_modules: Option<SentenceModules>,
    pub(crate) tensors: Arc<dyn TensorSource>,
    pub(crate) holds: Holds,
}

/// What a file has of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// All of it but a head that drafts.
    Model,
    /// The model and a head that drafts.
    ModelAndHead,
    /// The head that drafts alone, for a model in another file.
    Head,
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
    let Parts { architecture, config, generation_config, vocabulary, tensors, pooling, holds } =
        parts;
    let text = |key: &str| header.metadata.text(key).map_err(|r| WeightError::corrupt(path, r));
    let (tokenizer_json, chat_template, tool_use_template) = (
        text("tokenizer.huggingface.json")?.map(String::into_bytes),
        text("tokenizer.chat_template")?,
        text("tokenizer.chat_template.tool_use")?,
    );
    drop(header);
    let tensors =
        Arc::new(GgufSource { files: files.into_iter().map(Arc::new).collect(), tensors });
    let sentence_modules = pooling.map(|mode| encoders::modules(mode, tensors.as_ref()));
    let sentence_modules =
        sentence_modules.transpose().map_err(|reason| WeightError::corrupt(path, reason))?;
    Ok(GgufModel {
        architecture,
        config,
        processor_config: None,
        generation_config,
        vocabulary,
        tokenizer_json,
        chat_template,
        tool_use_template,
        sentence_modules,
        tensors,
        holds,
    })
}

#[cfg(feature = "hub")]
pub(crate) use header::end as end_of_header;

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
    architecture: &'static str,
    config: Json,
    generation_config: Json,
    vocabulary: GgufVocabulary,
    tensors: HashMap<String, Stored>,
    /// How hidden states become vectors, in the words of sentence-transformers.
    pooling: Option<&'static str>,
    holds: Holds,
}

fn read_parts(files: &[FileBytes], header: &header::Header<'_>) -> Result<Parts, String> {
    let metadata = &header.metadata;
    refuse_other_files(metadata)?;
    let architecture = metadata
        .text("general.architecture")?
        .ok_or("metadata `general.architecture` is missing")?;
    let architecture = Architecture::find(&architecture, &header.tensors)?;
    let keys = ModelKeys::new(metadata, architecture.gguf, architecture.heads, &header.tensors);
    let vocabulary = GgufVocabulary::read(metadata)?;
    let factors = |name: &str| {
        let tensor = header.tensors.iter().find(|tensor| tensor.name == name);
        tensor.map(|tensor| locations::floats(files[tensor.file].bytes(), tensor)).transpose()
    };
    let [long, short] = LONG_ROPE_FACTORS.map(factors);
    let rope_tensors = RopeTensors { factors: factors(ROPE_FACTORS)?, long: long?, short: short? };
    let config = keys.config(architecture, &rope_tensors, &vocabulary)?;
    let heads = keys.heads()?;
    let layers = keys.layers()?;
    let mut located = locations::locations(&header.tensors, architecture, heads, layers)?;
    let holds = holds(&mut located, architecture, layers);
    let mut tensors: HashMap<_, _> =
        located.into_iter().map(|(name, location)| (name, Stored::InFile(location))).collect();
    join_keys_and_values(&mut tensors);
    if architecture.activation == "xielu" {
        for numbers in families::activation_numbers(&keys)? {
            for (layer, value) in numbers.values.into_iter().take(layers).enumerate() {
                let name = format!("{}.{layer}.{}", architecture.outer.layers, numbers.name);
                tensors.insert(name, Stored::Number { value, shape: numbers.shape });
            }
        }
    }
    Ok(Parts {
        architecture: architecture.gguf,
        config,
        generation_config: config::generation_config(metadata, &vocabulary)?,
        tensors,
        vocabulary,
        pooling: encoders::pooling(&keys)?,
        holds,
    })
}

/// What these tensors are. A head's file repeats what stands around the layers, which is taken away.
fn holds(
    tensors: &mut HashMap<String, Location>,
    architecture: &Architecture,
    layers: usize,
) -> Holds {
    let Outer { embedding, layers: list, norm, head } = architecture.outer;
    let behind = format!("{list}.{layers}");
    let own = architecture.draft_head.as_ref().map(|head| head.layer.unwrap_or(&behind));
    let below = |root: &str| {
        let root = format!("{root}.");
        tensors.keys().any(|name| name.starts_with(&root))
    };
    match (own.is_some_and(below), below(&format!("{list}.0"))) {
        (false, _) => Holds::Model,
        (true, true) => Holds::ModelAndHead,
        (true, false) => {
            tensors
                .retain(|name, _| ![embedding, norm, head].iter().any(|own| name.starts_with(own)));
            Holds::Head
        }
    }
}

/// Makes one tensor of two where newer files have keys and values of latent vectors apart.
fn join_keys_and_values(tensors: &mut HashMap<String, Stored>) {
    let ending = |part: &str| format!("{part}.weight");
    let starts: Vec<String> = tensors
        .keys()
        .filter_map(|name| name.strip_suffix(&ending(latent::KEYS)).map(str::to_owned))
        .collect();
    for start in starts {
        let name = |part| format!("{start}{}", ending(part));
        let parts = [latent::KEYS, latent::VALUES].map(|part| tensors.remove(&name(part)));
        if let [Some(Stored::InFile(keys)), Some(Stored::InFile(values))] = parts {
            tensors.insert(name(latent::BOTH), Stored::KeysAndValues([keys, values]));
        }
    }
}

/// Files that are GGUF, but not a whole model.
fn refuse_other_files(metadata: &Metadata<'_>) -> Result<(), String> {
    match metadata.text("general.type")?.as_deref() {
        None | Some("model") => Ok(()),
        Some("adapter") => Err("this is a LoRA adapter, not a whole model".to_owned()),
        Some(other) => Err(format!("this is a GGUF file of type `{other}`, expected `model`")),
    }
}

/// One tensor under its Hugging Face name.
#[derive(Debug)]
enum Stored {
    InFile(Location),
    /// Keys and values of latent vectors.
    KeysAndValues([Location; 2]),
    /// One number that the metadata has.
    Number {
        value: f32,
        shape: &'static [usize],
    },
}

/// The tensors of a model's GGUF files, by Hugging Face names.
#[derive(Debug)]
struct GgufSource {
    files: Vec<Arc<FileBytes>>,
    tensors: HashMap<String, Stored>,
}

impl GgufSource {
    fn read_location(&self, location: &Location) -> Result<StoredTensor, WeightError> {
        let Location { info, change } = location;
        let TensorInfo { kind, shape, bytes, .. } = info.clone();
        let file = &self.files[info.file];
        let stored = match kind {
            Kind::Ggml(kind) => StoredTensor::in_file(kind, shape.clone(), file.clone(), bytes),
            Kind::Coded(kind) => StoredTensor::in_file(kind, shape.clone(), file.clone(), bytes),
            Kind::Whole => {
                return Err(WeightError::BadTensor {
                    name: info.name.clone(),
                    origin: file.path().display().to_string(),
                    reason: "it has whole numbers where weights are expected".to_owned(),
                });
            }
        };
        let kind = stored.kind();
        // The pages of what was copied go back to the system with `stored`.
        Ok(match change {
            None => stored,
            Some(Change::InHalves(heads)) => {
                let rows = row_order::in_halves(stored.bytes(), shape[0], *heads);
                StoredTensor::owned(kind, shape, rows)
            }
            Some(Change::ByGroup { query, key }) => {
                let rows = row_order::by_group(stored.bytes(), shape[0], *query, *key);
                StoredTensor::owned(kind, shape, rows)
            }
            Some(change @ (Change::MinusOne | Change::Negated)) => {
                let values = stored.to_tensor(DType::F32)?.flatten_all()?;
                let values =
                    if *change == Change::MinusOne { (values - 1.0)? } else { values.neg()? };
                let values = values.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes);
                StoredTensor::owned(GgmlDType::F32, shape, values.collect())
            }
        })
    }
}

impl TensorSource for GgufSource {
    fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        match self.tensors.get(name) {
            Some(Stored::InFile(location)) => self.read_location(location),
            Some(Stored::KeysAndValues([keys, values])) => {
                let (keys, values) = (self.read_location(keys)?, self.read_location(values)?);
                Ok(latent::keys_and_values(&keys, &values)?)
            }
            Some(Stored::Number { value, shape }) => {
                let bytes = value.to_le_bytes().to_vec();
                Ok(StoredTensor::owned(GgmlDType::F32, shape.to_vec(), bytes))
            }
            None => {
                let origin = self.origin(name);
                Err(WeightError::MissingTensor { name: name.to_owned(), origin })
            }
        }
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        let Some(Stored::InFile(Location { info, .. })) = self.tensors.get(name) else {
            return None;
        };
        if info.kind != Kind::Whole {
            return None;
        }
        let bytes = self.files[info.file].bytes().get(info.bytes.clone())?;
        let numbers = bytes.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word));
        // Files have ids where checkpoints have how much higher they are.
        let relative = info.name == drafters::KNOWN_TOKENS;
        let own = (0..).map(|id: i64| if relative { id } else { 0 });
        Some(numbers.zip(own).map(|(number, own)| number.wrapping_sub(own)).collect())
    }

    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        let infos: Vec<&TensorInfo> = match self.tensors.get(name) {
            Some(Stored::InFile(location)) => vec![&location.info],
            Some(Stored::KeysAndValues(both)) => both.iter().map(|one| &one.info).collect(),
            Some(Stored::Number { shape, .. }) => {
                let (kind, dims) = (GgmlDType::F32.into(), shape.to_vec());
                return Ok(Outline { name: name.to_owned(), kind, dims, bytes: 4 });
            }
            None => {
                let origin = self.origin(name);
                return Err(WeightError::MissingTensor { name: name.to_owned(), origin });
            }
        };
        let kind = match infos[0].kind {
            Kind::Ggml(kind) => kind.into(),
            Kind::Coded(kind) => kind.into(),
            // There is no word for it, and nobody multiplies with it.
            Kind::Whole => GgmlDType::F32.into(),
        };
        // Keys and values are matrices over the same inputs.
        let dims = if let [one] = infos[..] {
            one.shape.clone()
        } else {
            let columns = infos[1].shape.last().copied().unwrap_or(1);
            let elements: usize = infos.iter().map(|one| one.shape.iter().product::<usize>()).sum();
            vec![elements / columns.max(1), columns]
        };
        let bytes = infos.iter().map(|one| one.bytes.len()).sum();
        Ok(Outline { name: name.to_owned(), kind, dims, bytes })
    }

    fn origin(&self, name: &str) -> String {
        let path = |file: usize| self.files[file].path().display();
        match self.tensors.get(name) {
            Some(
                Stored::InFile(Location { info, .. })
                | Stored::KeysAndValues([Location { info, .. }, _]),
            ) => {
                format!("{} (as `{}`)", path(info.file), info.name)
            }
            _ => path(0).to_string(),
        }
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn total_bytes(&self) -> u64 {
        let bytes = |stored: &Stored| match stored {
            Stored::InFile(location) => location.info.bytes.len() as u64,
            Stored::KeysAndValues(both) => {
                both.iter().map(|location| location.info.bytes.len() as u64).sum()
            }
            Stored::Number { .. } => 4,
        };
        self.tensors.values().map(bytes).sum()
    }

    fn release_pages(&self) {
        for file in &self.files {
            file.release(0..file.bytes().len());
        }
    }
}
