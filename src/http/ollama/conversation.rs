//! The messages of a chat as those that all protocols share.

use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    Image, Message, Part, ReasoningKeys, Role, ToolCall, parsed_arguments,
};
use crate::http::generate::images::source::ImageSource;
use crate::http::request::fields::required;
use crate::http::wire::ollama::{OllamaMessage, OllamaMessageCall};
use crate::pictures::processor::Detail;

/// The messages, and whether the answer goes on with the last of them.
pub(super) fn messages(messages: &[OllamaMessage]) -> Result<(Vec<Message>, bool), ApiError> {
    let numbered = messages.iter().enumerate();
    let messages: Result<Vec<Message>, ApiError> =
        numbered.map(|(at, said)| message(said, &format!("messages[{at}]"))).collect();
    let messages = messages?;
    let calls = |said: &Message| said.parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let last = messages.last().filter(|last| last.role == Role::Assistant);
    let continues = last.is_some_and(|last| !last.parts.is_empty() && !calls(last));
    Ok((messages, continues))
}

/// A message of one text.
pub(super) fn saying(role: Role, text: &str) -> Message {
    Message { role, parts: vec![Part::Text(text.to_owned())], name: None, answers: None }
}

/// The pictures at `path`, each a text of base64.
pub(super) fn images(images: Option<&[Value]>, path: &str) -> Result<Vec<Part>, ApiError> {
    let image = |(at, image): (usize, &Value)| {
        let path = format!("{path}[{at}]");
        let Some(data) = image.as_str() else {
            return Err(ApiError::field(&*path, format!("{path} must be a string of base64")));
        };
        let source = ImageSource::Base64(data.to_owned());
        Ok(Part::Image(Image { path, kind: "image", source, detail: Detail::Full }))
    };
    images.unwrap_or_default().iter().enumerate().map(image).collect()
}

fn message(said: &OllamaMessage, path: &str) -> Result<Message, ApiError> {
    let role = said.role.to_lowercase();
    let role = Role::named(&required(Some(role).filter(|role| !role.is_empty()), path, "role")?);
    let mut parts = Vec::new();
    if let Some(text) = said.thinking.clone().filter(|text| !text.is_empty()) {
        parts.push(Part::Reasoning { text, keys: ReasoningKeys::Both });
    }
    parts.extend(images(said.images.as_deref(), &format!("{path}.images"))?);
    parts.extend(said.content.clone().filter(|text| !text.is_empty()).map(Part::Text));
    let calls = said.tool_calls.as_deref().unwrap_or_default();
    if !calls.is_empty() && role != Role::Assistant {
        let message = format!("{path}.tool_calls: only assistant messages have tool calls");
        return Err(ApiError::field(format!("{path}.tool_calls"), message));
    }
    for (at, call) in calls.iter().enumerate() {
        parts.push(Part::ToolCall(tool_call(call, &format!("{path}.tool_calls[{at}]"))?));
    }
    Ok(Message { role, parts, name: said.tool_name.clone(), answers: said.tool_call_id.clone() })
}

fn tool_call(call: &OllamaMessageCall, path: &str) -> Result<ToolCall, ApiError> {
    let arguments = match call.function.arguments.clone() {
        None => json!({}),
        Some(Value::String(text)) => parsed_arguments(text),
        Some(object @ Value::Object(_)) => object,
        Some(other) => {
            let param = format!("{path}.function.arguments");
            let shown: String = other.to_string().chars().take(80).collect();
            let message = format!("{param} must be an object, got {shown}");
            return Err(ApiError::field(param, message));
        }
    };
    Ok(ToolCall { id: call.id.clone(), name: call.function.name.clone(), arguments })
}
