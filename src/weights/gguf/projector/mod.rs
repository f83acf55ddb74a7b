//! A projector's file (`mmproj-*.gguf`): the vision tower of a model whose decoder is in another file,
//! in the words of a Hugging Face checkpoint that has both.
//!
//! How to add a kind of projector: a row in `families`, with the names of its tensors, and a function in
//! `config` that sets the fields of its `config.json` and `preprocessor_config.json`.

mod config;
mod families;
mod fields;
mod names;
mod tensors;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use self::families::Family;
use self::fields::{Added, Facts};
use self::tensors::{Pair, ProjectorTensors};
use super::header::{self, Header};
use super::{GgufModel, WeightError};
use crate::file_bytes::FileBytes;

impl GgufModel {
    /// Adds the tower in the projector's file at `path`.
    ///
    /// # Errors
    /// A file of another kind, one of a kind of tower that is not supported, or of another model.
    pub(crate) fn add_projector(&mut self, path: &Path) -> Result<(), WeightError> {
        let corrupt = |reason| WeightError::corrupt(path, reason);
        let file = FileBytes::open(path)?;
        let header = header::read(file.bytes()).map_err(corrupt)?;
        let (added, tensors) = self.read_projector(&header).map_err(corrupt)?;
        drop(header);
        let projector = ProjectorTensors::new(file, tensors);
        let Added { class, model_type, config, text: own, vision, processor } = added;
        let mut whole = config;
        let mut text = self.config.take();
        for (field, value) in own {
            text[field] = value;
        }
        for field in ["bos_token_id", "eos_token_id", "tie_word_embeddings"] {
            whole.insert(field.to_owned(), text[field].clone());
        }
        whole.insert("architectures".to_owned(), vec![class].into());
        whole.insert("model_type".to_owned(), model_type.into());
        whole.insert("text_config".to_owned(), text);
        whole.insert("vision_config".to_owned(), Json::Object(vision));
        self.config = Json::Object(whole);
        self.processor_config = Some(Json::Object(processor));
        self.tensors = Arc::new(Pair { model: self.tensors.clone(), projector });
        Ok(())
    }

    /// What the file adds to the configuration, and its tensors by their Hugging Face names.
    fn read_projector(&self, header: &Header<'_>) -> Result<(Added, tensors::ByName), String> {
        let metadata = &header.metadata;
        if metadata.text("general.architecture")?.as_deref() != Some("clip") {
            return Err("this is no projector: `general.architecture` is not `clip`".to_owned());
        }
        let named = metadata.text("clip.vision.projector_type")?;
        let named = match named {
            Some(named) => named,
            None => metadata
                .text("clip.projector_type")?
                .ok_or("metadata `clip.projector_type` is missing: the file has no vision tower")?,
        };
        let family = Family::find(&named)?;
        let class = family.class(self.architecture).ok_or_else(|| {
            format!(
                "a projector of the type `{named}` doesn't belong to a model of the architecture `{}`",
                self.architecture
            )
        })?;
        let facts = Facts {
            metadata,
            tensors: &header.tensors,
            vocabulary: &self.vocabulary,
            decoder: &self.config,
        };
        check_width(&facts, family)?;
        let tensors = family.tensors(&facts)?;
        let mut added = Added {
            class,
            model_type: family.model_type,
            config: Map::new(),
            text: Map::new(),
            vision: facts.vision()?,
            processor: facts.processor()?,
        };
        (family.fields)(&facts, &mut added)?;
        Ok((added, tensors))
    }
}

/// Whether the file's features are as wide as the decoder's hidden states.
fn check_width(facts: &Facts<'_>, family: &Family) -> Result<(), String> {
    let (name, axis) = family.output;
    let shape = facts.shape(name).ok_or_else(|| format!("tensor `{name}` is missing"))?;
    match shape.get(axis) {
        Some(width) if *width as u64 == facts.width() => Ok(()),
        _ => Err(format!(
            "the projector belongs to another model: `{name}` has the shape {shape:?}, the model's \
             hidden states have {} elements",
            facts.width()
        )),
    }
}
