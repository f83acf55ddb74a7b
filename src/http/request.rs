//! What the two generating endpoints do alike: read stream options, admit, submit one engine
//! request per choice, and answer one way or the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

use super::admission::Permit;
use super::answer::{AnswerWriter, UsageReporting};
use super::delta::ChoiceDecoder;
use super::error::ApiError;
use super::generation::{Bounds, Choice, Generation};
use super::meter::Meter;
use super::prompt::off_thread;
use super::state::AppState;
use super::stream;
use super::types::chat::StreamOptions;
use super::types::fields::IgnoredFields;
use super::types::number::Int;
use super::types::sampling::{GenerationOptions, MAX_DEADLINE_MS, SamplingFields, integer};
use crate::engine::adapter::Adapter;
use crate::engine::output::OutputStream;
use crate::engine::request::{BeamRequest, EngineRequest, RequestId};
use crate::scheduler::stop::StopConditions;

const DEADLINE_HEADER: &str = "x-sconce-deadline-ms";
const IGNORED_HEADER: HeaderName = HeaderName::from_static("x-sconce-ignored");

/// When a request came, and the headers that shape its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    deadline_ms: Option<Int>,
}

impl Arrival {
    /// Fills the fields that a header may give instead of the body.
    pub(crate) fn complete(&self, fields: &mut SamplingFields) {
        fields.deadline_ms = self.deadline_ms(fields.deadline_ms);
    }

    /// The deadline that the body gives, else the header's.
    pub(crate) fn deadline_ms(&self, field: Option<Int>) -> Option<Int> {
        field.or(self.deadline_ms)
    }
}

impl FromRequestParts<AppState> for Arrival {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        Ok(Self { at: Instant::now(), deadline_ms: deadline_header(&parts.headers)? })
    }
}

fn deadline_header(headers: &HeaderMap) -> Result<Option<Int>, ApiError> {
    let Some(value) = headers.get(DEADLINE_HEADER) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let number = number.ok_or_else(|| {
        let message = format!("the header {DEADLINE_HEADER} must be an integer, got {value:?}");
        ApiError::field(DEADLINE_HEADER, message)
    })?;
    let number = integer(DEADLINE_HEADER, Some(Int(number)), 1, MAX_DEADLINE_MS)?;
    Ok(number.map(Int))
}

/// Whether to stream, and what the stream tells.
pub(crate) fn streaming(
    stream: Option<bool>,
    options: Option<&StreamOptions>,
    ignored: &mut IgnoredFields,
) -> Result<Option<UsageReporting>, ApiError> {
    let stream = stream.unwrap_or(false);
    let Some(options) = options else {
        return Ok(stream.then(UsageReporting::default));
    };
    if !stream {
        return Err(ApiError::field("stream_options", "stream_options needs stream to be true"));
    }
    for (name, value) in options.unknown.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("stream_options.{name}");
        match name.as_str() {
            // Padding against traffic analysis; the answer is the same.
            "include_obfuscation" if value.is_boolean() => ignored.add(path),
            _ => ignored.add_unknown(path),
        }
    }
    let at_end = options.include_usage.unwrap_or(false);
    let continuous = options.continuous_usage_stats.unwrap_or(false);
    Ok(Some(UsageReporting { at_end, continuous }))
}

/// Checks that a request for the prompt's logprobs neither streams nor searches.
pub(crate) fn check_prompt_logprobs(
    options: &GenerationOptions,
    streams: bool,
) -> Result<(), ApiError> {
    if streams && options.prompt_logprobs.is_some() {
        let message =
            "prompt_logprobs are told with the whole answer; they need stream to be false";
        return Err(ApiError::field("prompt_logprobs", message));
    }
    if options.beams.is_some() && options.scored_prompt().is_some() {
        let name = if options.prompt_logprobs.is_some() { "prompt_logprobs" } else { "echo" };
        let message = format!("{name}: a beam search doesn't tell the prompt's logprobs");
        return Err(ApiError::field(name, message));
    }
    Ok(())
}

