//! What can go wrong with speech: while a model is loaded, and with one request.

use super::audio::AudioError;
use crate::weights::error::WeightError;

/// Why a model can't be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// `config.json` or another file says what isn't computed here.
    #[error("the model can't be served: {0}")]
    Config(String),
    /// A tensor is missing or bad.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// Threads can't be started.
    #[error("the threads for speech can't be started: {0}")]
    Threads(String),
}

/// Why a request has no transcript.
#[derive(Debug, thiserror::Error)]
pub enum SpeechError {
    /// The file is not what it should be.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// A field of the request can't be served by this model.
    #[error("{1}")]
    Field(&'static str, String),
    /// Our fault.
    #[error("the model can't be computed: {0}")]
    Compute(#[from] candle_core::Error),
    /// Our fault, too.
    #[error("speech has failed: {0}")]
    Internal(String),
    /// Nobody waits for the answer any more.
    #[error("nobody waits for the answer")]
    Stopped,
}
