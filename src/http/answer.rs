//! How an answer is written: the contract between the streams of deltas and the two shapes of
//! JSON, and what both shapes share.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::delta::{Finish, FinishKind, Folded, StopCause};
use super::error::ApiError;
use super::generation::ChoiceDelta;
use super::state::{AppState, unix_seconds};
use super::types::chat::StopReason;
use super::types::usage::{ChunkUsage, Timings, Usage};

/// What an answer has cost so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// A server-sent event as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame(String);

impl Frame {
    /// An event without a name.
    pub(crate) fn data(chunk: &impl Serialize) -> Self {
        Self(format!("data: {}\n\n", to_json(chunk)))
    }

    /// An event with a name.
    pub(crate) fn event(name: &str, chunk: &impl Serialize) -> Self {
        Self(format!("event: {name}\ndata: {}\n\n", to_json(chunk)))
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
    /// The frames before the first delta.
    fn opening(&mut self, cost: Cost) -> Vec<Frame>;
    /// The frames for a delta.
    fn delta(&mut self, delta: ChoiceDelta, cost: Cost) -> Vec<Frame>;
    /// The frames after the last delta.
    fn closing(&mut self, cost: Cost) -> Vec<Frame>;
    /// The frames that end a stream that failed.
    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![Frame::data(&error.body()), Frame::done()]
    }
    /// A delta of an answer that is not streamed, on its way into what [`whole`](Self::whole) gets:
    /// for answers whose parts stand in the order in which they came.
    fn folding(&mut self, _delta: &ChoiceDelta) {}
    /// The whole answer at once; `choices` are in the order of their indices.
    fn whole(&mut self, choices: Vec<Folded>, cost: Cost) -> Value;
}

/// What all objects of an answer carry.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Head {
    /// A new answer; `prefix` is what its id begins with. Answers name the model as the request
    /// did.
    pub(crate) fn new(prefix: &str, state: &AppState, model: Option<&str>) -> Self {
        Self {
            id: format!("{prefix}-{}", Uuid::new_v4().simple()),
            created: unix_seconds(),
            model: model.unwrap_or(state.model_name()).to_owned(),
        }
    }
}

/// When a stream tells usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageReporting {
    /// In a chunk of its own at the end.
    pub(crate) at_end: bool,
    /// In every chunk.
    pub(crate) continuous: bool,
}

impl UsageReporting {
    /// The `usage` of a chunk that is not the last: absent, null or the usage.
    pub(crate) fn in_chunk(self, usage: Usage) -> Option<ChunkUsage> {
        let told = if self.continuous { ChunkUsage::Now(usage) } else { ChunkUsage::Later };
        self.at_end.then_some(told)
    }
}

/// The API's word for how a choice ended.
pub(crate) fn finish_reason(finish: &Finish) -> &'static str {
    match finish.reason {
        FinishKind::Stop => "stop",
        FinishKind::Length => "length",
        FinishKind::ToolCalls => "tool_calls",
    }
}

/// What ended a choice.
pub(crate) fn stop_reason(finish: &Finish) -> StopReason {
    match &finish.cause {
        None => StopReason::Nothing,
        Some(StopCause::Text(text)) => StopReason::Text(text.clone()),
        Some(StopCause::Token(id)) => StopReason::Token(*id),
        Some(StopCause::Deadline) => StopReason::Text("deadline".to_owned()),
    }
}

/// The id of a new tool call.
pub(crate) fn tool_call_id() -> String {
    format!("call_{}", Uuid::new_v4().simple())
}

fn to_json(chunk: &impl Serialize) -> String {
    serde_json::to_string(chunk).expect("chunks have string keys and finite numbers")
}
