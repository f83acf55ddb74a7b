//! What a form asks for, checked against the model.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::request::fields::{BodyReader, FieldReader, Ignored};
use crate::http::request::rules::{
    COMMON, Rules, Treatment, is_empty, is_false, is_one, is_zero, never,
};
use crate::http::state::speech::SpeechService;
use crate::http::state::{AppState, may_name};
use crate::http::wire::audio::TranscriptionFields;
use crate::http::wire::number::integer;
use crate::speech::error::SpeechError;
use crate::speech::languages;
use crate::speech::marks::Task;
use crate::speech::transcriber::Options;

/// Fields of these routes that are known without being read.
const AUDIO_RULES: Rules = &[
    // Sound is always cut where the model says that speech pauses.
    ("chunking_strategy", Treatment::IgnoredIf(|strategy| strategy == "auto")),
    ("stream_include_usage", Treatment::Ignored),
    ("stream_continuous_usage_stats", Treatment::Ignored),
    ("known_speaker_names", Treatment::Unsupported(is_empty)),
    ("known_speaker_references", Treatment::Unsupported(is_empty)),
    ("keywords", Treatment::Unsupported(is_empty)),
    ("languages", Treatment::Unsupported(is_empty)),
    ("hotwords", Treatment::Unsupported(is_empty)),
    ("vad_filter", Treatment::Unsupported(is_false)),
    ("to_language", Treatment::Unsupported(never)),
    ("max_completion_tokens", Treatment::Unsupported(never)),
    ("top_p", Treatment::Unsupported(is_one)),
    ("top_k", Treatment::Unsupported(is_zero)),
    ("min_p", Treatment::Unsupported(is_zero)),
    ("repetition_penalty", Treatment::Unsupported(is_one)),
    ("frequency_penalty", Treatment::Unsupported(is_zero)),
    ("presence_penalty", Treatment::Unsupported(is_zero)),
];

/// How a transcript is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Text,
    Srt,
    VerboseJson,
    Vtt,
}

/// The formats by their names.
const FORMATS: [(&str, Format); 5] = [
    ("json", Format::Json),
    ("text", Format::Text),
    ("srt", Format::Srt),
    ("verbose_json", Format::VerboseJson),
    ("vtt", Format::Vtt),
];

/// What a request asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) options: Options,
    pub(super) format: Format,
    /// Whether segments get times of their own in `verbose_json`.
    pub(super) segments: bool,
    pub(super) logprobs: bool,
    pub(super) streams: bool,
    pub(super) ignored: Ignored,
}

/// Reads and checks the fields of a form.
pub(super) fn read(
    state: &AppState,
    speech: &SpeechService,
    task: Task,
    fields: &Value,
) -> Result<Asked, ApiError> {
    let mut reader = BodyReader::new(fields);
    let read: TranscriptionFields = reader.take()?;
    let mut judged = FieldReader::new(&[AUDIO_RULES, COMMON]);
    reader.finish(&mut judged)?;
    let ignored = judged.finish(state.config.strict)?;
    check_model(state, speech, read.model.as_deref())?;
    let format = one_of("response_format", read.response_format.as_deref(), &FORMATS)?;
    let format = format.unwrap_or(Format::Json);
    let streams = read.stream.unwrap_or(false);
    if streams && !matches!(format, Format::Json | Format::Text) {
        let what = "a stream in another response_format than json and text";
        return Err(ApiError::unsupported("stream", what));
    }
    let (words, segments) = granularities(&read, format)?;
    let logprobs = logprobs(&read, format)?;
    let options = options(read, task, words)?;
    speech.handle.transcriber().check(&options).map_err(|error| refused(&error))?;
    Ok(Asked { options, format, segments, logprobs, streams, ignored })
}

fn options(read: TranscriptionFields, task: Task, words: bool) -> Result<Options, ApiError> {
    let language = read.language.filter(|language| !language.is_empty());
    let language = language.map(|language| {
        languages::code_of(&language).ok_or_else(|| {
            let message = format!(
                "language must be a code of ISO 639-1 such as en, or a name such as english, got \
                 {language:?}"
            );
            ApiError::field("language", message)
        })
    });
    let temperature = read.temperature.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&temperature) {
        let message = format!("temperature must be from 0 to 1, got {temperature}");
        return Err(ApiError::field("temperature", message));
    }
    let seed = integer("seed", read.seed, 0, i64::MAX)?;
    Ok(Options {
        task,
        language: language.transpose()?,
        prompt: read.prompt,
        temperature,
        seed: seed.unwrap_or(0).unsigned_abs(),
        words,
        condition_on_previous: read.condition_on_previous_text.unwrap_or(true),
        ..Options::default()
    })
}

/// Checks that a request means the model for speech.
fn check_model(
    state: &AppState,
    speech: &SpeechService,
    model: Option<&str>,
) -> Result<(), ApiError> {
    let own = speech.names.first().map_or("", String::as_str);
    let model = model.filter(|model| !model.is_empty()).unwrap_or(own);
    if speech.has_name(model) {
        let allowed = may_name(model);
        return allowed.then_some(()).ok_or_else(|| ApiError::ModelForbidden(model.to_owned()));
    }
    // One that is served for something else, or none.
    state.check_model(Some(model))?;
    let message = format!("the model {model:?} doesn't transcribe speech: {own:?} does");
    Err(ApiError::field("model", message))
}

/// Whether words and whether segments get times.
fn granularities(read: &TranscriptionFields, format: Format) -> Result<(bool, bool), ApiError> {
    const NAME: &str = "timestamp_granularities";
    let Some(asked) = &read.timestamp_granularities else { return Ok((false, true)) };
    if format != Format::VerboseJson {
        let message = format!("{NAME} is for response_format verbose_json only");
        return Err(ApiError::field(NAME, message));
    }
    let (mut words, mut segments) = (false, false);
    for one in asked {
        match one_of(NAME, Some(one), &[("word", true), ("segment", false)])? {
            Some(true) => words = true,
            _ => segments = true,
        }
    }
    Ok((words, segments || !words))
}

fn logprobs(read: &TranscriptionFields, format: Format) -> Result<bool, ApiError> {
    let asked = read.include.iter().flatten();
    for one in asked {
        one_of("include", Some(one), &[("logprobs", ())])?;
    }
    let logprobs = read.include.as_ref().is_some_and(|include| !include.is_empty());
    if logprobs && format != Format::Json {
        let message = "include: logprobs are for response_format json only";
        return Err(ApiError::field("include", message));
    }
    Ok(logprobs)
}

/// The value that a name stands for.
fn one_of<T: Copy>(
    field: &'static str,
    given: Option<&str>,
    known: &[(&str, T)],
) -> Result<Option<T>, ApiError> {
    let Some(given) = given else { return Ok(None) };
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == given) {
        return Ok(Some(*value));
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let message = format!("{field} must be one of {}, got {given:?}", names.join(", "));
    Err(ApiError::field(field, message))
}

/// The error that a client sees.
pub(super) fn refused(error: &SpeechError) -> ApiError {
    let message = error.to_string();
    match error {
        SpeechError::Audio(_) => ApiError::field("file", format!("file: {message}")),
        SpeechError::Field(field, _) => ApiError::field(*field, message),
        SpeechError::Stopped => ApiError::Unavailable(message),
        SpeechError::Compute(_) | SpeechError::Internal(_) => ApiError::Internal(message),
    }
}
