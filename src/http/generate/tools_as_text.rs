//! Tools for chat templates that know none: told in the system's message, with calls and results as
//! texts of the conversation, in the markup of the Hermes models, which most models follow.
//!
//! Source of the markup: Teknium et al., "Hermes 2 Pro", 2024.

use serde_json::Value;

use super::chat_request::{Message, Part, Role, ToolCall};

/// Whose markup it is.
pub(crate) const FAMILY: &str = "hermes";

/// The conversation without calls, results and tools, but with texts of them.
pub(crate) fn told(mut messages: Vec<Message>, definitions: &[Value]) -> Vec<Message> {
    for message in &mut messages {
        for part in &mut message.parts {
            if let Part::ToolCall(call) = part {
                *part = Part::Text(called(call));
            }
        }
        if message.role == Role::Tool {
            message.role = Role::User;
            message.answers = None;
            let parts = std::mem::take(&mut message.parts);
            message.parts.push(Part::Text("<tool_response>".to_owned()));
            message.parts.extend(parts);
            message.parts.push(Part::Text("</tool_response>".to_owned()));
        }
    }
    if definitions.is_empty() {
        return messages;
    }
    let part = Part::Text(instructions(definitions));
    if let Some(system) = messages.first_mut().filter(|first| first.role == Role::System) {
        system.parts.push(part);
    } else {
        let system = Message { role: Role::System, parts: vec![part], name: None, answers: None };
        messages.insert(0, system);
    }
    messages
}

fn called(call: &ToolCall) -> String {
    let (name, arguments) = (Value::from(call.name.as_str()), &call.arguments);
    format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
}

fn instructions(definitions: &[Value]) -> String {
    let list: Vec<String> = definitions.iter().map(Value::to_string).collect();
    format!(
        "You can call these functions:\n<tools>\n{}\n</tools>\nTo call one, answer with its name \
         and arguments as JSON between tags, and nothing after them:\n<tool_call>\n{{\"name\": \
         \"the name\", \"arguments\": {{\"argument\": \"value\"}}}}\n</tool_call>\nWhat it gives \
         comes between <tool_response> and </tool_response>.",
        list.join("\n")
    )
}
