//! The settings of a request as its response repeats them, from its beginning on.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::generate::service_tier::ServiceTier;
use crate::http::openai::envelope::item_id;
use crate::http::openai::metadata::metadata;
use crate::http::request::fields::text_member;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::chat::StopReason;
use crate::http::wire::responses::{
    ConversationName, ReasoningSettings, ResponseObject, ResponsesRequest, Settings, Status,
    TextSettings,
};
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
        conversation: conversation_id(request.conversation.as_ref())?
            .map(|id| ConversationName { id }),
        store: request.store.unwrap_or(true),
        background: request.background.unwrap_or(false),
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

/// A response of which nothing is there yet.
pub(super) fn begun(model: String, settings: Settings, seed: i64) -> ResponseObject {
    ResponseObject {
        id: item_id("resp"),
        object: "response",
        created_at: unix_seconds(),
        status: Status::InProgress,
        completed_at: None,
        error: None,
        incomplete_details: None,
        model,
        output: Vec::new(),
        usage: None,
        settings,
        seed,
        stop_reason: StopReason::Nothing,
        timings: None,
        prompt_cache_diagnostics: None,
    }
}

/// The conversation that a request names: by its id, or as an object that has it.
pub(super) fn conversation_id(named: Option<&Value>) -> Result<Option<String>, ApiError> {
    match named {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(object) => {
            let id = text_member(object, "id").ok_or_else(|| {
                let message = "conversation must be an id or an object with one";
                ApiError::field("conversation", message)
            })?;
            Ok(Some(id.to_owned()))
        }
    }
}
