//! The conversation of a Messages request as the messages that all protocols share: content blocks
//! become texts, reasoning, tool calls and tool messages.
//!
//! Turns of one role that follow each other are one turn, as Anthropic has it; a tool's result is
//! a turn of its own. A result marked `is_error` begins with `Error: `, since templates have no
//! other way to tell the model. Knows nothing of templates or of sampling.

use std::collections::HashMap;

use serde_json::Value;

use super::documents::{self, Document};
use super::toolbox::Toolbox;
use crate::http::answer::carried_text;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    Image, Message, Part, ReasoningKeys, Role, ToolCall, omitted,
};
use crate::http::generate::images::source::ImageSource;
use crate::http::request::fields::{FieldReader, required, text_member};
use crate::http::wire::messages::{
    DocumentBlock, ImageBlock, ImageBlockSource, InputMessage, MessagesRequest, RedactedBlock,
    TextBlock, ThinkingBlock, ToolReferenceBlock, ToolResultBlock, ToolUseBlock,
};
use crate::pictures::processor::Detail;

/// How a text of a client's begins that is not for the model.
const BILLING: &str = "x-anthropic-billing-header:";

/// The messages of a request, with `system` before them, and whether the last is to be continued.
/// What they say of tools is done to `tools`. A model that `sees` sees pictures in results of tools too.
pub(super) fn messages(
    request: &MessagesRequest,
    tools: &mut Toolbox,
    sees: bool,
    fields: &mut FieldReader,
) -> Result<(Vec<Message>, bool), ApiError> {
    let messages = request.messages.as_deref().unwrap_or_default();
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages must have at least one message"));
    }
    let mut turns = Turns { list: Vec::new(), calls: HashMap::new(), tools, sees, fields };
    if let Some(system) = &request.system {
        turns.add_content(system, &Role::System, "system")?;
        // An empty text says nothing.
        turns.list.retain(|turn| turn.parts.iter().any(|part| *part != Part::Text(String::new())));
    }
    for (index, message) in messages.iter().enumerate() {
        turns.add(message, &format!("messages[{index}]"))?;
    }
    let last = turns.list.last().filter(|turn| turn.role == Role::Assistant);
    let calls = |turn: &Message| turn.parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    if last.is_some_and(calls) {
        let param = format!("messages[{}].content", messages.len() - 1);
        let message = format!(
            "{param}: the last message can't end with tool_use, which is answered by a \
             tool_result, not continued"
        );
        return Err(ApiError::field(param, message));
    }
    let continues = last.is_some();
    Ok((turns.list, continues))
}

/// What each side says until the other does.
struct Turns<'a> {
    list: Vec<Message>,
    /// The name of the tool behind each call.
    calls: HashMap<String, String>,
    tools: &'a mut Toolbox,
    sees: bool,
    fields: &'a mut FieldReader,
}

