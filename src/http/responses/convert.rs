//! A request for a response to one for a chat completion, and to the settings that the response
//! repeats.
//!
//! Every field is judged here: it takes effect, is refused by name, or is named as ignored.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::conversation::messages;
use super::input::{InputReader, check_outputs};
use super::store::{History, Turn};
use crate::http::answer::UsageReporting;
use crate::http::body::{JsonBody, field_names};
use crate::http::error::ApiError;
use crate::http::request;
use crate::http::state::AppState;
use crate::http::types::chat::ChatCompletionRequest;
use crate::http::types::fields::IgnoredFields;
use crate::http::types::number::Int;
use crate::http::types::responses::{
    ReasoningField, ReasoningSettings, ResponsesRequest, Settings, TextField, TextSettings,
};
use crate::http::types::sampling::SamplingFields;

pub(crate) const MAX_METADATA_PAIRS: usize = 16;
pub(crate) const MAX_METADATA_KEY_CHARS: usize = 64;
pub(crate) const MAX_METADATA_VALUE_CHARS: usize = 512;
const LOGPROBS: &str = "message.output_text.logprobs";
/// What a response can be asked to include. All but the first are results of tools that there are
/// none of, and thoughts in a form that only their maker reads. Ours are in the open.
pub(crate) const INCLUDABLES: [&str; 8] = [
    LOGPROBS,
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// A request, converted.
pub(super) struct Converted {
    pub(super) chat: ChatCompletionRequest,
    pub(super) fields: SamplingFields,
    pub(super) settings: Settings,
    /// All items, the request's own last.
    pub(super) conversation: History,
    pub(super) streaming: Option<UsageReporting>,
    pub(super) ignored: IgnoredFields,
}

impl Converted {
    pub(super) fn new(state: &AppState, body: &JsonBody) -> Result<Self, ApiError> {
        let mut request: ResponsesRequest = body.read()?;
        let mut fields: SamplingFields = body.read()?;
        state.check_model(request.model.as_deref())?;
        let known = [field_names::<ResponsesRequest>(), field_names::<SamplingFields>()];
        let mut ignored = IgnoredFields::judge(body.unknown(&known))?;
        check_unsupported(&request, &fields)?;
        note_idle(&request, &mut ignored);
        let streaming =
            request::streaming(request.stream, request.stream_options.as_ref(), &mut ignored)?;
        let conversation = conversation(state, &request, &mut ignored)?;
        let messages = messages(request.instructions.as_deref(), conversation.items());
        fields.max_completion_tokens = request.max_output_tokens;
        let tools = tools(request.tools.take().unwrap_or_default(), &mut ignored)?;
        let chat = ChatCompletionRequest {
            model: request.model.clone(),
            messages: Some(messages),
            tool_choice: tool_choice(&request, !tools.is_empty()),
            tools: (!tools.is_empty()).then(|| tools.iter().map(nested).collect()),
            parallel_tool_calls: request.parallel_tool_calls,
            logprobs: logprobs(&request, &mut ignored)?,
            top_logprobs: request.top_logprobs,
            stream: request.stream,
            reasoning_effort: effort(request.reasoning.as_ref(), &mut ignored)?,
            enable_thinking: request.enable_thinking,
            chat_template_kwargs: request.chat_template_kwargs.clone(),
            ..ChatCompletionRequest::default()
        };
        let text = text(request.text.as_ref(), &mut ignored)?;
        fields.response_format = response_format(&text);
        let settings = settings(state, request, &fields, tools, text)?;
        Ok(Self { chat, fields, settings, conversation, streaming, ignored })
    }
}

/// An error of the chat that the request became, in the words of the request that it was.
pub(super) fn in_own_words(error: ApiError) -> ApiError {
    let ApiError::Invalid { message, param: Some(param), code } = error else { return error };
    let own = match param.as_str() {
        "max_tokens" | "max_completion_tokens" => "max_output_tokens".to_owned(),
        "reasoning_effort" => "reasoning.effort".to_owned(),
        name if name.starts_with("messages") => "input".to_owned(),
        // Without the object that chat completions have around the schema.
        name if name.starts_with("response_format") => {
            let inner = name.strip_prefix("response_format.json_schema");
            let inner = inner.or_else(|| name.strip_prefix("response_format"));
            format!("text.format{}", inner.unwrap_or_default())
        }
        name => name.replace(".function.", "."),
    };
    ApiError::Invalid { message: message.replace(&param, &own), param: Some(own), code }
}

fn check_unsupported(request: &ResponsesRequest, fields: &SamplingFields) -> Result<(), ApiError> {
    let given = |value: &Option<Value>| match value {
        None | Some(Value::Null) => false,
        Some(value) => !value.as_array().is_some_and(Vec::is_empty),
    };
    let asks = [
        (request.background == Some(true), "background", "true"),
        (given(&request.conversation), "conversation", "any; use previous_response_id"),
        (given(&request.prompt), "prompt", "any; use input"),
        (given(&request.context_management), "context_management", "any"),
        (fields.n.is_some_and(|n| n != Int(1)), "n", "another number of answers than 1"),
        (fields.max_tokens.is_some(), "max_tokens", "any; use max_output_tokens"),
        (
            fields.max_completion_tokens.is_some(),
            "max_completion_tokens",
            "any; use max_output_tokens",
        ),
        (fields.response_format.is_some(), "response_format", "any; use text.format"),
        (fields.prompt_logprobs.is_some(), "prompt_logprobs", "any"),
        (fields.return_token_ids == Some(true), "return_token_ids", "true"),
    ];
    for (asked, name, what) in asks {
        if asked {
            return Err(ApiError::unsupported(name, &format!("the value {what}")));
        }
    }
    match request.truncation.as_deref() {
        None | Some("disabled") => Ok(()),
        Some("auto") => Err(ApiError::unsupported("truncation", "the value \"auto\"")),
        Some(other) => {
            let message = format!("truncation must be \"disabled\", got {other:?}");
            Err(ApiError::field("truncation", message))
        }
    }
}

/// Notes the fields that have no effect here.
fn note_idle(request: &ResponsesRequest, ignored: &mut IgnoredFields) {
    let options = request.stream_options.as_ref();
    for (given, name) in [
        // It counts the calls of tools that a server has; there are none.
        (request.max_tool_calls.is_some(), "max_tool_calls"),
        (request.user.is_some(), "user"),
        (request.safety_identifier.is_some(), "safety_identifier"),
        (request.prompt_cache_key.is_some(), "prompt_cache_key"),
        (request.service_tier.is_some(), "service_tier"),
        // Usage always comes with the last event.
        (
            options.is_some_and(|given| given.include_usage.is_some()),
            "stream_options.include_usage",
        ),
        (
            options.is_some_and(|given| given.continuous_usage_stats.is_some()),
            "stream_options.continuous_usage_stats",
        ),
    ] {
        if given {
            ignored.add(name.to_owned());
        }
    }
}

/// What went before, and the request's own items.
fn conversation(
    state: &AppState,
    request: &ResponsesRequest,
    ignored: &mut IgnoredFields,
) -> Result<History, ApiError> {
    let now = Instant::now();
    let history = match &request.previous_response_id {
        None => History::default(),
        Some(id) => {
            let previous = state.responses().get(now, id);
            previous.ok_or_else(|| ApiError::PreviousResponseNotFound(id.clone()))?.conversation()
        }
    };
    let input = request.input.as_ref();
    let input = input.ok_or_else(|| ApiError::field("input", "input is required"))?;
    let items = InputReader { store: state.responses(), now, ignored }.read(input)?;
    if items.is_empty() {
        return Err(ApiError::field("input", "input must have at least one item"));
    }
    check_outputs(&history, &items)?;
    Ok(history.with(Turn::new(items)))
}

/// Functions with all the keys they have in a response.
fn tools(tools: Vec<Value>, ignored: &mut IgnoredFields) -> Result<Vec<Value>, ApiError> {
    const KNOWN: [&str; 5] = ["type", "name", "description", "parameters", "strict"];
    const IDLE: [&str; 4] = ["allowed_callers", "async", "defer_loading", "output_schema"];
    let mut functions = Vec::with_capacity(tools.len());
    for (at, tool) in tools.into_iter().enumerate() {
        let path = format!("tools[{at}]");
        let kind = tool.get("type").and_then(Value::as_str).unwrap_or("nothing");
        if kind != "function" {
            let param = format!("{path}.type");
            let message =
                format!("{param}: tools of the type {kind:?} are not supported, only function");
            return Err(ApiError::field(param, message));
        }
        for (name, value) in tool.as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if value.is_null() || KNOWN.contains(&name.as_str()) {
                continue;
            }
            if IDLE.contains(&name.as_str()) {
                ignored.add(path);
            } else {
                ignored.add_unknown(path);
            }
        }
        let member = |name: &str| tool.get(name).cloned().unwrap_or_default();
        let strict = Some(member("strict")).filter(|strict| !strict.is_null());
        functions.push(json!({
            "type": "function",
            "name": member("name"),
            "description": member("description"),
            "parameters": member("parameters"),
            // Enforced where it is asked for; a schema that was written without it may say more
            // than can be enforced.
            "strict": strict.unwrap_or(Value::Bool(false)),
        }));
    }
    Ok(functions)
}

