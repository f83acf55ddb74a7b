//! What requests for scores and classes say of how they are computed, checked.

use serde_json::{Map, Value};

use crate::engine::adapter::Adapter;
use crate::engine::request::Wanted;
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions};
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::options::{cache_salt, priority};
use crate::http::generate::scoring::ScoringOptions;
use crate::http::openai::sampling::cut_side;
use crate::http::request::arrival::Arrival;
use crate::http::wire::number::{Int, integer};
use crate::http::wire::ranking::PoolingFields;
use crate::text::tokenizer::CutSide;

const TRUNCATE: &str = "truncate_prompt_tokens";
/// The field of a conversation.
const MESSAGES: &str = "messages";

/// What these routes call the fields of all protocols.
const NAMES: FieldNames = FieldNames {
    prompt: "documents",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking_token_budget",
};

/// What a request for scores says of its two sides and of what is looked for, not checked.
pub(super) struct Asked {
    pub(super) max_tokens_per_query: Option<Int>,
    pub(super) max_tokens_per_doc: Option<Int>,
    pub(super) instruction: Option<String>,
    pub(super) chat_template_kwargs: Option<Map<String, Value>>,
    pub(super) task: Option<String>,
}

/// The field that holds what is read: a conversation, or texts.
pub(super) fn field(chats: bool) -> &'static str {
    if chats { MESSAGES } else { "input" }
}

impl PoolingFields {
    /// What the engine is told beside the texts.
    pub(super) fn embedding(
        &self,
        adapter: Option<Adapter>,
        arrival: &Arrival,
    ) -> Result<EmbeddingOptions, ApiError> {
        let activation = self.use_activation.or(self.activation).or(self.softmax);
        Ok(EmbeddingOptions {
            adapter,
            wanted: Wanted { activation, ..Wanted::default() },
            priority: arrival.priority(priority(self.priority)?.unwrap_or(0)),
            cache_salt: cache_salt(self.cache_salt.as_deref())?,
            arrival: arrival.at,
            deadline: arrival.deadline(self.deadline_ms)?,
        })
    }

    /// What is done with long texts, which the field `field` holds, or with a conversation: a chat template
    /// writes the special tokens itself.
    pub(super) fn cutting(&self, longest: usize, field: &'static str) -> Result<Cutting, ApiError> {
        let chats = field == MESSAGES;
        let most = i64::try_from(longest).unwrap_or(i64::MAX);
        let truncate = match integer(TRUNCATE, self.truncate_prompt_tokens, -1, most)? {
            None => None,
            Some(-1) => Some(longest),
            Some(0) => {
                let message = format!("{TRUNCATE} must be -1 or in [1, {longest}], got 0");
                return Err(ApiError::field(TRUNCATE, message));
            }
            Some(count) => usize::try_from(count).ok(),
        };
        Ok(Cutting {
            truncate,
            side: cut_side(self.truncation_side.as_deref(), CutSide::Right)?,
            longest,
            add_special_tokens: self.add_special_tokens.unwrap_or(!chats),
            field,
            cut_by: TRUNCATE,
        })
    }

    /// How the pairs of a request are scored.
    pub(super) fn scoring(
        &self,
        asked: Asked,
        cutting: Cutting,
        adapter: Option<Adapter>,
        arrival: Arrival,
    ) -> Result<ScoringOptions, ApiError> {
        let (instruction, variables) = instruction(asked.instruction, asked.chat_template_kwargs);
        Ok(ScoringOptions {
            embedding: self.embedding(adapter, &arrival)?,
            cutting,
            most_tokens: [
                most_tokens("max_tokens_per_query", asked.max_tokens_per_query)?,
                most_tokens("max_tokens_per_doc", asked.max_tokens_per_doc)?,
            ],
            instruction,
            variables,
            task: asked.task,
            names: &NAMES,
            arrival,
        })
    }
}

/// How many tokens the texts of one side are cut to, if they are; 0 cuts none.
fn most_tokens(name: &'static str, field: Option<Int>) -> Result<Option<usize>, ApiError> {
    let most = integer(name, field, 0, i64::MAX)?.filter(|most| *most > 0);
    Ok(most.and_then(|most| usize::try_from(most).ok()))
}

/// What a model is told to look for that answers by words, and what else its template is told.
fn instruction(
    own: Option<String>,
    template: Option<Map<String, Value>>,
) -> (Option<String>, Map<String, Value>) {
    let mut variables = template.unwrap_or_default();
    let told = variables.get("instruction").and_then(Value::as_str).map(str::to_owned);
    if told.is_some() {
        variables.remove("instruction");
    }
    (told.or(own), variables)
}
