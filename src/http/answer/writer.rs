//! How an answer is written: the contract between the streams of deltas and the two shapes of JSON.

use serde::Serialize;
use serde_json::Value;

use super::delta::{ChoiceDelta, CompletedChoice};
use crate::http::error::ApiError;
use crate::http::wire::usage::{Timings, Usage};

/// Token counts and times of an answer so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageAndTimings {
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// A server-sent event as it goes over the wire, or what stands for one in another kind of stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent(String);

impl SseEvent {
    /// An event without a name.
    pub(crate) fn data(chunk: &impl Serialize) -> Self {
        Self(format!("data: {}\n\n", to_json(chunk)))
    }

    /// An event with a name.
    pub(crate) fn event(name: &str, data: &impl Serialize) -> Self {
        Self(format!("event: {name}\ndata: {}\n\n", to_json(data)))
    }

    /// A line of JSON, of a stream that is made of those.
    pub(crate) fn line(chunk: &impl Serialize) -> Self {
        Self(format!("{}\n", to_json(chunk)))
    }

    /// What ends a stream of completions.
    pub(crate) fn done() -> Self {
        Self("data: [DONE]\n\n".to_owned())
    }

    /// Keeps the connection while nothing happens.
    pub(crate) fn comment() -> Self {
        Self(": keep-alive\n\n".to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Writes deltas as the JSON of one endpoint. Both ways take the same deltas.
pub(crate) trait AnswerWriter: Send + 'static {
    /// What a stream of the events is.
    const CONTENT_TYPE: &'static str = "text/event-stream";

    /// The events before the first delta.
    fn opening(&mut self, totals: UsageAndTimings) -> Vec<SseEvent>;
    /// The events for a delta.
    fn delta(&mut self, delta: ChoiceDelta, totals: UsageAndTimings) -> Vec<SseEvent>;
    /// The events that keep the connection while nothing happens.
    fn keep_alive(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        vec![SseEvent::comment()]
    }
    /// Waits for what has to be done with the whole answer before anybody is told of its end, such as
    /// storing it; called once, before `closing` or `whole`.
    fn settle(&mut self, _totals: UsageAndTimings) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// The same for an answer that failed.
    fn settle_failed(&mut self, _error: &ApiError) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// The events after the last delta.
    fn closing(&mut self, totals: UsageAndTimings) -> Vec<SseEvent>;
    /// The events that end a stream that failed.
    fn failed(&mut self, error: &ApiError) -> Vec<SseEvent> {
        vec![SseEvent::data(&error.body()), SseEvent::done()]
    }
    /// Sees a delta of an answer that isn't streamed before it is folded with the others, which
    /// forgets how text and calls took turns.
    fn note(&mut self, _delta: &ChoiceDelta) {}
    /// The whole answer at once; `choices` are in the order of their indices.
    fn whole(&mut self, choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value;
}

fn to_json(chunk: &impl Serialize) -> String {
    serde_json::to_string(chunk).expect("chunks have string keys and finite numbers")
}
