//! Why a prompt was not in the cache: how it parts from that of the response that the request names.

use serde_json::{Value, json};

use crate::http::openai::sampling::SamplingBody;
use crate::http::state::AppState;
use crate::http::state::prompt_memory::{Compared, Divergence, PromptFacts};
use crate::http::state::response_store::History;
use crate::http::wire::responses::ResponsesRequest;

/// A prompt that later ones may be compared with, and is compared itself if the request says so.
#[derive(Debug)]
pub(super) struct Comparison {
    previous: Option<String>,
    facts: PromptFacts,
}

impl Comparison {
    pub(super) fn new(
        request: &ResponsesRequest,
        tools: &[Value],
        sampling: &SamplingBody,
        model: &str,
        history: &History,
    ) -> Self {
        let effort = request.reasoning.as_ref().map(|reasoning| reasoning.effort.as_deref());
        let format = request.text.as_ref().map(|text| format!("{:?}", text.format));
        let options = sampling.own.prompt_cache_options.as_ref();
        let mut facts = PromptFacts::default()
            .with_aspect("model_changed", &model)
            .with_aspect("tools_changed", &json!(tools).to_string())
            .with_aspect("text_format_changed", &format)
            .with_aspect("reasoning_effort_changed", &effort)
            .with_aspect("input_changed", &request.instructions);
        for item in history.items() {
            facts.add_message(&json!(item).to_string());
        }
        Self { previous: options.and_then(|own| own.comparison_response_id.clone()), facts }
    }

    /// Keeps the prompt as that of the response `id`, and says how it parts from the earlier one.
    pub(super) fn told(self, state: &AppState, id: &str, token_ids: &[u32]) -> Option<Value> {
        let facts = self.facts.with_tokens(token_ids);
        let miss = match state.prompts.record(id, facts, self.previous.as_deref())? {
            Compared::Unknown => return Some(json!({"type": "comparison_response_not_found"})),
            Compared::GoesOn => return Some(json!({"type": "cache_hit"})),
            Compared::Parts(miss) => miss,
        };
        let reason = match miss.divergence {
            Divergence::Aspect(name) => name,
            Divergence::Messages => "input_changed",
            Divergence::Other => return Some(json!({"type": "unavailable"})),
        };
        Some(json!({
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": miss.missed_tokens,
            "comparison_reusable_tokens": miss.shared_tokens,
        }))
    }
}
