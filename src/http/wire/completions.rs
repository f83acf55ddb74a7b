//! Text completions as JSON: request, and the one object that is response and chunk.

use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::chat::{PromptLogprobs, StopReason, StreamOptions};
use super::number::Int;
use super::schema;
use super::schema::chat::{
    CompletionPrompt, FinishReason, ServiceTierName, StopCause, TopLogprobs,
};
use super::schema::constants;
use super::schema::served::RequestedModel;
use super::usage::{ChunkUsage, Timings, Usage};

/// The body of `POST /v1/completions`, beside
/// [`SamplingFields`](super::sampling::SamplingFields).
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = CompletionPrompt)]
    pub(crate) prompt: Option<PromptField>,
    pub(crate) echo: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) logprobs: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub(crate) best_of: Option<Int>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    /// Tells where in the prompt's text each token stands, where requests are only rendered.
    pub(crate) return_token_offsets: Option<bool>,
    /// Tells times with every chunk of a stream.
    pub(crate) timings_per_token: Option<bool>,
    pub(crate) add_special_tokens: Option<bool>,
}

/// A prompt or several, as text or as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptField(pub(crate) Vec<Prompt>);

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<Int>),
}

/// The answer, whole or a piece of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Completion<'a> {
    pub(crate) id: &'a str,
    #[schema(schema_with = constants::text_completion)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) system_fingerprint: &'a str,
    #[schema(value_type = ServiceTierName)]
    pub(crate) service_tier: &'static str,
    pub(crate) choices: Vec<CompletionChoice>,
    /// Absent in a stream that was not asked for usage, null in its chunks before the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub(crate) usage: Option<ChunkUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<i64>,
}

/// One of the answers, or what a chunk adds to it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CompletionChoice {
    pub(crate) index: usize,
    pub(crate) text: String,
    #[schema(required)]
    pub(crate) logprobs: Option<CompletionLogprobs>,
    #[schema(value_type = Option<FinishReason>, required)]
    pub(crate) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<StopCause>)]
    pub(crate) stop_reason: Option<StopReason>,
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    #[schema(value_type = Option<schema::chat::PromptLogprobs>)]
    pub(crate) prompt_logprobs: Option<PromptLogprobs>,
    pub(crate) token_ids: Option<Vec<u32>>,
}

/// Logprobs in columns, one entry per token.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct CompletionLogprobs {
    /// Where each token begins in the choice's text, in characters.
    pub(crate) text_offset: Vec<usize>,
    /// Null for the first token of a prompt, which nothing predicts; so in `top_logprobs`.
    pub(crate) token_logprobs: Vec<Option<f64>>,
    pub(crate) tokens: Vec<String>,
    /// The token itself and the most likely ones, by their text.
    #[schema(value_type = TopLogprobs)]
    pub(crate) top_logprobs: Vec<Option<Map<String, Value>>>,
}

impl CompletionLogprobs {
    /// Puts the entries of `more` behind these.
    pub(crate) fn append(&mut self, more: Self) {
        self.text_offset.extend(more.text_offset);
        self.token_logprobs.extend(more.token_logprobs);
        self.tokens.extend(more.tokens);
        self.top_logprobs.extend(more.top_logprobs);
    }
}

const EXPECTED: &str = "a string, a list of strings, a list of token ids or a list of such lists";

impl<'de> Deserialize<'de> for PromptField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PromptVisitor;
        impl<'de> Visitor<'de> for PromptVisitor {
            type Value = Vec<Prompt>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(vec![Prompt::Text(text.to_owned())])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut elements: Vec<Value> = Vec::new();
                while let Some(element) = access.next_element()? {
                    elements.push(element);
                }
                prompts(elements).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(PromptVisitor).map(Self)
    }
}

fn prompts(elements: Vec<Value>) -> Result<Vec<Prompt>, String> {
    let unexpected = |error: serde_json::Error| format!("expected {EXPECTED}: {error}");
    match elements.first() {
        Some(Value::Number(_)) => {
            let ids = Vec::deserialize(Value::Array(elements)).map_err(unexpected)?;
            Ok(vec![Prompt::Tokens(ids)])
        }
        Some(Value::String(_)) => {
            let texts: Vec<String> =
                Vec::deserialize(Value::Array(elements)).map_err(unexpected)?;
            Ok(texts.into_iter().map(Prompt::Text).collect())
        }
        Some(Value::Array(_)) => {
            let lists: Vec<Vec<Int>> =
                Vec::deserialize(Value::Array(elements)).map_err(unexpected)?;
            Ok(lists.into_iter().map(Prompt::Tokens).collect())
        }
        None => Ok(Vec::new()),
        Some(_) => Err(format!("expected {EXPECTED}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Vec<Prompt>, String> {
        PromptField::deserialize(value).map(|field| field.0).map_err(|error| error.to_string())
    }

    #[test]
    fn four_shapes_are_prompts() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(read(json!("a")), Ok(vec![text("a")]));
        assert_eq!(read(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
        assert_eq!(read(json!([1, 2])), Ok(vec![Prompt::Tokens(vec![Int(1), Int(2)])]));
        assert_eq!(
            read(json!([[1], [2]])),
            Ok(vec![Prompt::Tokens(vec![Int(1)]), Prompt::Tokens(vec![Int(2)])])
        );
        assert_eq!(read(json!([])), Ok(vec![]));
    }

    #[test]
    fn mixtures_are_refused() {
        for value in [
            json!(1),
            json!({}),
            json!([1, "a"]),
            json!(["a", 1]),
            json!([[1], "a"]),
            json!([true]),
        ] {
            assert!(read(value.clone()).unwrap_err().contains("expected"), "{value}");
        }
    }
}
