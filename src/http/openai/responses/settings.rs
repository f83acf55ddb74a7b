//! The settings of a request as its response repeats them.

use serde_json::{Map, Value};

use crate::http::error::ApiError;
use crate::http::generate::service_tier::ServiceTier;
use crate::http::state::AppState;
use crate::http::wire::bounds::{
    MAX_METADATA_KEY_CHARS, MAX_METADATA_PAIRS, MAX_METADATA_VALUE_CHARS,
};
use crate::http::wire::responses::{ReasoningSettings, ResponsesRequest, Settings, TextSettings};
use crate::http::wire::scalars::ScalarFields;

/// What took effect of a request.
pub(super) fn settings(
    state: &AppState,
    request: ResponsesRequest,
    scalars: &ScalarFields,
    tier: ServiceTier,
    tools: Vec<Value>,
    text: TextSettings,
) -> Result<Settings, ApiError> {
    let scalar = |name| scalars.get(name).or_else(|| state.defaults.scalar(name));
    let auto = Value::String("auto".to_owned());
    Ok(Settings {
        instructions: request.instructions,
        previous_response_id: request.previous_response_id,
        store: request.store.unwrap_or(true),
        background: false,
        max_output_tokens: request.max_output_tokens.map(|most| most.0),
        max_tool_calls: request.max_tool_calls.map(|most| most.0),
        metadata: metadata(request.metadata)?,
        parallel_tool_calls: request.parallel_tool_calls.unwrap_or(true),
        reasoning: ReasoningSettings {
            effort: request.reasoning.and_then(|reasoning| reasoning.effort),
            summary: None,
        },
        text,
        tools,
        tool_choice: request.tool_choice.filter(|choice| !choice.is_null()).unwrap_or(auto),
        temperature: scalar("temperature").unwrap_or(1.0),
        top_p: scalar("top_p").unwrap_or(1.0),
        presence_penalty: scalar("presence_penalty").unwrap_or(0.0),
        frequency_penalty: scalar("frequency_penalty").unwrap_or(0.0),
        top_logprobs: request.top_logprobs.map_or(0, |top| top.0),
        truncation: "disabled",
        service_tier: tier.name(),
        user: request.user,
        safety_identifier: request.safety_identifier,
        prompt_cache_key: request.prompt_cache_key,
    })
}

fn metadata(metadata: Option<Map<String, Value>>) -> Result<Map<String, Value>, ApiError> {
    let metadata = metadata.unwrap_or_default();
    if metadata.len() > MAX_METADATA_PAIRS {
        let message = format!(
            "metadata must have at most {MAX_METADATA_PAIRS} pairs, got {}",
            metadata.len()
        );
        return Err(ApiError::field("metadata", message));
    }
    for (key, value) in &metadata {
        let chars = key.chars().count();
        if chars > MAX_METADATA_KEY_CHARS {
            let message = format!(
                "metadata: keys must have at most {MAX_METADATA_KEY_CHARS} characters, got {chars}"
            );
            return Err(ApiError::field("metadata", message));
        }
        let param = format!("metadata.{key}");
        let Some(text) = value.as_str() else {
            return Err(ApiError::field(param.clone(), format!("{param} must be a string")));
        };
        let chars = text.chars().count();
        if chars > MAX_METADATA_VALUE_CHARS {
            let most = MAX_METADATA_VALUE_CHARS;
            let message = format!("{param} must have at most {most} characters, got {chars}");
            return Err(ApiError::field(param, message));
        }
    }
    Ok(metadata)
}
