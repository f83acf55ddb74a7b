//! Speech as JSON: what a form asks for, and transcripts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::number::Int;
use super::schema::constants;

/// The fields of a form beside its file; how they look is in `schema::audio`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TranscriptionFields {
    /// A name of the model for speech; that model, if it isn't said.
    pub(crate) model: Option<String>,
    /// The language that is spoken, by its code or English name; found out, if it isn't said.
    pub(crate) language: Option<String>,
    /// A text that the transcript is to look like a continuation of.
    pub(crate) prompt: Option<String>,
    pub(crate) response_format: Option<String>,
    /// 0 takes the likeliest tokens, and draws at higher temperatures where those look wrong.
    pub(crate) temperature: Option<f64>,
    /// With `verbose_json` only.
    pub(crate) timestamp_granularities: Option<Vec<String>>,
    /// With `json` only.
    pub(crate) include: Option<Vec<String>>,
    /// Whether segments are sent when they are there; with `json` and `text` only.
    pub(crate) stream: Option<bool>,
    /// What makes draws differ.
    pub(crate) seed: Option<Int>,
    /// Whether each half minute is told of the text before it: true, if it isn't said.
    pub(crate) condition_on_previous_text: Option<bool>,
}

/// An answer in the format `json`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Transcript {
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<Vec<TranscriptLogprob>>,
    /// Of transcriptions only, as in OpenAI's contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<DurationUsage>,
}

/// An answer in the format `verbose_json`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct VerboseTranscript {
    /// `transcribe` or `translate`.
    pub(crate) task: &'static str,
    /// The English name of the language of the text.
    pub(crate) language: &'static str,
    /// Seconds of sound.
    pub(crate) duration: f64,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) segments: Option<Vec<TranscriptSegment>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<Vec<TranscriptWord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<DurationUsage>,
}

/// A stretch of speech; times are seconds.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TranscriptSegment {
    pub(crate) id: usize,
    /// Where the half minute begins that it was heard in, in hundredths of a second.
    pub(crate) seek: usize,
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) temperature: f64,
    pub(crate) avg_logprob: f64,
    pub(crate) compression_ratio: f64,
    pub(crate) no_speech_prob: f64,
}

/// A word; times are seconds.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TranscriptWord {
    pub(crate) word: String,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

/// How likely a token was.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TranscriptLogprob {
    pub(crate) token: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) logprob: f32,
}

/// How much was transcribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DurationUsage {
    #[serde(rename = "type")]
    #[schema(schema_with = constants::duration)]
    pub(crate) kind: &'static str,
    /// Seconds of sound, rounded up.
    pub(crate) seconds: u64,
}

/// An event of a stream; how it looks is in `schema::audio`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub(crate) enum TranscriptEvent {
    /// A segment is there.
    #[serde(rename = "transcript.text.delta")]
    Delta {
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<TranscriptLogprob>>,
    },
    /// All are.
    #[serde(rename = "transcript.text.done")]
    Done {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<TranscriptLogprob>>,
    },
}

impl TranscriptEvent {
    /// The event's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Delta { .. } => "transcript.text.delta",
            Self::Done { .. } => "transcript.text.done",
        }
    }
}
