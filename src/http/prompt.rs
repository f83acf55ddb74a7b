//! A conversation to a prompt: what the API's messages mean to a chat template, then to ids.
//!
//! Content parts are joined to text, tool call arguments become objects, and `developer` is
//! `system` for templates that don't know it. Rendering and tokenizing run off the async threads.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::state::AppState;
use super::tools::ToolSetup;
use super::types::chat::{ChatCompletionRequest, ChatMessage, MessageToolCall};
use super::types::fields::IgnoredFields;
use super::types::sampling::context_exceeded;
use crate::text::chat_template::{ChatPrompt, ChatTemplate};
use crate::text::tokenizer::{Tokenizer, TokenizerError};

/// Largest template that a request may bring.
const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// Who says a message.
pub(crate) const ROLES: [&str; 5] = ["developer", "system", "user", "assistant", "tool"];
/// How much a model can be asked to think.
pub(crate) const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// A prompt as text and as ids.
#[derive(Clone, Debug)]
pub(crate) struct RenderedPrompt {
    pub(crate) text: String,
    pub(crate) token_ids: Vec<u32>,
}

/// Everything that shapes the prompt of a conversation, checked.
#[derive(Debug)]
pub(crate) struct Conversation {
    template: Arc<ChatTemplate>,
    prompt: ChatPrompt,
    add_special_tokens: bool,
}

impl Conversation {
    /// Checks the messages and what goes with them; notes the fields that have no effect.
    pub(crate) fn new(
        state: &AppState,
        request: &ChatCompletionRequest,
        tools: &ToolSetup,
        ignored: &mut IgnoredFields,
    ) -> Result<Self, ApiError> {
        let messages = request.messages.as_deref().unwrap_or_default();
        if messages.is_empty() {
            return Err(ApiError::field("messages", "messages must have at least one message"));
        }
        let template = template(state, request, !tools.definitions.is_empty())?;
        let rules = MessageRules { has_developer: template.source().contains("developer") };
        let mut converted = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let path = format!("messages[{index}]");
            converted.push(rules.message(message, &path)?);
            note_ignored(message, &path, ignored);
        }
        let (continued, add_generation_prompt) = ending(request)?;
        let prompt = ChatPrompt {
            messages: converted,
            tools: (!tools.definitions.is_empty()).then(|| tools.definitions.clone()),
            documents: request.documents.clone(),
            add_generation_prompt,
            continue_final_message: continued,
            kwargs: template_variables(request)?,
            now: None,
        };
        let add_special_tokens = request.add_special_tokens.unwrap_or(false);
        Ok(Self { template, prompt, add_special_tokens })
    }

    /// Renders and tokenizes.
    pub(crate) async fn render(self, state: &AppState) -> Result<RenderedPrompt, ApiError> {
        let tokenizer = Arc::clone(state.tokenizer());
        let context = state.engine().limits().max_model_len;
        off_thread(move || {
            let text = self
                .template
                .render(&self.prompt)
                .map_err(|error| ApiError::field("messages", error.to_string()))?;
            let token_ids =
                tokenize(&tokenizer, &text, self.add_special_tokens, context, "messages")?;
            Ok(RenderedPrompt { text, token_ids })
        })
        .await
    }
}

/// The request's own template where those are trusted, else the model's.
fn template(
    state: &AppState,
    request: &ChatCompletionRequest,
    with_tools: bool,
) -> Result<Arc<ChatTemplate>, ApiError> {
    const FIELD: &str = "chat_template";
    let Some(source) = &request.chat_template else {
        return state.chat_template(with_tools).cloned().ok_or_else(|| {
            let message = "the model has no chat template; use /v1/completions";
            ApiError::Invalid { message: message.to_owned(), param: None, code: None }
        });
    };
    if !state.config().trust_request_chat_template {
        let what = "a template of the request's own, without --trust-request-chat-template,";
        return Err(ApiError::unsupported(FIELD, what));
    }
    if source.len() > MAX_TEMPLATE_BYTES {
        let length = source.len();
        let message = format!("{FIELD} has {length} bytes, at most {MAX_TEMPLATE_BYTES} fit");
        return Err(ApiError::field(FIELD, message));
    }
    let special_tokens = state.tokenizer().special_tokens().clone();
    let compiled = ChatTemplate::new(source, special_tokens);
    compiled.map(Arc::new).map_err(|error| ApiError::field(FIELD, error.to_string()))
}

/// The ids of a prompt from the field `param`, refused early where it is far longer than the
/// context.
pub(crate) fn tokenize(
    tokenizer: &Tokenizer,
    text: &str,
    add_special_tokens: bool,
    context: usize,
    param: &str,
) -> Result<Vec<u32>, ApiError> {
    let ids = tokenizer.encode_at_most(text, add_special_tokens, context);
    ids.map_err(|error| match error {
        TokenizerError::TooLong(tokens) => context_exceeded(format!(
            "the prompt has more than {tokens} tokens, but the context holds {context} tokens"
        )),
        error => ApiError::field(param, error.to_string()),
    })
}

/// Runs work that takes long for a long prompt where it doesn't delay other requests.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(ApiError::Internal("preparing the prompt failed".to_owned())))
}

/// `(continue_final_message, add_generation_prompt)`, which exclude each other.
fn ending(request: &ChatCompletionRequest) -> Result<(bool, bool), ApiError> {
    let continued = request.continue_final_message.unwrap_or(false);
    if continued && request.add_generation_prompt == Some(true) {
        let message = "continue_final_message and add_generation_prompt can't both be true";
        return Err(ApiError::field("continue_final_message", message));
    }
    Ok((continued, !continued && request.add_generation_prompt.unwrap_or(true)))
}

