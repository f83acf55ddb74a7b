//! `/v1/responses/compact`: a conversation that has become long, as what its user said and a summary of
//! everything, which stands in its place from then on.
//!
//! The model writes the summary, asked behind the conversation, so that the prefix cache has all before it.
//! Clients keep it in an opaque item, and send that back with what comes next.

use axum::extract::State;
use axum::response::Response;
use serde_json::Value;

use super::input::{Converted, ResponseBody};
use crate::http::answer::carried_text::carry;
use crate::http::answer::delta::{ChoiceDelta, CompletedChoice, FinishKind};
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::generate::chat_request::{Message, Part, Role};
use crate::http::openai::envelope::item_id;
use crate::http::request::extract::Extracted;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::state::response_store::History;
use crate::http::wire::responses::{
    CompactedResponse, CompactionItem, IncompleteDetails, Item, Role as ItemRole,
};

/// What the model is asked behind the conversation.
const REQUEST: &str = "Summarize this conversation so that it can be continued from the summary alone. \
Keep what the user wants, what was decided and why, facts, names, numbers, paths and identifiers that \
matter, what was done and with which results, and what is left to do. Answer with the summary only.";

/// `POST /v1/responses/compact`.
pub(crate) async fn compact(
    State(state): State<AppState>,
    owner: Owner,
    mut request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    request.body.summarize()?;
    let converted = Converted::new(&state, &owner, request).await?;
    let Converted { mut chat, conversation, ignored, adapter, arrival, .. } = converted;
    let parts = vec![Part::Text(REQUEST.to_owned())];
    chat.conversation.messages.push(Message { role: Role::User, parts, name: None, answers: None });
    let prepared = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let writer = CompactionWriter { id: item_id("resp"), created_at: unix_seconds(), conversation };
    prepared.answer(&state, writer, false, &ignored).await
}

/// Writes what stands in place of a conversation.
struct CompactionWriter {
    id: String,
    created_at: u64,
    conversation: History,
}

impl CompactionWriter {
    /// What the user said, and the summary of everything.
    fn output(&self, summary: &str) -> Vec<Item> {
        let said =
            |item: &&Item| matches!(item, Item::Message(said) if said.role == ItemRole::User);
        let mut output: Vec<Item> = self.conversation.items().filter(said).cloned().collect();
        output.push(Item::Compaction(CompactionItem {
            id: item_id("cmp"),
            encrypted_content: carry(summary),
        }));
        output
    }
}

impl AnswerWriter for CompactionWriter {
    fn opening(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        Vec::new()
    }

    fn delta(&mut self, _delta: ChoiceDelta, _totals: UsageAndTimings) -> Vec<SseEvent> {
        Vec::new()
    }

    fn closing(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        Vec::new()
    }

    fn whole(&mut self, choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value {
        let choice = choices.into_iter().next();
        let (summary, finish) =
            choice.map_or_else(Default::default, |choice| (choice.content, choice.finish));
        let cut = finish.is_none_or(|finish| finish.reason == FinishKind::Length);
        let compacted = CompactedResponse {
            id: self.id.clone(),
            object: "response.compaction",
            created_at: self.created_at,
            output: self.output(&summary),
            usage: totals.usage.into(),
            incomplete_details: cut.then_some(IncompleteDetails { reason: "max_output_tokens" }),
        };
        serde_json::to_value(compacted).expect("items have string keys and finite numbers")
    }
}
