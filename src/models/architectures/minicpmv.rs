//! The decoders of MiniCPM-V: from 4.6 on Qwen3.5, whose tokens of pictures have positions in a line; before,
//! the one of three that the version of the model has.

use serde_json::Value;

use super::vision_language::of_text;
use super::{llama, qwen2, qwen3, qwen3_next};
use crate::models::common::{Architecture, DecoderSpec, HfConfig, Names, Result, bad};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("MiniCPMOcrForConditionalGeneration", spec),
    Architecture::new("MiniCPMV", of_version),
    Architecture::new("MiniCPMV4_6ForConditionalGeneration", spec),
];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field::<String>("model_type")?;
    if !matches!(kind.as_deref(), None | Some("qwen3_5_text")) {
        return of_text(config);
    }
    let mut spec = qwen3_next::without_axes(config)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}

/// Makes the specification of a decoder of its configuration.
type SpecReader = fn(&HfConfig) -> Result<DecoderSpec>;

fn of_version(config: &HfConfig) -> Result<DecoderSpec> {
    let version = match config.field::<Value>("version")? {
        Some(Value::String(text)) => text.parse().ok(),
        other => other.as_ref().and_then(Value::as_f64),
    };
    let known: [(f64, SpecReader); 3] =
        [(2.6, qwen2::spec), (4.0, llama::spec), (4.5, qwen3::spec)];
    let same = |(own, _): &&(f64, _)| version.is_some_and(|version| (own - version).abs() < 1e-9);
    let Some((_, decoder)) = known.iter().find(same) else {
        let version = version.map_or("absent".to_owned(), |version| version.to_string());
        return Err(bad("version", version, "supported are 2.6, 4.0 and 4.5"));
    };
    let mut spec = decoder(config)?;
    // Without `llm.` where the decoder stands in a file of its own.
    spec.names.roots = &["llm.model.", "model."];
    Ok(spec)
}
