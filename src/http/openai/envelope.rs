//! What the objects of OpenAI's answers have in common.

use uuid::Uuid;

use crate::http::answer::delta::{Finish, FinishKind, StopCause};
use crate::http::generate::options::GenerationOptions;
use crate::http::generate::service_tier::ServiceTier;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::chat::StopReason;
use crate::http::wire::usage::{ChunkUsage, Usage};

/// What all objects of an answer carry.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    /// What computes the answer.
    pub(crate) fingerprint: String,
    pub(crate) tier: ServiceTier,
}

impl Envelope {
    /// A new answer; `prefix` is what its id begins with.
    pub(crate) fn new(
        prefix: &str,
        model: String,
        options: &GenerationOptions,
        state: &AppState,
    ) -> Self {
        let tier = options.tier;
        let named = options.own.request_id.clone();
        let name = named.unwrap_or_else(|| Uuid::new_v4().simple().to_string());
        Self {
            id: format!("{prefix}-{name}"),
            created: unix_seconds(),
            model,
            fingerprint: state.fingerprint.clone(),
            tier,
        }
    }
}

/// When a stream tells usage and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageReporting {
    /// In a chunk of its own at the end.
    pub(crate) at_end: bool,
    /// In every chunk.
    pub(crate) continuous: bool,
    /// Times in every chunk, and not only in the last.
    pub(crate) timings: bool,
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
    item_id("call")
}

/// A new id of the kind that `prefix` names.
pub(crate) fn item_id(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}