impl Turns<'_> {
    fn add(&mut self, message: &InputMessage, path: &str) -> Result<(), ApiError> {
        let role = match message.role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            role => {
                let param = format!("{path}.role");
                let message =
                    format!("{param} must be one of user, assistant, system, got {role:?}");
                return Err(ApiError::field(param, message));
            }
        };
        self.add_content(&message.content, &role, &format!("{path}.content"))
    }

    /// Adds content of any shape, a string being one text block.
    fn add_content(&mut self, content: &Value, role: &Role, path: &str) -> Result<(), ApiError> {
        match content {
            Value::String(text) => {
                self.turn(role).push(Part::Text(text.clone()));
                Ok(())
            }
            Value::Array(blocks) if !blocks.is_empty() => {
                let mut blocks = blocks.iter().enumerate();
                blocks.try_for_each(|(at, block)| {
                    self.add_block(block, role, &format!("{path}[{at}]"))
                })
            }
            _ => {
                let message = format!("{path} must be a string or a list of content blocks");
                Err(ApiError::field(path, message))
            }
        }
    }

    fn add_block(&mut self, block: &Value, role: &Role, path: &str) -> Result<(), ApiError> {
        let part = match (kind(block, path)?, role) {
            ("text", _) => {
                let TextBlock { text } = self.fields.variant(block, path)?;
                // It says who pays, differs each time, and would keep prompts from being found
                // again.
                if *role == Role::System && text.starts_with(BILLING) {
                    self.fields.ignore(path);
                    self.turn(role);
                    return Ok(());
                }
                Part::Text(text)
            }
            ("image", Role::User) => self.image(block, path)?,
            ("document", Role::User) => {
                let parts = self.document(block, path)?;
                self.turn(role).extend(parts);
                return Ok(());
            }
            ("tool_result", Role::User) => return self.add_tool_result(block, path),
            ("thinking", Role::Assistant) => {
                let ThinkingBlock { thinking, signature } = self.fields.variant(block, path)?;
                let signature = signature.filter(|signature| !signature.is_empty());
                let carried = signature.as_deref().and_then(carried_text::carried);
                // Reasoning is taken as it comes; whose it is can't be checked.
                if signature.is_some() && carried.is_none() {
                    self.fields.ignore(format!("{path}.signature"));
                }
                let text = carried.filter(|_| thinking.is_empty()).unwrap_or(thinking);
                Part::Reasoning { text, keys: ReasoningKeys::ReasoningContent }
            }
            ("redacted_thinking", Role::Assistant) => {
                self.fields.variant::<RedactedBlock>(block, path)?;
                self.fields.ignore(path);
                self.turn(role);
                return Ok(());
            }
            ("tool_use", Role::Assistant) => {
                let ToolUseBlock { id, name, input } = self.fields.variant(block, path)?;
                self.calls.insert(id.clone(), name.clone());
                Part::ToolCall(ToolCall { id: Some(id), name, arguments: Value::Object(input) })
            }
            (kind @ ("tool_addition" | "tool_removal"), Role::System) => {
                let adds = kind == "tool_addition";
                let Some(sentence) = self.tools.change(block, adds, path, self.fields)? else {
                    self.turn(role);
                    return Ok(());
                };
                Part::Text(sentence)
            }
            (kind, _) => return Err(unsupported(kind, path)),
        };
        self.turn(role).push(part);
        Ok(())
    }

    fn image(&mut self, block: &Value, path: &str) -> Result<Part, ApiError> {
        let ImageBlock { source } = self.fields.variant(block, path)?;
        let at = format!("{path}.source");
        let source = match kind(&source, &at)? {
            "base64" => {
                let ImageBlockSource { data, .. } = self.fields.variant(&source, &at)?;
                ImageSource::Base64(required(data, &at, "data")?)
            }
            "url" => {
                let ImageBlockSource { url, .. } = self.fields.variant(&source, &at)?;
                ImageSource::Url(required(url, &at, "url")?)
            }
            kind => return Err(unsupported(kind, &at)),
        };
        let (path, detail) = (path.to_owned(), Detail::Full);
        Ok(Part::Image(Image { path, kind: "image", source, detail }))
    }

    /// The parts of a document.
    fn document(&mut self, block: &Value, path: &str) -> Result<Vec<Part>, ApiError> {
        let block: DocumentBlock = self.fields.variant(block, path)?;
        let at = format!("{path}.source");
        let named = kind(&block.source, &at)?.to_owned();
        let source = self.fields.variant(&block.source, &at)?;
        match documents::read(&block, &named, source, &at)? {
            Document::Text(text) => Ok(vec![Part::Text(text)]),
            Document::Blocks([begin, end], blocks) => {
                let mut parts = vec![Part::Text(begin)];
                parts.extend(self.result_parts(&blocks, &format!("{at}.content"))?);
                parts.push(Part::Text(end));
                Ok(parts)
            }
        }
    }

    fn add_tool_result(&mut self, block: &Value, path: &str) -> Result<(), ApiError> {
        let ToolResultBlock { tool_use_id, content, is_error } =
            self.fields.variant(block, path)?;
        let Some(name) = self.calls.get(&tool_use_id).cloned() else {
            let param = format!("{path}.tool_use_id");
            let message = format!("{param}: no tool_use before it has the id {tool_use_id:?}");
            return Err(ApiError::field(param, message));
        };
        let mut parts = match content {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => vec![Part::Text(text)],
            Some(content) => self.result_parts(&content, &format!("{path}.content"))?,
        };
        if is_error == Some(true) {
            match parts.first_mut() {
                Some(Part::Text(text)) => text.insert_str(0, "Error: "),
                _ => parts.insert(0, Part::Text("Error: ".to_owned())),
            }
        }
        let (name, answers) = (Some(name), Some(tool_use_id));
        self.list.push(Message { role: Role::Tool, parts, name, answers });
        Ok(())
    }

    fn result_parts(&mut self, content: &Value, path: &str) -> Result<Vec<Part>, ApiError> {
        let Some(blocks) = content.as_array() else {
            let message = format!("{path} must be a string or a list of text blocks");
            return Err(ApiError::field(path, message));
        };
        let mut parts = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match kind(block, &path)? {
                "text" => {
                    let TextBlock { text } = self.fields.variant(block, &path)?;
                    parts.push(Part::Text(text));
                }
                "image" if self.sees => {
                    let image = self.image(block, &path)?;
                    parts.push(image);
                }
                "document" if is_text(block) => parts.extend(self.document(block, &path)?),
                kind @ ("image" | "document") => {
                    self.fields.ignore(&path);
                    parts.push(Part::Text(omitted(kind)));
                }
                "tool_reference" => {
                    let ToolReferenceBlock { tool_name } = self.fields.variant(block, &path)?;
                    parts.push(Part::Text(self.tools.find(&tool_name)));
                }
                other => return Err(unsupported(other, &path)),
            }
        }
        Ok(parts)
    }

    /// The parts of the turn that `role` has; a new one if the other side spoke last.
    fn turn(&mut self, role: &Role) -> &mut Vec<Part> {
        if self.list.last().is_none_or(|last| last.role != *role) {
            let role = role.clone();
            self.list.push(Message { role, parts: Vec::new(), name: None, answers: None });
        }
        &mut self.list.last_mut().expect("there is one with that role").parts
    }
}

fn kind<'a>(block: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    text_member(block, "type").ok_or_else(|| {
        let message = format!("{path} must be an object with a type");
        ApiError::field(path, message)
    })
}

/// Whether a document holds text and no file.
fn is_text(document: &Value) -> bool {
    matches!(document["source"]["type"].as_str(), Some("text" | "content"))
}

fn unsupported(kind: &str, path: &str) -> ApiError {
    let message = format!("{path}: content blocks of the type {kind:?} are not supported here");
    let param = Some(format!("{path}.type"));
    ApiError::Invalid { message, param, code: Some("unsupported_value") }
}
