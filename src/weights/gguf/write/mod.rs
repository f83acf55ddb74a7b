//! A GGUF file of a checkpoint in a folder: what reading undoes, done.
//!
//! ```text
//! shape     how the model's tensors are cut, told from above
//! recipes   what each tensor of the file is made of | finder: where the checkpoint has it
//! entries   metadata, told from above
//! output    a file on its way to the disk
//! ```
//!
//! Which names a file has, how their rows are ordered and what is added to norms is in the tables that reading
//! has, read the other way. What the metadata says is for those who know what a configuration means: they read
//! the [`Draft`] back before anything is written.

pub mod entries;
mod finder;
pub(super) mod output;
mod recipes;
pub mod shape;

use std::path::Path;
use std::sync::Arc;

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use serde_json::Value as Json;

use super::architecture::Architecture;
use super::header;
use super::keys::ModelKeys;
use super::kinds::Kind;
use super::requantize::{FILE_TYPE, file_type, target};
use super::rope_tensors::{LONG_ROPE_FACTORS, ROPE_FACTORS, RopeTensors};
use super::vocabulary::GgufVocabulary;
use super::{config, locations};
use crate::error::WeightError;
use crate::source::ModelSource;
use crate::stored::StoredTensor;
use crate::tensors::TensorSource;
use entries::{Entries, Entry};
use finder::{Edit, Piece, Step};
use output::{Output, Planned};
use recipes::{Recipe, recipes};
use shape::ModelShape;

/// Parts of names of matrices that files have as f32.
const WIDE: [&str; 8] = [
    "ffn_gate_inp.",
    "ffn_gate_inp_shexp.",
    "position_embd.",
    "token_types.",
    "ssm_conv1d.",
    "shortconv.conv.",
    "indexer.proj.",
    "_norm.",
];

/// Ends of keys that other readers need where ours doesn't.
const ELSEWHERE: [&str; 5] = [
    "vocab_size",
    "expert_feed_forward_length",
    "attention.key_length",
    "attention.value_length",
    "expert_shared_feed_forward_length",
];

