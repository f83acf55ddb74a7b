//! The conversation of a Messages request as the chat messages that all endpoints share: content
//! blocks become texts, thoughts, tool calls and tool messages.
//!
//! Turns of one role that follow each other are one turn, as Anthropic has it; a tool's result is
//! a turn of its own. A result marked `is_error` begins with `Error: `, since templates have no
//! other way to tell the model. Knows nothing of templates or of sampling.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::types::chat::{ChatMessage, MessageFunctionCall, MessageToolCall};
use super::types::fields::IgnoredFields;
use super::types::messages::{
    InputMessage, MessagesRequest, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock,
};

/// Known members that can't change the answer here.
const WITHOUT_EFFECT: [&str; 9] = [
    "allowed_callers",
    "cache_control",
    "caller",
    "citations",
    "data",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
    "toolset_name",
];

/// The messages of a request, with `system` before them, and whether the last is to be continued.
pub(crate) fn conversation(
    request: &MessagesRequest,
    ignored: &mut IgnoredFields,
) -> Result<(Vec<ChatMessage>, bool), ApiError> {
    let messages = request.messages.as_deref().unwrap_or_default();
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages must have at least one message"));
    }
    let mut turns = Turns { list: Vec::new(), calls: HashMap::new(), ignored };
    if let Some(system) = &request.system {
        turns.add_blocks(system, "system", Turns::add_system_block)?;
        turns.list.retain(|turn| !turn.text.as_deref().unwrap_or_default().is_empty());
    }
    for (index, message) in messages.iter().enumerate() {
        turns.add(message, &format!("messages[{index}]"))?;
    }
    let last = turns.list.last().filter(|turn| turn.role == "assistant");
    if last.is_some_and(|last| !last.calls.is_empty()) {
        let param = format!("messages[{}].content", messages.len() - 1);
        let message = format!(
            "{param}: the last message can't end with tool_use, which is answered by a \
             tool_result, not continued"
        );
        return Err(ApiError::field(param, message));
    }
    let continues = last.is_some();
    Ok((turns.list.into_iter().map(Turn::into_message).collect(), continues))
}

/// Reads an object at `path`.
pub(crate) fn read<'a, T: Deserialize<'a>>(value: &'a Value, path: &str) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let param = if inner == "." { path.to_owned() } else { format!("{path}.{inner}") };
        ApiError::field(param.clone(), format!("{param}: {}", error.into_inner()))
    })
}

/// Notes the members of an object that nobody read, its type aside.
pub(crate) fn note_rest(rest: &Map<String, Value>, path: &str, ignored: &mut IgnoredFields) {
    for (name, _) in rest.iter().filter(|(name, value)| !value.is_null() && *name != "type") {
        let path = format!("{path}.{name}");
        if WITHOUT_EFFECT.contains(&name.as_str()) {
            ignored.add(path);
        } else {
            ignored.add_unknown(path);
        }
    }
}

/// What one side says until the other does.
#[derive(Debug, Default)]
struct Turn {
    role: &'static str,
    text: Option<String>,
    thoughts: Option<String>,
    calls: Vec<MessageToolCall>,
    /// In a tool's turn: which call it answers, and the tool's name.
    answers: Option<(String, String)>,
}

impl Turn {
    fn into_message(self) -> ChatMessage {
        let (tool_call_id, name) = self.answers.unzip();
        ChatMessage {
            role: Some(self.role.to_owned()),
            content: Some(Value::String(self.text.unwrap_or_default())),
            reasoning_content: self.thoughts,
            tool_calls: Some(self.calls).filter(|calls| !calls.is_empty()),
            tool_call_id,
            name,
            ..ChatMessage::default()
        }
    }
}

struct Turns<'a> {
    list: Vec<Turn>,
    /// The name of the tool behind each call.
    calls: HashMap<String, String>,
    ignored: &'a mut IgnoredFields,
}