/// A function as chat completions have it.
fn nested(tool: &Value) -> Value {
    let mut function = tool.as_object().cloned().unwrap_or_default();
    function.shift_remove("type");
    function.retain(|_, value| !value.is_null() && *value != Value::Bool(false));
    json!({"type": "function", "function": function})
}

/// Without tools, a choice that asks for no call is none.
fn tool_choice(request: &ResponsesRequest, has_tools: bool) -> Option<Value> {
    let choice = request.tool_choice.clone().filter(|choice| !choice.is_null());
    choice.filter(|choice| has_tools || (choice != "auto" && choice != "none"))
}

fn logprobs(
    request: &ResponsesRequest,
    ignored: &mut IgnoredFields,
) -> Result<Option<bool>, ApiError> {
    let mut included = false;
    for (at, name) in request.include.iter().flatten().enumerate() {
        let path = format!("include[{at}]");
        match name.as_str() {
            LOGPROBS => included = true,
            name if INCLUDABLES.contains(&name) => ignored.add(path),
            _ => {
                let message = format!("{path} must be something to include, got {name:?}");
                return Err(ApiError::field(path, message));
            }
        }
    }
    if !included && request.top_logprobs.is_some_and(|top| top != Int(0)) {
        let message = format!("top_logprobs needs include to name {LOGPROBS:?}");
        return Err(ApiError::field("top_logprobs", message));
    }
    Ok(included.then_some(true))
}

