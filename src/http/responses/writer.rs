//! Answers of `/v1/responses` as JSON: the response object, or the events that lead to it.

use std::time::Instant;

use axum::body::Bytes;
use serde_json::Value;

use super::events::{Addition, Event, EventBody, Numbering, Output, Spoken};
use super::store::{History, StoredResponse, Turn};
use crate::http::answer::{AnswerWriter, Cost, Frame, stop_reason};
use crate::http::delta::{Delta, Finish, FinishKind, Folded};
use crate::http::error::ApiError;
use crate::http::generation::ChoiceDelta;
use crate::http::logprobs::LogprobSpelling;
use crate::http::state::{AppState, unix_seconds};
use crate::http::types::chat::TokenLogprob;
use crate::http::types::responses::{
    IncompleteDetails, ItemStatus, ResponseError, ResponseObject, Status,
};

/// Writes the answer to one request.
#[derive(Debug)]
pub(super) struct ResponsesWriter {
    /// As it stands.
    pub(super) response: ResponseObject,
    /// Present if logprobs were asked for.
    pub(super) logprobs: Option<LogprobSpelling>,
    /// Present if the response is to be kept.
    pub(super) keeping: Option<Keeping>,
    pub(super) output: Output,
    pub(super) numbering: Numbering,
    pub(super) finish: Option<Finish>,
}

/// What a response is kept with.
#[derive(Debug)]
pub(super) struct Keeping {
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

    /// Ends the answer, and keeps it if it is to be kept.
    fn complete(&mut self, cost: Cost) -> Vec<Event> {
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
        response.usage = Some(cost.usage.into());
        response.timings = Some(cost.timings);
        if let Some(finish) = &self.finish {
            response.stop_reason = stop_reason(finish);
        }
        self.keep();
        events
    }

    fn keep(&mut self) {
        let Some(Keeping { state, input }) = self.keeping.take() else { return };
        let json = Bytes::from(self.response_json().to_string());
        let output = Turn::new(self.response.output.clone());
        let stored = StoredResponse { json, input, output };
        if !state.responses().insert(Instant::now(), &self.response.id, stored) {
            tracing::debug!(id = self.response.id, "the response is too large to be kept");
            self.response.settings.store = false;
        }
    }

    fn response_json(&self) -> Value {
        serde_json::to_value(&self.response).expect("responses have string keys, finite numbers")
    }

    fn frames(&mut self, events: &[Event]) -> Vec<Frame> {
        events.iter().map(|event| self.numbering.frame(event)).collect()
    }
}

impl AnswerWriter for ResponsesWriter {
    fn opening(&mut self, _cost: Cost) -> Vec<Frame> {
        let kinds = ["response.created", "response.in_progress"];
        self.frames(&kinds.map(|kind| Event::response(kind, &self.response)))
    }

    fn delta(&mut self, delta: ChoiceDelta, _cost: Cost) -> Vec<Frame> {
        let events = self.take(delta.delta);
        self.frames(&events)
    }

    fn closing(&mut self, cost: Cost) -> Vec<Frame> {
        let mut events = self.complete(cost);
        let kind = match self.response.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        events.push(Event::response(kind, &self.response));
        self.frames(&events)
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
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
        self.frames(&events)
    }

    fn note(&mut self, delta: &ChoiceDelta) {
        // Nobody hears the events of an answer that is given whole.
        self.take(delta.delta.clone());
    }

    fn whole(&mut self, _choices: Vec<Folded>, cost: Cost) -> Value {
        self.complete(cost);
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
