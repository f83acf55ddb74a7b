//! Items to the messages of a chat: reasoning, text and calls that follow each other are one message
//! of the assistant.

use super::tools;
use crate::http::answer::carried_text::carried;
use crate::http::generate::chat_request::{
    Image, Message, Part, ReasoningKeys, Role, ToolCall, parsed_arguments,
};
use crate::http::generate::images::source::{self, ImageSource};
use crate::http::wire::responses::{
    CompactionItem, FunctionCallOutputItem, FunctionOutput, Item, MessageItem, Part as TextPart,
    ReasoningItem, Role as ItemRole,
};

/// What stands before a summary that is all that a model sees of a conversation.
const HEADING: &str = "Summary of the conversation up to here:\n";

/// The messages of a conversation; `instructions` come before it.
pub(crate) fn messages<'a>(
    instructions: Option<&str>,
    items: impl Iterator<Item = &'a Item>,
) -> Vec<Message> {
    let mut messages = Messages::default();
    if let Some(instructions) = instructions {
        let parts = vec![Part::Text(instructions.to_owned())];
        messages.push(Message { role: Role::System, parts, name: None, answers: None });
    }
    for item in items {
        match item {
            Item::Message(item) => messages.add_message(item),
            Item::Reasoning(item) => messages.add_reasoning(item),
            Item::FunctionCall(item) => messages.add_call(ToolCall {
                id: Some(item.call_id.clone()),
                name: tools::joined(item.namespace.as_deref(), &item.name),
                arguments: parsed_arguments(item.arguments.clone()),
            }),
            Item::CustomToolCall(item) => messages.add_call(ToolCall {
                id: Some(item.call_id.clone()),
                name: item.name.clone(),
                arguments: tools::custom_arguments(&item.input),
            }),
            Item::FunctionCallOutput(item) | Item::CustomToolCallOutput(item) => {
                messages.push(result(item));
            }
            Item::Compaction(item) => messages.add_summary(item),
        }
    }
    messages.end();
    messages.done
}

#[derive(Default)]
struct Messages {
    done: Vec<Message>,
    /// A message of the assistant that may go on.
    open: Option<Message>,
}

impl Messages {
    fn push(&mut self, message: Message) {
        self.end();
        self.done.push(message);
    }

    fn end(&mut self) {
        self.done.extend(self.open.take());
    }

    /// The parts of the assistant's message, which is a new one if there is none.
    fn assistant(&mut self) -> &mut Vec<Part> {
        let role = Role::Assistant;
        let new = || Message { role, parts: Vec::new(), name: None, answers: None };
        &mut self.open.get_or_insert_with(new).parts
    }

    /// Ends a message of the assistant that has said or called something: what comes now is of
    /// the next one.
    fn end_if_spoken(&mut self) {
        let speaks = |part: &Part| !matches!(part, Part::Reasoning { .. });
        if self.open.as_ref().is_some_and(|open| open.parts.iter().any(speaks)) {
            self.end();
        }
    }

    fn add_message(&mut self, item: &MessageItem) {
        let role = match item.role {
            ItemRole::User => Role::User,
            ItemRole::System => Role::System,
            ItemRole::Developer => Role::Developer,
            ItemRole::Assistant => {
                self.end_if_spoken();
                self.assistant().push(Part::Text(joined(&item.content)));
                return;
            }
        };
        self.push(Message { role, parts: texts(&item.content), name: None, answers: None });
    }

    fn add_reasoning(&mut self, item: &ReasoningItem) {
        self.end_if_spoken();
        let parts = if item.content.is_empty() { &item.summary } else { &item.content };
        let text = joined(parts);
        self.assistant().push(Part::Reasoning { text, keys: ReasoningKeys::Both });
    }

    /// The model's own words about what went before.
    fn add_summary(&mut self, item: &CompactionItem) {
        self.end();
        let summary = carried(&item.encrypted_content).unwrap_or_default();
        self.assistant().push(Part::Text(format!("{HEADING}{summary}")));
        self.end();
    }

    fn add_call(&mut self, call: ToolCall) {
        self.assistant().push(Part::ToolCall(call));
    }
}

fn result(item: &FunctionCallOutputItem) -> Message {
    let parts = match &item.output {
        FunctionOutput::Text(text) => vec![Part::Text(text.clone())],
        FunctionOutput::Parts(parts) => texts(parts),
    };
    Message { role: Role::Tool, parts, name: None, answers: Some(item.call_id.clone()) }
}

fn texts(parts: &[TextPart]) -> Vec<Part> {
    let part = |part: &TextPart| match part {
        TextPart::InputImage { image_url, detail, .. } => Part::Image(Image {
            path: "input".to_owned(),
            kind: "input_image",
            source: ImageSource::Url(image_url.clone()),
            detail: source::detail(detail.as_deref(), "detail").unwrap_or_default(),
        }),
        text => Part::Text(text.text().to_owned()),
    };
    parts.iter().map(part).collect()
}

/// Parts are lines, as in chat completions.
fn joined(parts: &[TextPart]) -> String {
    let texts: Vec<&str> = parts.iter().map(TextPart::text).collect();
    texts.join("\n")
}