fn template_variables(request: &ChatCompletionRequest) -> Result<Map<String, Value>, ApiError> {
    let mut variables = Map::new();
    if let Some(effort) = &request.reasoning_effort {
        if !EFFORTS.contains(&effort.as_str()) {
            let message =
                format!("reasoning_effort must be one of {}, got {effort:?}", EFFORTS.join(", "));
            return Err(ApiError::field("reasoning_effort", message));
        }
        variables.insert("reasoning_effort".to_owned(), Value::String(effort.clone()));
    }
    let thinks = request.enable_thinking;
    let without = request.reasoning_effort.as_deref() == Some("none");
    if let Some(thinks) = thinks.or(without.then_some(false)) {
        variables.insert("enable_thinking".to_owned(), Value::Bool(thinks));
    }
    variables.extend(request.chat_template_kwargs.clone().unwrap_or_default());
    Ok(variables)
}

fn note_ignored(message: &ChatMessage, path: &str, ignored: &mut IgnoredFields) {
    for (name, value) in [("refusal", &message.refusal), ("annotations", &message.annotations)] {
        if value.is_some() {
            ignored.add(format!("{path}.{name}"));
        }
    }
    for (name, value) in &message.unknown {
        if !value.is_null() {
            ignored.add_unknown(format!("{path}.{name}"));
        }
    }
}

struct MessageRules {
    has_developer: bool,
}

impl MessageRules {
    fn message(&self, message: &ChatMessage, path: &str) -> Result<Value, ApiError> {
        let role = self.role(message, path)?;
        let mut converted = Map::new();
        converted.insert("role".to_owned(), json!(role));
        converted.insert("content".to_owned(), json!(content(message, role, path)?));
        let texts = [
            ("name", &message.name),
            ("tool_call_id", &message.tool_call_id),
            ("reasoning_content", &message.reasoning_content),
            ("reasoning", &message.reasoning),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                converted.insert(name.to_owned(), json!(text));
            }
        }
        let calls = message.tool_calls.as_deref().unwrap_or_default();
        if !calls.is_empty() {
            if role != "assistant" {
                let message = format!("{path}.tool_calls: only assistant messages have tool calls");
                return Err(ApiError::field(format!("{path}.tool_calls"), message));
            }
            let calls: Result<Vec<Value>, ApiError> =
                calls.iter().enumerate().map(|(at, call)| tool_call(call, path, at)).collect();
            converted.insert("tool_calls".to_owned(), Value::Array(calls?));
        }
        Ok(Value::Object(converted))
    }

    fn role<'a>(&self, message: &'a ChatMessage, path: &str) -> Result<&'a str, ApiError> {
        let param = format!("{path}.role");
        let role = message.role.as_deref();
        let role =
            role.ok_or_else(|| ApiError::field(param.clone(), format!("{param} is required")))?;
        if !ROLES.contains(&role) {
            let message = format!("{param} must be one of {}, got {role:?}", ROLES.join(", "));
            return Err(ApiError::field(param, message));
        }
        Ok(if role == "developer" && !self.has_developer { "system" } else { role })
    }
}

fn content(message: &ChatMessage, role: &str, path: &str) -> Result<String, ApiError> {
    let param = format!("{path}.content");
    match &message.content {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Result<Vec<&str>, ApiError> =
                parts.iter().enumerate().map(|(at, part)| part_text(part, &param, at)).collect();
            Ok(texts?.join("\n"))
        }
        Some(_) => {
            let message = format!("{param} must be a string or a list of parts");
            Err(ApiError::field(param, message))
        }
        None if role == "assistant" => Ok(String::new()),
        None => {
            let message = format!("{param} is required in a message of the role {role:?}");
            Err(ApiError::field(param, message))
        }
    }
}

fn part_text<'a>(part: &'a Value, content: &str, at: usize) -> Result<&'a str, ApiError> {
    let param = format!("{content}[{at}]");
    let kind = part.get("type").and_then(Value::as_str);
    match (kind, part.get("text").and_then(Value::as_str)) {
        (Some("text"), Some(text)) => Ok(text),
        (Some("text"), None) => {
            Err(ApiError::field(format!("{param}.text"), format!("{param}.text must be a string")))
        }
        (Some(kind), _) => {
            let message =
                format!("{param}: parts of the type {kind:?} are not supported, only text");
            Err(ApiError::field(format!("{param}.type"), message))
        }
        (None, _) => {
            let message = format!("{param} must be an object with a type");
            Err(ApiError::field(param, message))
        }
    }
}

/// With the arguments as an object, which is what templates expect.
fn tool_call(call: &MessageToolCall, path: &str, at: usize) -> Result<Value, ApiError> {
    let path = format!("{path}.tool_calls[{at}]");
    if let Some(kind) = call.kind.as_deref().filter(|kind| *kind != "function") {
        let message = format!("{path}.type must be \"function\", got {kind:?}");
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    let name = call.function.as_ref().and_then(|function| function.name.as_deref());
    let name = name.ok_or_else(|| {
        let param = format!("{path}.function.name");
        ApiError::field(param.clone(), format!("{param} is required"))
    })?;
    let arguments = call.function.as_ref().and_then(|function| function.arguments.clone());
    let arguments = match arguments {
        None => json!({}),
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(object @ Value::Object(_)) => object,
            _ => Value::String(text),
        },
        Some(object @ Value::Object(_)) => object,
        Some(_) => {
            let param = format!("{path}.function.arguments");
            let message = format!("{param} must be a string of JSON");
            return Err(ApiError::field(param, message));
        }
    };
    let mut converted = Map::new();
    if let Some(id) = &call.id {
        converted.insert("id".to_owned(), json!(id));
    }
    converted.insert("type".to_owned(), json!("function"));
    converted.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
    Ok(Value::Object(converted))
}