impl Turns<'_> {
    fn add(&mut self, message: &InputMessage, path: &str) -> Result<(), ApiError> {
        for (name, _) in message.unknown.iter().filter(|(_, value)| !value.is_null()) {
            self.ignored.add_unknown(format!("{path}.{name}"));
        }
        let content = format!("{path}.content");
        match message.role.as_str() {
            "user" => self.add_blocks(&message.content, &content, Self::add_user_block),
            "assistant" => self.add_blocks(&message.content, &content, Self::add_assistant_block),
            "system" => self.add_blocks(&message.content, &content, Self::add_system_block),
            role => {
                let param = format!("{path}.role");
                let message =
                    format!("{param} must be one of user, assistant, system, got {role:?}");
                Err(ApiError::field(param, message))
            }
        }
    }

    /// Adds content of any shape, a string being one text block.
    fn add_blocks(
        &mut self,
        content: &Value,
        path: &str,
        add: fn(&mut Self, &Value, &str, &str) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        match content {
            Value::String(text) => add(self, &serde_json::json!({"text": text}), "text", path),
            Value::Array(blocks) if !blocks.is_empty() => {
                for (index, block) in blocks.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    add(self, block, kind(block, &path)?, &path)?;
                }
                Ok(())
            }
            _ => {
                let message = format!("{path} must be a string or a list of content blocks");
                Err(ApiError::field(path, message))
            }
        }
    }

    fn add_user_block(&mut self, block: &Value, kind: &str, path: &str) -> Result<(), ApiError> {
        match kind {
            "text" => self.add_text_block("user", block, path),
            "tool_result" => self.add_tool_result(block, path),
            _ => Err(unsupported(kind, path)),
        }
    }

    fn add_assistant_block(
        &mut self,
        block: &Value,
        kind: &str,
        path: &str,
    ) -> Result<(), ApiError> {
        match kind {
            "text" => self.add_text_block("assistant", block, path),
            "thinking" => {
                let ThinkingBlock { thinking, signature, rest } = read(block, path)?;
                note_rest(&rest, path, self.ignored);
                // Thoughts are taken as they come; whose they are can't be checked.
                if signature.is_some_and(|signature| !signature.is_empty()) {
                    self.ignored.add(format!("{path}.signature"));
                }
                append(&mut self.turn("assistant").thoughts, &thinking);
                Ok(())
            }
            // Only who made it can read it.
            "redacted_thinking" => {
                self.ignored.add(path.to_owned());
                self.turn("assistant");
                Ok(())
            }
            "tool_use" => self.add_tool_use(block, path),
            _ => Err(unsupported(kind, path)),
        }
    }

    fn add_system_block(&mut self, block: &Value, kind: &str, path: &str) -> Result<(), ApiError> {
        match kind {
            "text" => self.add_text_block("system", block, path),
            _ => Err(unsupported(kind, path)),
        }
    }

    fn add_text_block(
        &mut self,
        role: &'static str,
        block: &Value,
        path: &str,
    ) -> Result<(), ApiError> {
        let TextBlock { text, rest } = read(block, path)?;
        note_rest(&rest, path, self.ignored);
        append(&mut self.turn(role).text, &text);
        Ok(())
    }

    fn add_tool_use(&mut self, block: &Value, path: &str) -> Result<(), ApiError> {
        let ToolUseBlock { id, name, input, rest } = read(block, path)?;
        note_rest(&rest, path, self.ignored);
        self.calls.insert(id.clone(), name.clone());
        let arguments = Some(Value::Object(input));
        let function = MessageFunctionCall { name: Some(name), arguments };
        let kind = Some("function".to_owned());
        let call = MessageToolCall { id: Some(id), kind, function: Some(function) };
        self.turn("assistant").calls.push(call);
        Ok(())
    }

    fn add_tool_result(&mut self, block: &Value, path: &str) -> Result<(), ApiError> {
        let ToolResultBlock { tool_use_id, content, is_error, rest } = read(block, path)?;
        note_rest(&rest, path, self.ignored);
        let Some(name) = self.calls.get(&tool_use_id).cloned() else {
            let param = format!("{path}.tool_use_id");
            let message = format!("{param}: no tool_use before it has the id {tool_use_id:?}");
            return Err(ApiError::field(param, message));
        };
        let mut text = match content {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(content) => self.result_text(&content, &format!("{path}.content"))?,
        };
        if is_error == Some(true) {
            text.insert_str(0, "Error: ");
        }
        let answers = Some((tool_use_id, name));
        self.list.push(Turn { role: "tool", text: Some(text), answers, ..Turn::default() });
        Ok(())
    }

    fn result_text(&mut self, content: &Value, path: &str) -> Result<String, ApiError> {
        let Some(blocks) = content.as_array() else {
            let message = format!("{path} must be a string or a list of text blocks");
            return Err(ApiError::field(path, message));
        };
        let mut text = None;
        for (index, block) in blocks.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match kind(block, &path)? {
                "text" => {
                    let block: TextBlock = read(block, &path)?;
                    note_rest(&block.rest, &path, self.ignored);
                    append(&mut text, &block.text);
                }
                other => return Err(unsupported(other, &path)),
            }
        }
        Ok(text.unwrap_or_default())
    }

    /// The turn that `role` has; a new one if the other side spoke last.
    fn turn(&mut self, role: &'static str) -> &mut Turn {
        if self.list.last().is_none_or(|last| last.role != role) {
            self.list.push(Turn { role, ..Turn::default() });
        }
        self.list.last_mut().expect("there is one with that role")
    }
}

/// Puts `more` on a line of its own behind what is there.
fn append(text: &mut Option<String>, more: &str) {
    match text {
        Some(text) => {
            text.push('\n');
            text.push_str(more);
        }
        None => *text = Some(more.to_owned()),
    }
}

fn kind<'a>(block: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    block.get("type").and_then(Value::as_str).ok_or_else(|| {
        let message = format!("{path} must be an object with a type");
        ApiError::field(path, message)
    })
}

fn unsupported(kind: &str, path: &str) -> ApiError {
    let message = format!("{path}: content blocks of the type {kind:?} are not supported here");
    let param = Some(format!("{path}.type"));
    ApiError::Invalid { message, param, code: Some("unsupported_value") }
}
