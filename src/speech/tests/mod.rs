//! Whether the algorithm is Whisper's: against transformers on tiny models, and against scripts.

mod bad_files;
mod formats;
mod oracle;
mod scripts;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use candle_core::Device;
use serde_json::Value;

use super::error::SpeechError;
use super::marks::Marks;
use super::model::Whisper;
use super::model::config::Config;
use super::transcriber::{Options, Segment, Summary, Transcriber};
use super::window::Thresholds;
use crate::text::tokenizer::Tokenizer;
use crate::text::tokenizer_config::TokenizerConfig;
use crate::weights::hub::HubOptions;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/speech")
}

fn file(name: &str) -> Bytes {
    std::fs::read(fixtures().join(name)).unwrap().into()
}

/// The fixture model of this name, which takes ten seconds of sound.
fn model(name: &str) -> Transcriber {
    let folder = fixtures().join(name);
    let source = ModelSource::open(
        &ModelRef::Folder(folder.clone()),
        &HubOptions::offline(&fixtures().join("no-cache")),
    );
    let source = source.unwrap();
    let config = Config::from_json(&source.config).unwrap();
    let json = source.tokenizer_json.as_ref().unwrap();
    let tokenizer_config =
        TokenizerConfig::from_json(source.tokenizer_config.as_ref().unwrap_or(&Value::Null));
    let tokenizer = Arc::new(Tokenizer::from_json(json, &tokenizer_config).unwrap());
    let generation = source.generation_config.as_ref().unwrap();
    let marks = Marks::read(&config, [generation, &source.config], &tokenizer).unwrap();
    let network = Whisper::load(&source.weights(&Device::Cpu), config).unwrap();
    Transcriber::new(network, marks, tokenizer, 10)
}

/// What is asked for where no result counts as a failure.
fn options() -> Options {
    let thresholds = Thresholds {
        compression_ratio: f64::INFINITY,
        log_probability: f64::NEG_INFINITY,
        no_speech: f64::INFINITY,
    };
    Options { thresholds, ..Options::default() }
}

fn transcribe(
    model: &Transcriber,
    file: Bytes,
    options: &Options,
) -> Result<(Vec<Segment>, Summary), SpeechError> {
    let mut segments = Vec::new();
    let mut sink = |segment| segments.push(segment);
    let summary = model.transcribe(file, options, &|| false, &mut sink)?;
    Ok((segments, summary))
}
