//! EuroBERT: Llama that reads a whole text at once. Boizard et al., 2025.

use serde_json::Value;

use crate::models::classifier::{
    ClassifiedBy, ClassifierActivation, ClassifierLayer, ClassifierSpec,
};
use crate::models::common::{
    DecoderSpec, Defaults, EncoderArchitecture, HfConfig, Names, Result, base, read_biases,
};
use crate::models::top::Top;

pub(super) const FAMILIES: &[EncoderArchitecture] =
    &[EncoderArchitecture { family: "EuroBert", spec, complete: None, classifier }];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { context: 8192, norm_eps: 1e-5, ..Defaults::LLAMA })?;
    read_biases(config, &mut spec);
    spec.names = Names { roots: &["model.", ""], ..Names::COMMON };
    Ok(spec)
}

/// A class's head reads the first token or the mean of all, as `classifier_pooling` says. With `late`,
/// their default, every token is read and the logits are averaged, which no head here does.
fn classifier(config: &Value, top: Top) -> Option<ClassifierSpec> {
    let classes = ClassifierLayer::Classes("classifier");
    if top == Top::TokenClassifier {
        return ClassifierSpec::new(config, top, ClassifiedBy::First, vec![classes]);
    }
    let from = match config.get("classifier_pooling").and_then(Value::as_str) {
        Some("bos") => ClassifiedBy::First,
        Some("mean") => ClassifiedBy::Mean,
        _ => return None,
    };
    let layers = vec![ClassifierLayer::Hidden("dense", ClassifierActivation::Gelu), classes];
    ClassifierSpec::new(config, top, from, layers)
}