/// A request that passed every check that needs no prompt.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What the request's model adds to the served one.
    pub(crate) adapter: Option<Adapter>,
    pub(crate) options: GenerationOptions,
    pub(crate) arrival: Instant,
}

impl Plan {
    /// Finds the tokens at which repetitions are cut.
    pub(crate) async fn break_repetitions(mut self, state: &AppState) -> Result<Self, ApiError> {
        if !self.options.minds_repetitions() {
            return Ok(self);
        }
        let state = state.clone();
        off_thread(move || {
            self.options.break_repetitions(|texts| state.breakers(texts));
            Ok(self)
        })
        .await
    }

    /// Queues `best_of` sequences per prompt; sequence `i` of prompt `p` has the index
    /// `p * best_of + i`.
    pub(crate) fn submit(
        &self,
        state: &AppState,
        permit: Permit,
        prompts: &[Vec<u32>],
    ) -> Result<Generation, ApiError> {
        let clamp = state.config().clamp_max_tokens;
        let stops: Result<Vec<StopConditions>, ApiError> = prompts
            .iter()
            .map(|prompt| self.options.stop_conditions(prompt.len(), clamp, state.eos_token_ids()))
            .collect();
        let copies = self.options.best_of;
        let mut choices = Vec::with_capacity(prompts.len() * copies);
        for (prompt, stop) in prompts.iter().zip(stops?) {
            state.metrics().request_submitted(copies, stop.max_tokens);
            for (copy, output) in self.outputs(state, prompt, &stop).into_iter().enumerate() {
                // The prompt counts once.
                let counted = if copy == 0 { prompt.len() } else { 0 };
                let meter = Meter::new(state.metrics().clone(), self.arrival, counted);
                let tokenizer = Arc::clone(state.tokenizer());
                let decoding = &self.options.decoding;
                let decoder = ChoiceDecoder::new(tokenizer, decoding, stop.clone());
                choices.push(Choice::new(choices.len(), output, decoder, meter));
            }
        }
        let deadline = self.options.deadline;
        let cut = state.cut_signal();
        let bounds = Bounds { arrival: self.arrival, deadline, cut, _permit: permit };
        Ok(Generation::new(choices, bounds))
    }

    /// Queues a prompt; what comes of each of its sequences, or of each answer of its search.
    fn outputs(
        &self,
        state: &AppState,
        prompt: &[u32],
        stop: &StopConditions,
    ) -> Vec<OutputStream> {
        let options = &self.options;
        let request = |copy| EngineRequest {
            id: RequestId::next(),
            prompt_token_ids: prompt.to_vec(),
            sampling: options.sampling(copy),
            stop: stop.clone(),
            prompt_logprobs: options.scored_prompt(),
            priority: options.priority,
            cache_salt: options.cache_salt.clone(),
            adapter: self.adapter.clone(),
        };
        match options.beams {
            Some(beams) => state.engine().search(BeamRequest { request: request(0), beams }),
            None => (0..options.best_of).map(|copy| state.engine().submit(request(copy))).collect(),
        }
    }
}

/// Answers in the way the request asked for.
pub(crate) async fn answer(
    generation: Generation,
    writer: impl AnswerWriter,
    streaming: bool,
    keep_alive: Duration,
    ignored: &IgnoredFields,
) -> Result<Response, ApiError> {
    let response = if streaming {
        stream::events(generation, writer, keep_alive).await
    } else {
        stream::whole(generation, writer).await
    };
    response.map(|response| with_ignored(response, ignored))
}

/// Names the fields that had no effect.
pub(crate) fn with_ignored(mut response: Response, ignored: &IgnoredFields) -> Response {
    let value = ignored.header().and_then(|header| HeaderValue::try_from(header).ok());
    if let Some(value) = value {
        response.headers_mut().insert(IGNORED_HEADER, value);
    }
    response
}
