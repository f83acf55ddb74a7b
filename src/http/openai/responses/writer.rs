//! Answers of `/v1/responses` as JSON: the response object, or the events that lead to it.

use std::time::Instant;

use axum::body::Bytes;
use serde_json::Value;

use super::events::{Addition, Event, EventBody, Numbering, Output, Spoken};
use crate::http::answer::delta::{ChoiceDelta, CompletedChoice, Delta, Finish, FinishKind};
use crate::http::answer::logprobs::LogprobSpelling;
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::error::ApiError;
use crate::http::openai::envelope::stop_reason;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::state::response_store::{History, StoredResponse, Turn};
use crate::http::wire::chat::TokenLogprob;
use crate::http::wire::responses::{
    IncompleteDetails, ItemStatus, ResponseError, ResponseObject, Status,
};

/// Writes the answer to one request.
#[derive(Debug)]
pub(super) struct ResponsesWriter {
    /// As it stands.
    pub(super) response: ResponseObject,
    /// Present if logprobs were asked for.
    pub(super) logprobs: Option<LogprobSpelling>,
    /// Present if the response is to be stored.
    pub(super) storing: Option<Storing>,
    pub(super) output: Output,
    pub(super) numbering: Numbering,
    pub(super) finish: Option<Finish>,
}

/// What a response is stored with.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) state: AppState,
    /// All items that the model was given.
    pub(super) input: History,
}

impl ResponsesWriter {
    fn take(&mut self, delta: Delta) -> Vec<Event> {
        let logprobs = match &self.logprobs {
            Some(spelling) if !delta.content.is_empty() => {
                of_text(spelling.chat(&delta.tokens).content, &delta.content)
            }
            _ => Vec::new(),
        };
        self.finish = delta.finish.or(self.finish.take());
        self.output.add(Addition {
            reasoning: delta.reasoning,
            spoken: Spoken { text: delta.content, logprobs },
            tool_calls: delta.tool_calls,
        })
    }

    /// Ends the answer, and stores it if it is to be stored.
    fn complete(&mut self, totals: UsageAndTimings) -> Vec<Event> {
        let is_cut = |finish: &Finish| finish.reason == FinishKind::Length;
        let cut = self.finish.as_ref().is_none_or(is_cut);
        let (status, of_items) = if cut {
            (Status::Incomplete, ItemStatus::Incomplete)
        } else {
            (Status::Completed, ItemStatus::Completed)
        };
        let events = self.output.end(of_items);
        let response = &mut self.response;
        response.status = status;
        response.completed_at = (!cut).then(unix_seconds);
        response.incomplete_details =
            cut.then_some(IncompleteDetails { reason: "max_output_tokens" });
        response.output = self.output.items().to_vec();
        response.usage = Some(totals.usage.into());
        response.timings = Some(totals.timings);
        if let Some(finish) = &self.finish {
            response.stop_reason = stop_reason(finish);
        }
        self.store();
        events
    }

    fn store(&mut self) {
        let Some(Storing { state, input }) = self.storing.take() else { return };
        let json = Bytes::from(self.response_json().to_string());
        let output = Turn::new(self.response.output.clone());
        let stored = StoredResponse { json, input, output };
        if !state.responses.insert(Instant::now(), &self.response.id, stored) {
            tracing::debug!(id = self.response.id, "the response is too large to be stored");
            self.response.settings.store = false;
        }
    }

    fn response_json(&self) -> Value {
        serde_json::to_value(&self.response).expect("responses have string keys, finite numbers")
    }

    fn sse_events(&mut self, events: &[Event]) -> Vec<SseEvent> {
        events.iter().map(|event| self.numbering.sse_event(event)).collect()
    }
}

impl AnswerWriter for ResponsesWriter {
    fn opening(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        let kinds = ["response.created", "response.in_progress"];
        self.sse_events(&kinds.map(|kind| Event::response(kind, &self.response)))
    }

    fn delta(&mut self, delta: ChoiceDelta, _totals: UsageAndTimings) -> Vec<SseEvent> {
        let events = self.take(delta.delta);
        self.sse_events(&events)
    }

    fn closing(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        let mut events = self.complete(totals);
        let kind = match self.response.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        events.push(Event::response(kind, &self.response));
        self.sse_events(&events)
    }

    fn failed(&mut self, error: &ApiError) -> Vec<SseEvent> {
        let mut events = self.output.end(ItemStatus::Incomplete);
        let object = &error.body()["error"];
        let text = |key: &str| object[key].as_str().map(str::to_owned);
        let code = text("code").or_else(|| text("type")).unwrap_or_default();
        let (message, param) = (error.to_string(), text("param"));
        let body = EventBody::Error { code, message: message.clone(), param };
        events.push(Event { kind: "error", body });
        self.response.status = Status::Failed;
        self.response.output = self.output.items().to_vec();
        self.response.error = Some(ResponseError { code: "server_error", message });
        events.push(Event::response("response.failed", &self.response));
        self.sse_events(&events)
    }

    fn note(&mut self, delta: &ChoiceDelta) {
        // Nobody hears the events of an answer that is given whole.
        self.take(delta.delta.clone());
    }

    fn whole(&mut self, _choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value {
        self.complete(totals);
        self.response_json()
    }
}

/// The entries of the tokens that spell `text`; all of them if no run of tokens does. Others are of
/// markup that the answer doesn't show.
fn of_text(entries: Vec<TokenLogprob>, text: &str) -> Vec<TokenLogprob> {
    let run = (0..entries.len()).find_map(|begin| {
        let mut rest = text.as_bytes();
        for (at, entry) in entries.iter().enumerate().skip(begin) {
            rest = rest.strip_prefix(entry.token.bytes.as_slice())?;
            if rest.is_empty() {
                return Some(begin..=at);
            }
        }
        None
    });
    match run {
        Some(run) => entries.into_iter().take(run.end() + 1).skip(*run.start()).collect(),
        None => entries,
    }
}
