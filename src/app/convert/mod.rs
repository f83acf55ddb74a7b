//! A GGUF file of a checkpoint in a folder.
//!
//! What the file's metadata says is made of the [`DecoderSpec`], which is what a configuration means, and of what
//! the folder's tokenizer does. Then the file's header is read back, before anything is written: if the model
//! that it describes is not the folder's, or its tokenizer gives a text other ids, the format can't say what the
//! folder is, and there is no file.

mod layers;
mod metadata;
mod sameness;
mod vocabulary;

use std::path::Path;

use anyhow::{Context, bail};

use crate::config::WeightKind;
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::layers::recurrent::CellSpec;
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;
use crate::models::{Top, spec, top};
use crate::weights::gguf::write::shape::{
    DeltaHeads, HeadCounts, LatentHeads, ModelShape, StackedExperts,
};
use crate::weights::gguf::write::{Draft, ReadBack};
use crate::weights::hub::HubOptions;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;
use layers::attends;

/// Writes the model in `folder` to the GGUF file `to` with its matrices in `kind`; `progress` is told of bytes
/// that were written and of all. Gives the number of tensors that such a file can't have: those of a tower that
/// looks at pictures or listens, or of a head that drafts.
///
/// # Errors
/// The folder is no checkpoint of a language model, is quantized already, or says what no GGUF file can; `to`
/// exists or can't be written. There is no file then.
pub fn convert(
    folder: &Path,
    to: &Path,
    kind: WeightKind,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<usize> {
    let source =
        ModelSource::open(&ModelRef::Folder(folder.to_owned()), &HubOptions::offline(folder))?;
    let draft = draft(&source, kind).with_context(|| format!("{}", folder.display()))?;
    draft.write(to, progress)?;
    Ok(draft.left_out())
}

/// The file, which was read back.
fn draft(source: &ModelSource, kind: WeightKind) -> anyhow::Result<Draft> {
    if source.gguf_vocabulary.is_some() {
        bail!("it has a GGUF file and no other weights; name that file");
    }
    if source.was_quantized() {
        bail!(
            "it is quantized already, and what is quantized can't be rounded again; take the checkpoint that \
             it was made of"
        );
    }
    let config = HfConfig::from_value(&source.config)?;
    if top(&config).is_some_and(|top| top != Top::LanguageModel)
        || source.sentence_modules.is_some()
    {
        bail!("only language models are written; this one makes embeddings or judges texts");
    }
    let spec = spec(&config)?;
    let classes: Vec<&str> = config.architectures.iter().map(String::as_str).collect();
    let mut draft =
        Draft::new(source, &classes, &shape(&spec), kind.ggml()).map_err(anyhow::Error::msg)?;
    let words = vocabulary::find(source, spec.vocab_size)?;
    // Only where it is needed: readers of some architectures know it, and take no other way to say it.
    let mut reason = String::new();
    for windows in [false, true] {
        match attempt(source, &spec, &words, windows, &mut draft) {
            Ok(()) => return Ok(draft),
            Err(error) if reason.is_empty() || windows => reason = error,
            Err(_) => {}
        }
    }
    let gguf = draft.architecture();
    bail!("a GGUF file of a `{gguf}` can't say what this model is: {reason}")
}

/// Sets the metadata and reads it back; `windows` says whether it has which layers have one.
fn attempt(
    source: &ModelSource,
    spec: &DecoderSpec,
    words: &vocabulary::Found,
    windows: bool,
    draft: &mut Draft,
) -> Result<(), String> {
    let (mut entries, floats) = metadata::entries(source, spec, draft.architecture(), windows)?;
    entries.extend(words.entries.iter().cloned());
    draft.set_metadata(&entries, &metadata::language_part(&source.config), floats)?;
    let ReadBack { config, vocabulary, .. } = draft.read_back()?;
    let config = HfConfig::from_value(&config).map_err(|error| error.to_string())?;
    let read = crate::models::spec(&config).map_err(|error| error.to_string())?;
    if let Some(difference) = sameness::difference(spec, &read) {
        return Err(difference);
    }
    words.check(vocabulary)
}

/// How the tensors are cut.
fn shape(spec: &DecoderSpec) -> ModelShape {
    let layers = spec.attention.len();
    let first = (0..layers).find(|layer| attends(spec, *layer)).unwrap_or(0);
    let attention = &spec.attention[first];
    let latent = attention.latent.map(|latent| LatentHeads {
        heads: attention.num_heads,
        key: latent.nope_dim,
        value: latent.value_dim,
    });
    let experts = spec.moe.as_ref().map(|moe| moe.experts);
    let cell = spec.recurrent.as_ref().map(|recurrent| &recurrent.cell);
    ModelShape {
        roots: spec.names.roots,
        layers,
        tied: spec.tied_embeddings,
        transposed: spec.transposed_matrices,
        heads: HeadCounts {
            query: attention.num_heads,
            key: attention.num_kv_heads,
            dim: attention.head_dim,
            value: attention.value_dim(),
            rotary: attention.head_dim,
        },
        has_experts: experts.is_some(),
        stacked: match experts {
            // Gates and ups in two stacks have no recipe.
            Some(ExpertTensors::Stacked(tensors) | ExpertTensors::StackedOrList(tensors, _))
                if tensors.ups.is_none() =>
            {
                Some(stacked(tensors))
            }
            _ => None,
        },
        latent,
        state_groups: match cell {
            Some(CellSpec::StateSpace(space)) => Some(space.groups),
            _ => None,
        },
        delta: match cell {
            Some(CellSpec::DeltaRule(rule)) => Some(DeltaHeads {
                keys: rule.heads.keys,
                values: rule.heads.values,
                key_dim: rule.heads.key_dim,
                value_dim: rule.heads.value_dim,
            }),
            _ => None,
        },
    }
}

fn stacked(tensors: StackedTensors) -> StackedExperts {
    let StackedTensors { names, transposed, interleaved, biases, .. } = tensors;
    StackedExperts { names, biases, transposed, interleaved }
}

#[cfg(test)]
mod tests;
