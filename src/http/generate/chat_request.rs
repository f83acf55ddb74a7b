//! A chat, whatever the protocol it was asked for in.
//!
//! Every protocol makes one of its own fields, each with a full literal, so that a field that is
//! added here can't be forgotten by one of them. Nothing here is checked against the model yet.

use serde_json::{Map, Value, json};

use super::field_names::FieldNames;
use super::images::source::ImageSource;
use super::options::GenerationOptions;
use super::sounds::source::AudioSource;
use crate::pictures::processor::Detail;
use crate::structured::spec::GrammarSpec;

/// What a chat asks for.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) conversation: Conversation,
    pub(crate) reasoning: ReasoningOptions,
    pub(crate) options: GenerationOptions,
    pub(crate) streams: bool,
}

/// What shapes the prompt of a chat.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// At least one.
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Tools,
    pub(crate) template: TemplateOptions,
    pub(crate) names: &'static FieldNames,
}

/// What one side says.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) parts: Vec<Part>,
    /// Who says it, where several have the same role; of a tool's result, the tool.
    pub(crate) name: Option<String>,
    /// The id of the tool call that this is the result of.
    pub(crate) answers: Option<String>,
}

/// Which side a message is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Developer,
    System,
    User,
    Assistant,
    Tool,
    /// One that only the model's template knows.
    Other(String),
}

impl Role {
    /// As templates know it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Developer => "developer",
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(name) => name,
        }
    }

    /// The role of this name.
    pub(crate) fn named(name: &str) -> Self {
        let known = [Self::Developer, Self::System, Self::User, Self::Assistant, Self::Tool];
        let known = known.into_iter().find(|role| role.name() == name);
        known.unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Image(Image),
    Audio(Audio),
    /// What the model thought before it spoke.
    Reasoning {
        text: String,
        keys: ReasoningKeys,
    },
    ToolCall(ToolCall),
}

/// A picture in a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Image {
    /// The part of the request that it is in.
    pub(crate) path: String,
    /// What the protocol calls the type of that part.
    pub(crate) kind: &'static str,
    pub(crate) source: ImageSource,
    pub(crate) detail: Detail,
}

/// A sound in a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Audio {
    /// The part of the request that it is in.
    pub(crate) path: String,
    /// What the protocol calls the type of that part.
    pub(crate) kind: &'static str,
    pub(crate) source: AudioSource,
}

/// The text that stands for a part of a tool's result that the model can't read. A refusal would end
/// the conversation, as clients send the whole of it again.
pub(crate) fn omitted(kind: &str) -> String {
    format!("[{kind} omitted: the model reads text only]")
}

/// A call that the model made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// An object, or the text that should have been one.
    pub(crate) arguments: Value,
}

/// The arguments in a text as an object; the text itself if it holds none.
pub(crate) fn parsed_arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(&text) {
        Ok(object @ Value::Object(_)) => object,
        _ => Value::String(text),
    }
}

/// Under which names a template is told the reasoning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningKeys {
    /// `reasoning`
    Reasoning,
    /// `reasoning_content`
    ReasoningContent,
    /// Both, for templates look for either.
    Both,
}

impl ReasoningKeys {
    /// The names.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Reasoning => &["reasoning"],
            Self::ReasoningContent => &["reasoning_content"],
            Self::Both => &["reasoning_content", "reasoning"],
        }
    }
}

/// The tools of a chat, and which of them may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    pub(crate) list: Vec<Tool>,
    /// `None` if the request doesn't say.
    pub(crate) choice: Option<ToolChoice>,
    /// At most one call.
    pub(crate) single_call: bool,
}

/// A tool that the client runs.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) function: Function,
    /// As templates show it: `{"type": "function", "function": {...}}`.
    pub(crate) definition: Value,
    /// Whether the model is told of it in the conversation and not before it: what was computed up
    /// to there stays in the cache.
    pub(crate) deferred: bool,
    /// Whether it can't be called any more, though the model was told of it.
    pub(crate) removed: bool,
}

/// What is called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The JSON schema of its arguments, or null.
    pub(crate) parameters: Value,
    /// Whether arguments have to follow the schema.
    pub(crate) strict: bool,
    /// What its one argument has to follow, where that is a text of a grammar.
    pub(crate) text: Option<TextArgument>,
}

/// The argument of a function that takes a text of a grammar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextArgument {
    pub(crate) name: &'static str,
    pub(crate) grammar: GrammarSpec,
    /// The field of the grammar.
    pub(crate) param: String,
}

/// Which tools the answer may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// None of them.
    Off,
    /// Any or none, as the model likes.
    Auto,
    /// At least one call.
    Required,
    /// One of these; whether there has to be a call.
    Allowed(Vec<String>, bool),
    /// One call of this one, and nothing else.
    Named(String),
}

/// What goes to the chat template beside messages and tools.
#[derive(Clone, Debug)]
pub(crate) struct TemplateOptions {
    /// A template of the request's own.
    pub(crate) source: Option<String>,
    /// Variables of the request's own, which overrule the others.
    pub(crate) variables: Map<String, Value>,
    pub(crate) documents: Option<Vec<Value>>,
    /// How much reasoning the model is asked for, by the template's name for it.
    pub(crate) effort: Option<String>,
    /// Whether the model is asked to reason.
    pub(crate) thinking: Option<bool>,
    pub(crate) add_generation_prompt: bool,
    /// Whether the answer goes on with the last message.
    pub(crate) continue_final_message: bool,
    pub(crate) add_special_tokens: bool,
}

/// What a chat says about the reasoning in its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReasoningOptions {
    /// Whether it is told apart from the answer.
    pub(crate) separate: bool,
    /// Whether the answer leaves it out.
    pub(crate) hidden: bool,
    /// Most tokens of it.
    pub(crate) budget: Option<usize>,
}
