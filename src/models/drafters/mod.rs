//! Files that draft for a model: which kinds there are, and those that are made of the model's layers.

mod block;
mod eagle;
mod fields;

use serde_json::Value;

use super::causal_lm::CausalLm;
use super::config::HfConfig;
use super::error::{ModelError, Result};
use super::registry;
use crate::weights::Weights;

/// What a configuration describes, as something that drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrafterKind {
    /// A language model of its own.
    Model,
    /// A head that goes on from what layers of the model gave, EAGLE-3.
    Eagle,
    /// A drafter of blocks of tokens from what layers of the model gave: DFlash, or DSpark, whose tokens
    /// depend on each other too.
    Block {
        /// Whether they do.
        dependent: bool,
    },
}

/// Parts of the class names of what drafts in other ways, and what that is called.
const OTHERS: [(&str, &str); 10] = [
    ("dflash2", "the block drafter DFlash2"),
    ("dflash", "a block drafter DFlash of another shape than Qwen3's"),
    ("dspark", "a block drafter DSpark of another shape than Qwen3's"),
    ("peagle", "P-EAGLE, which drafts several tokens at a time,"),
    ("eagle3deepseek", "EAGLE-3 with latent attention"),
    ("eagle", "EAGLE of the first and second version"),
    ("medusa", "Medusa"),
    ("mlpspeculator", "an MLP speculator"),
    ("mtp", "a head for multi-token prediction outside of its model's checkpoint"),
    ("assistantmodel", "an assistant that reads its model's cache"),
];

/// The kind of drafter that `config` describes.
///
/// # Errors
///
/// A kind that is not supported.
pub fn drafter_kind(config: &Value) -> Result<DrafterKind> {
    let classes = config.get("architectures").and_then(Value::as_array);
    let classes: Vec<&str> = classes.into_iter().flatten().filter_map(Value::as_str).collect();
    let lower = classes.join(" ").to_ascii_lowercase();
    let other = |(part, _): &&(&str, &str)| lower.contains(part);
    if let Some(dependent) = drafts_blocks(config, &classes) {
        return Ok(DrafterKind::Block { dependent });
    }
    let eagle3 = lower.contains("eagle3") || config.get("draft_vocab_size").is_some();
    match OTHERS.iter().find(other) {
        Some(("eagle", _)) | None if eagle3 => Ok(DrafterKind::Eagle),
        None => Ok(DrafterKind::Model),
        Some((_, name)) => Err(ModelError::Unsupported {
            what: format!("{name} ({})", classes.join(", ")),
            supported: "a draft model, EAGLE-3, DFlash and DSpark are".to_owned(),
        }),
    }
}

/// Whether the classes are of a drafter of blocks, and whether its tokens depend on each other.
fn drafts_blocks(config: &Value, classes: &[&str]) -> Option<bool> {
    let is_qwen3 = config.get("model_type").and_then(Value::as_str) == Some("qwen3");
    let kind = |class: &&str| match *class {
        "DFlashDraftModel" => Some(false),
        "Qwen3DSparkModel" => Some(true),
        "DSparkDraftModel" if is_qwen3 => Some(true),
        _ => None,
    };
    classes.iter().find_map(kind)
}

/// The configuration of a drafter as that of a language model, which a head nearly is.
///
/// # Errors
///
/// As [`HfConfig::from_value`].
pub fn drafter_config(kind: DrafterKind, config: &Value) -> Result<HfConfig> {
    match kind {
        DrafterKind::Model => HfConfig::from_value(config),
        DrafterKind::Eagle => HfConfig::from_value(&eagle::of_layer(config)),
        DrafterKind::Block { dependent } => {
            HfConfig::from_value(&block::of_layers(config, dependent)?)
        }
    }
}

/// Builds the drafter that `config` describes, for drafting what `model` generates.
///
/// # Errors
///
/// As [`load`](super::load); a drafter that was made for another model.
pub fn load_drafter(
    config: &Value,
    weights: &Weights,
    model: &dyn CausalLm,
) -> Result<Box<dyn CausalLm>> {
    let kind = drafter_kind(config)?;
    let layers = drafter_config(kind, config)?;
    match kind {
        DrafterKind::Model => registry::load(&layers, weights),
        DrafterKind::Eagle => eagle::load(config, registry::spec(&layers)?, weights, model),
        DrafterKind::Block { dependent } => {
            block::load(config, dependent, registry::spec(&layers)?, weights, model)
        }
    }
}
