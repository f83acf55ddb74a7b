//! Answers of `/v1/responses` as JSON: the response object, or the events that lead to it.

use serde_json::Value;

use super::events::{Addition, Event, EventBody, Numbering, Output, Spoken};
use crate::http::answer::delta::{ChoiceDelta, CompletedChoice, Delta, Finish, FinishKind};
use crate::http::answer::logprobs::LogprobSpelling;
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::error::ApiError;
use crate::http::openai::conversations::additions;
use crate::http::openai::envelope::stop_reason;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::state::response_store::{BackgroundRun, History, StoredResponse, Turn};
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
    /// The events of the end, once it has come.
    pub(super) ending: Vec<Event>,
}

/// What a response is stored with.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) state: AppState,
    pub(super) owner: Owner,
    /// All items that the model was given.
    pub(super) input: History,
    /// The response's place in the store, if it runs in the background and was put there before.
    pub(super) run: Option<BackgroundRun>,
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

    /// Ends the answer.
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
        events
    }

    /// Stores the answer, if it is to be stored. One that can't be says so: `store` is false.
    async fn store(&mut self) {
        let Some(Storing { state, owner, input, run }) = self.storing.take() else { return };
        let output = Turn::new(self.response.output.clone());
        let response = self.response_json();
        let stored = StoredResponse { response, input, output };
        let (id, conversation) = (&self.response.id, &self.response.settings.conversation);
        let more = conversation.as_ref().filter(|_| self.response.status != Status::Failed);
        let more = more.map(|named| additions(&owner, &named.id, &stored)).unwrap_or_default();
        let insert = state.responses.insert(&owner.0, id, &stored, run, more);
        if let Err(error) = insert.await {
            tracing::warn!(%error, id, "the response could not be stored");
            self.response.settings.store = false;
        }
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
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
        events
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

    async fn settle(&mut self, totals: UsageAndTimings) {
        self.ending = self.complete(totals);
        self.store().await;
    }

    async fn settle_failed(&mut self, error: &ApiError) {
        self.ending = self.fail(error);
        // Whoever asked hears of it, unless nobody listens.
        if self.storing.as_ref().is_some_and(|storing| storing.run.is_some()) {
            self.store().await;
        }
    }

    fn closing(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        let mut events = std::mem::take(&mut self.ending);
        let kind = match self.response.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        events.push(Event::response(kind, &self.response));
        self.sse_events(&events)
    }

    fn failed(&mut self, _error: &ApiError) -> Vec<SseEvent> {
        let mut events = std::mem::take(&mut self.ending);
        events.push(Event::response("response.failed", &self.response));
        self.sse_events(&events)
    }

    fn note(&mut self, delta: &ChoiceDelta) {
        // Nobody hears the events of an answer that is given whole.
        self.take(delta.delta.clone());
    }

    fn whole(&mut self, _choices: Vec<CompletedChoice>, _totals: UsageAndTimings) -> Value {
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