/// A file that could be written.
pub struct Draft {
    source: Arc<dyn TensorSource>,
    architecture: &'static Architecture,
    entries: Entries,
    /// Divisors of rotary frequencies, by the names of their tensors.
    floats: Vec<(&'static str, Vec<f32>)>,
    recipes: Vec<Recipe>,
    kind: GgmlDType,
    left_out: usize,
}

/// What the reader makes of a draft.
pub struct ReadBack {
    /// `config.json`'s fields.
    pub config: Json,
    /// `generation_config.json`'s fields.
    pub generation_config: Json,
    /// The vocabulary.
    pub vocabulary: GgufVocabulary,
}

/// Divisors of rotary frequencies for contexts of any length, which a file has as a tensor.
pub const DIVISORS: &str = ROPE_FACTORS;
/// Divisors for contexts longer than the pretraining's, and for others.
pub const DIVISORS_BY_LENGTH: [&str; 2] = LONG_ROPE_FACTORS;
/// Numbers of sampling, by their names in files and in `generation_config.json`.
pub const SAMPLING_NUMBERS: [(&str, &str); 4] = super::config::SAMPLING_NUMBERS;

impl Draft {
    /// The file of a checkpoint of one of these `classes`, with its matrices in `kind`.
    ///
    /// # Errors
    /// The classes are in no table, a tensor is quantized already, or has no place in such a file.
    pub fn new(
        source: &ModelSource,
        classes: &[&str],
        shape: &ModelShape,
        kind: GgmlDType,
    ) -> Result<Self, String> {
        let tensors = source.tensors();
        let mut refused = None;
        for architecture in classes.iter().flat_map(|class| Architecture::of_class(class)) {
            match recipes(tensors.as_ref(), architecture, shape) {
                Ok(recipes) => {
                    return Ok(Self {
                        source: tensors,
                        architecture,
                        entries: Entries::default(),
                        floats: Vec::new(),
                        recipes: recipes.all,
                        kind,
                        left_out: recipes.left_out,
                    });
                }
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        Err(refused.unwrap_or_else(|| {
            format!(
                "there is no GGUF architecture for {}; the guide's table of architectures has those that there are",
                classes.join(", ")
            )
        }))
    }

    /// What the file calls its architecture.
    pub fn architecture(&self) -> &'static str {
        self.architecture.gguf
    }

    /// How many tensors of the checkpoint have no place in a file of a language model: those of towers that look
    /// at pictures or listen, and of heads that draft.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Says what the metadata is: keys of the architecture by their ends, all others whole, beginning with
    /// `general.` or `tokenizer.`. Those that the reader asks for are kept. `floats` are divisors of frequencies.
    ///
    /// # Errors
    /// What the reader says of it.
    pub fn set_metadata(
        &mut self,
        entries: &[(String, Entry)],
        config: &Json,
        floats: Vec<(&'static str, Vec<f32>)>,
    ) -> Result<(), String> {
        let gguf = self.architecture.gguf;
        let mut all = Entries::default();
        all.add("general.architecture", Entry::Text(gguf.to_owned()));
        all.add("general.type", Entry::Text("model".to_owned()));
        for (end, field) in self.architecture.numbers {
            #[expect(clippy::cast_possible_truncation, reason = "numbers are stored as f32")]
            if let Some(number) = config.get(*field).and_then(Json::as_f64) {
                all.add(format!("{gguf}.{end}"), Entry::F32(number as f32));
            }
        }
        for (key, value) in entries {
            let whole =
                ["general.", "tokenizer.", "xielu."].iter().any(|start| key.starts_with(start));
            let key = if whole { key.clone() } else { format!("{gguf}.{key}") };
            all.add(key, value.clone());
        }
        all.add("general.quantization_version", Entry::U32(2));
        if let Some(number) = file_type(self.kind) {
            all.add(FILE_TYPE, Entry::U32(number));
        }
        self.entries = all;
        self.floats = floats;
        let head = self.head()?;
        let header = self.header(&head)?;
        let keys = ModelKeys::new(&header.metadata, gguf, self.architecture.heads, &header.tensors);
        let vocabulary = GgufVocabulary::read(&header.metadata)?;
        keys.fields(self.architecture, &self.rope_tensors(), &vocabulary)?;
        let own = format!("{gguf}.");
        self.entries.retain(|key| {
            let end = key.strip_prefix(&own);
            end.is_none_or(|end| ELSEWHERE.contains(&end) || keys.was_asked(end))
        });
        Ok(())
    }

    /// What the reader would make of the file.
    ///
    /// # Errors
    /// What the reader says of it.
    pub fn read_back(&self) -> Result<ReadBack, String> {
        let head = self.head()?;
        let header = self.header(&head)?;
        let row = Architecture::find(self.architecture.gguf, &header.tensors)?;
        let keys = ModelKeys::new(&header.metadata, row.gguf, row.heads, &header.tensors);
        let vocabulary = GgufVocabulary::read(&header.metadata)?;
        let config = keys.config(row, &self.rope_tensors(), &vocabulary)?;
        locations::locations(&header.tensors, row, keys.heads()?, keys.layers()?)?;
        let generation_config = config::generation_config(&header.metadata, &vocabulary)?;
        Ok(ReadBack { config, generation_config, vocabulary })
    }

    /// Writes the file; `progress` is told of bytes that were written and of all.
    ///
    /// # Errors
    /// The file is there already or can't be written, and nothing is left of it then; a tensor can't be read.
    pub fn write(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), WeightError> {
        let corrupt = |reason| WeightError::corrupt(path, reason);
        let head = self.head().map_err(corrupt)?;
        let all = output::data_size(&self.planned()).map_err(corrupt)?;
        let mut done = 0;
        output::create(path, |out| {
            out.write(&head)?;
            for (_, numbers) in &self.floats {
                let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
                out.write(&bytes)?;
                out.align()?;
            }
            for recipe in &self.recipes {
                for piece in &recipe.pieces {
                    done += self.write_piece(out, recipe, piece)?;
                    progress(done, all);
                }
                out.align()?;
            }
            Ok(())
        })
    }

    fn write_piece(
        &self,
        out: &mut Output,
        recipe: &Recipe,
        piece: &Piece,
    ) -> Result<u64, WeightError> {
        let mut stored = self.source.read(&piece.tensor)?;
        for step in &piece.steps {
            stored = match step {
                Step::Rows(rows) => stored.rows(rows)?,
                Step::Columns(columns) => stored.columns(columns)?,
                Step::Transpose => stored.transposed()?,
            };
        }
        let target = self.target(recipe);
        if let Some(edit) = recipe.edit {
            stored = edited(&stored, edit)?;
        }
        let columns = recipe.shape.last().copied().unwrap_or(1);
        let elements = stored.dims().iter().product::<usize>();
        out.write_rounded(&stored, columns, target)?;
        Ok((elements / target.block_size() * target.type_size()) as u64)
    }

    /// What a tensor is stored as.
    fn target(&self, recipe: &Recipe) -> GgmlDType {
        let name = &recipe.name;
        if recipe.shape.len() < 2 || !name.ends_with(".weight") {
            return GgmlDType::F32;
        }
        if WIDE.iter().any(|part| name.contains(part)) {
            return GgmlDType::F32;
        }
        if self.kind.block_size() == 1 {
            return self.kind;
        }
        target(&recipe.info(), self.kind).unwrap_or(recipe.kind)
    }

    fn planned(&self) -> Vec<Planned> {
        let floats = self.floats.iter().map(|(name, numbers)| Planned {
            name: (*name).to_owned(),
            shape: vec![numbers.len()],
            kind: Kind::Ggml(GgmlDType::F32),
        });
        let tensors = self.recipes.iter().map(|recipe| Planned {
            name: recipe.name.clone(),
            shape: recipe.shape.clone(),
            kind: Kind::Ggml(self.target(recipe)),
        });
        floats.chain(tensors).collect()
    }

    fn head(&self) -> Result<Vec<u8>, String> {
        output::head(self.entries.len(), &self.entries.encode(), &self.planned())
    }

    fn header<'a>(&self, head: &'a [u8]) -> Result<header::Header<'a>, String> {
        let size = head.len() as u64 + output::data_size(&self.planned())?;
        header::read_beginning(head, size)
    }

    fn rope_tensors(&self) -> RopeTensors {
        let named = |name: &str| {
            self.floats.iter().find(|(known, _)| *known == name).map(|(_, numbers)| numbers.clone())
        };
        let [long, short] = LONG_ROPE_FACTORS.map(named);
        RopeTensors { factors: named(ROPE_FACTORS), long, short }
    }
}

/// The numbers of a tensor with something done to each, as f32.
fn edited(stored: &StoredTensor, edit: Edit) -> Result<StoredTensor, WeightError> {
    let numbers = stored.to_tensor(DType::F32)?;
    let numbers = match edit {
        Edit::PlusOne => (numbers + 1.0)?,
        Edit::Exp => numbers.exp()?,
        Edit::MinusExp => numbers.exp()?.neg()?,
    };
    let bytes = numbers.flatten_all()?.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes);
    Ok(StoredTensor::owned(GgmlDType::F32, stored.dims().to_vec(), bytes.collect()))
}
