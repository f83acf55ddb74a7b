//! Items to the messages of a chat: thoughts, text and calls that follow each other are one message
//! of the assistant.

use serde_json::Value;

use crate::http::types::chat::{ChatMessage, MessageFunctionCall, MessageToolCall};
use crate::http::types::responses::{
    FunctionCallItem, FunctionOutput, Item, MessageItem, Part, ReasoningItem, Role,
};

/// The messages of a conversation; `instructions` come before it.
pub(super) fn messages<'a>(
    instructions: Option<&str>,
    items: impl Iterator<Item = &'a Item>,
) -> Vec<ChatMessage> {
    let mut messages = Messages::default();
    if let Some(instructions) = instructions {
        messages.push(message("system", instructions.to_owned()));
    }
    for item in items {
        match item {
            Item::Message(item) => messages.said(item),
            Item::Reasoning(item) => messages.thought(item),
            Item::FunctionCall(item) => messages.called(item),
            Item::FunctionCallOutput(item) => messages.push(ChatMessage {
                tool_call_id: Some(item.call_id.clone()),
                ..message("tool", output(&item.output))
            }),
        }
    }
    messages.end();
    messages.done
}

#[derive(Default)]
struct Messages {
    done: Vec<ChatMessage>,
    /// A message of the assistant that may go on.
    open: Option<ChatMessage>,
}

impl Messages {
    fn push(&mut self, message: ChatMessage) {
        self.end();
        self.done.push(message);
    }

    fn end(&mut self) {
        self.done.extend(self.open.take());
    }

    /// The assistant's message, a new one if there is none or `is_past` this.
    fn assistant(&mut self, is_past: impl Fn(&ChatMessage) -> bool) -> &mut ChatMessage {
        if self.open.as_ref().is_some_and(is_past) {
            self.end();
        }
        self.open.get_or_insert_with(|| ChatMessage {
            role: Some("assistant".to_owned()),
            ..ChatMessage::default()
        })
    }

    fn said(&mut self, item: &MessageItem) {
        let text = joined(&item.content);
        let role = match item.role {
            Role::User => "user",
            Role::System => "system",
            Role::Developer => "developer",
            Role::Assistant => {
                let is_past =
                    |open: &ChatMessage| open.content.is_some() || open.tool_calls.is_some();
                self.assistant(is_past).content = Some(Value::String(text));
                return;
            }
        };
        self.push(message(role, text));
    }

    fn thought(&mut self, item: &ReasoningItem) {
        let parts = if item.content.is_empty() { &item.summary } else { &item.content };
        let text = joined(parts);
        let is_past = |open: &ChatMessage| open.content.is_some() || open.tool_calls.is_some();
        let message = self.assistant(is_past);
        let before = message.reasoning.take().map(|before| before + "\n").unwrap_or_default();
        message.reasoning = Some(before + &text);
        // Templates look for either name.
        message.reasoning_content.clone_from(&message.reasoning);
    }

    fn called(&mut self, item: &FunctionCallItem) {
        let call = MessageToolCall {
            id: Some(item.call_id.clone()),
            kind: Some("function".to_owned()),
            function: Some(MessageFunctionCall {
                name: Some(item.name.clone()),
                arguments: Some(Value::String(item.arguments.clone())),
            }),
        };
        self.assistant(|_| false).tool_calls.get_or_insert_default().push(call);
    }
}

fn message(role: &str, text: String) -> ChatMessage {
    let content = Some(Value::String(text));
    ChatMessage { role: Some(role.to_owned()), content, ..ChatMessage::default() }
}

fn output(output: &FunctionOutput) -> String {
    match output {
        FunctionOutput::Text(text) => text.clone(),
        FunctionOutput::Parts(parts) => joined(parts),
    }
}

/// Parts are lines, as in chat completions.
fn joined(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts.iter().map(Part::text).collect();
    texts.join("\n")
}
