//! The model that transcribes: beside another, or alone.

use std::sync::Arc;

use anyhow::ensure;

use super::choice::{ModelChoice, SpeechChoice};
use super::progress;
use super::tokenizer::tokenizer;
use crate::config::{DeviceChoice, EngineConfig};
use crate::http::state::speech::SpeechParts;
use crate::metrics::MetricsHandle;
use crate::speech::is_speech;
use crate::speech::room::SpeechHandle;
use crate::text::tokenizer::Tokenizer;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;

/// What requests for texts are told where nothing else is served.
pub(super) const ONLY: &str = "the model only transcribes speech: /v1/audio/transcriptions";

/// Opens the files of the model beside that of `choice`, if one is chosen. Blocks.
pub(super) fn open(choice: &ModelChoice) -> anyhow::Result<Option<ModelSource>> {
    let Some(model) = &choice.speech.model else { return Ok(None) };
    let source = ModelSource::open(&ModelRef::parse(model, None)?, &choice.hub_options())?;
    ensure!(
        is_speech(&source.config),
        "--speech-model {model} is no model for speech: its architectures are {}",
        source.config["architectures"]
    );
    Ok(Some(source))
}

/// Refuses what a model that only transcribes has no use for.
pub(super) fn check_alone(choice: &ModelChoice, config: &EngineConfig) -> anyhow::Result<()> {
    for (given, flag) in [
        (choice.draft_model.is_some(), "--draft-model"),
        (choice.speech.model.is_some(), "--speech-model"),
        (!choice.adapters.is_empty(), "--lora-modules"),
        (choice.chat_template.is_some(), "--chat-template"),
        (config.ranks() > 1, config.ranks_flag()),
        (config.weight_kind.is_some(), "--dtype and --quantize"),
        (config.kv_disk.is_some(), "--kv-disk"),
        (matches!(config.device, DeviceChoice::Cuda(_) | DeviceChoice::Metal), "--device"),
    ] {
        ensure!(
            !given,
            "{flag} can't be used: the model only transcribes speech, on the CPU in f32"
        );
    }
    Ok(())
}

/// Starts the only model.
pub(super) fn alone(
    source: &ModelSource,
    tokenizer: Arc<Tokenizer>,
    choice: &SpeechChoice,
    metrics: &MetricsHandle,
) -> anyhow::Result<SpeechParts> {
    let parts = start(source, tokenizer, choice, metrics)?;
    Ok(SpeechParts { is_alone: true, ..parts })
}

/// Starts a model beside another.
pub(super) fn beside(
    source: &ModelSource,
    choice: &SpeechChoice,
    metrics: &MetricsHandle,
) -> anyhow::Result<SpeechParts> {
    start(source, Arc::new(tokenizer(source, None)?), choice, metrics)
}

fn start(
    source: &ModelSource,
    tokenizer: Arc<Tokenizer>,
    choice: &SpeechChoice,
    metrics: &MetricsHandle,
) -> anyhow::Result<SpeechParts> {
    let progress = progress::show(&source.name);
    let config = choice.config;
    let handle = SpeechHandle::start(source, tokenizer, &config, metrics.clone(), progress)?;
    tracing::info!(
        model = source.name,
        bytes = source.weight_bytes(),
        "speech is transcribed at a low priority"
    );
    let own = || vec![source.name.clone()];
    let names = if choice.names.is_empty() { own() } else { choice.names.clone() };
    Ok(SpeechParts { handle, names, config, is_alone: false })
}
