//! Llama whose tokens see all of a text, as NVIDIA trains it to embed and to judge (llama-nemotron-embed
//! and -rerank). Its classifiers pool as `pooling` says.

use serde_json::Value;

use super::llama::spec;
use crate::models::classifier::{ClassifiedBy, ClassifierLayer, ClassifierSpec};
use crate::models::common::{DecoderSpec, EncoderArchitecture, HfConfig, Result, bad};
use crate::models::top::Top;

pub(super) const FAMILIES: &[EncoderArchitecture] = &[EncoderArchitecture {
    family: "LlamaBidirectional",
    spec: checked,
    complete: None,
    classifier,
}];

/// Values of `pooling`.
const POOLINGS: [(&str, ClassifiedBy); 3] =
    [("avg", ClassifiedBy::Mean), ("cls", ClassifiedBy::First), ("last", ClassifiedBy::Last)];

fn checked(config: &HfConfig) -> Result<DecoderSpec> {
    // Logits are divided by it; embeddings are not.
    if config.architectures.iter().any(|class| class.ends_with("Classification")) {
        config.only("temperature", 1.0)?;
    }
    let pooling: String = config.field_or("pooling", "avg".to_owned())?;
    if POOLINGS.iter().all(|(known, _)| *known != pooling) {
        return Err(bad("pooling", pooling, "must be avg, cls or last"));
    }
    let mut decoder = spec(config)?;
    decoder.names.roots = &["model.", ""];
    Ok(decoder)
}

fn classifier(config: &Value, top: Top) -> Option<ClassifierSpec> {
    let pooling = config.get("pooling").and_then(Value::as_str).unwrap_or("avg");
    let known = POOLINGS.iter().find(|(known, _)| *known == pooling);
    let from = known.map_or(ClassifiedBy::Mean, |(_, from)| *from);
    ClassifierSpec::new(config, top, from, vec![ClassifierLayer::Classes("score")])
}
