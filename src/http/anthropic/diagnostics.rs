//! Why a prompt was not in the cache: how it parts from that of the message that the request names.

use serde_json::{Value, json};

use crate::http::state::AppState;
use crate::http::state::prompt_memory::{Compared, Divergence, PromptFacts};
use crate::http::wire::messages::MessagesRequest;

/// A prompt that is to be compared.
#[derive(Debug)]
pub(super) struct Comparison {
    previous: Option<String>,
    facts: PromptFacts,
}

impl Comparison {
    /// Present if the request asks for it.
    pub(super) fn new(request: &MessagesRequest, model: &str) -> Option<Self> {
        let asked = request.diagnostics.as_ref()?;
        let mut facts = PromptFacts::default()
            .with_aspect("model_changed", &model)
            .with_aspect("system_changed", &request.system.as_ref().map(Value::to_string))
            .with_aspect("tools_changed", &json!(request.tools).to_string());
        for message in request.messages.iter().flatten() {
            facts.add_message(&(&message.role, message.content.to_string()));
        }
        Some(Self { previous: asked.previous_message_id.clone(), facts })
    }

    /// Keeps the prompt as that of the message `id`, and says how it parts from the earlier one;
    /// nothing if it goes on where that one ended.
    pub(super) fn told(self, state: &AppState, id: &str, token_ids: &[u32]) -> Option<Value> {
        let facts = self.facts.with_tokens(token_ids);
        let miss = match state.prompts.record(id, facts, self.previous.as_deref())? {
            Compared::Unknown => {
                return Some(told(&json!({"type": "previous_message_not_found"})));
            }
            Compared::GoesOn => return None,
            Compared::Parts(miss) => miss,
        };
        let kind = match miss.divergence {
            Divergence::Aspect(name) => name,
            Divergence::Messages => "messages_changed",
            Divergence::Other => return Some(told(&json!({"type": "unavailable"}))),
        };
        Some(told(&json!({"type": kind, "cache_missed_input_tokens": miss.missed_tokens})))
    }
}

fn told(reason: &Value) -> Value {
    json!({ "cache_miss_reason": reason })
}