fn effort(
    reasoning: Option<&ReasoningField>,
    ignored: &mut IgnoredFields,
) -> Result<Option<String>, ApiError> {
    let Some(reasoning) = reasoning else { return Ok(None) };
    for (name, value) in reasoning.others.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("reasoning.{name}");
        match (name.as_str(), value.as_str()) {
            ("mode", Some("standard")) | ("context", Some("auto")) => {}
            ("mode" | "context", _) => {
                return Err(ApiError::unsupported(path, &format!("the value {value}")));
            }
            // The thoughts themselves are in the answer.
            ("summary" | "generate_summary", Some("auto" | "concise" | "detailed")) => {
                ignored.add(path);
            }
            ("summary" | "generate_summary", _) => {
                let message = format!("{path} must be one of auto, concise, detailed, got {value}");
                return Err(ApiError::field(path, message));
            }
            _ => ignored.add_unknown(path),
        }
    }
    Ok(reasoning.effort.clone())
}

fn text(text: Option<&TextField>, ignored: &mut IgnoredFields) -> Result<TextSettings, ApiError> {
    let plain = || json!({"type": "text"});
    let Some(text) = text else {
        return Ok(TextSettings { format: plain(), verbosity: "medium" });
    };
    for (name, _) in text.unknown.iter().filter(|(_, value)| !value.is_null()) {
        ignored.add_unknown(format!("text.{name}"));
    }
    if let Some(verbosity) = text.verbosity.as_ref().filter(|value| *value != "medium") {
        return Err(ApiError::unsupported("text.verbosity", &format!("the value {verbosity}")));
    }
    let format = text.format.clone().unwrap_or_else(plain);
    match format.get("type").and_then(Value::as_str) {
        Some("text" | "json_object") => {}
        Some("json_schema") => {
            if !format.get("schema").is_some_and(Value::is_object) {
                let message = "text.format.schema must be a JSON schema";
                return Err(ApiError::field("text.format.schema", message));
            }
        }
        kind => {
            let shown = kind.unwrap_or("nothing");
            let what = "text.format.type must be one of text, json_object, json_schema";
            return Err(ApiError::field("text.format.type", format!("{what}, got {shown:?}")));
        }
    }
    Ok(TextSettings { format, verbosity: "medium" })
}

/// The format as `response_format` of chat completions has it; `None` for text.
fn response_format(text: &TextSettings) -> Option<Value> {
    match text.format.get("type").and_then(Value::as_str) {
        Some("json_object") => Some(json!({"type": "json_object"})),
        Some("json_schema") => {
            let mut schema = text.format.as_object().cloned().unwrap_or_default();
            schema.shift_remove("type");
            Some(json!({"type": "json_schema", "json_schema": schema}))
        }
        _ => None,
    }
}

fn settings(
    state: &AppState,
    request: ResponsesRequest,
    fields: &SamplingFields,
    tools: Vec<Value>,
    text: TextSettings,
) -> Result<Settings, ApiError> {
    let defaults = state.defaults();
    let auto = Value::String("auto".to_owned());
    Ok(Settings {
        instructions: request.instructions,
        previous_response_id: request.previous_response_id,
        store: request.store.unwrap_or(false),
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
        temperature: fields.temperature.or(defaults.temperature).unwrap_or(1.0),
        top_p: fields.top_p.or(defaults.top_p).unwrap_or(1.0),
        presence_penalty: fields.presence_penalty.unwrap_or(0.0),
        frequency_penalty: fields.frequency_penalty.unwrap_or(0.0),
        top_logprobs: request.top_logprobs.map_or(0, |top| top.0),
        truncation: "disabled",
        service_tier: "default",
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
