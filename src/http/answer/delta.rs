//! What the choices of an answer gain, and whole choices made of it.
//!
//! This is the one place where streaming and non-streaming meet: a stream sends the deltas, the
//! other reply folds them. Knows nothing of JSON or of the engine's threads.

use crate::sampling::logprobs::TokenLogprobs;

/// What one of the choices gained.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChoiceDelta {
    /// Which choice.
    pub(crate) index: usize,
    /// What it gained.
    pub(crate) delta: Delta,
}

/// What a choice gained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// More reasoning.
    pub reasoning: String,
    /// More text.
    pub content: String,
    /// Tool calls that began or went on.
    pub tool_calls: Vec<ToolCallDelta>,
    /// Logprobs of the prompt's tokens from the second on, before anything else, if the request
    /// asked for them.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The tokens whose text this is.
    pub tokens: Vec<TokenRecord>,
    /// Present in the last delta.
    pub finish: Option<Finish>,
}

impl Delta {
    /// Whether a client sees anything of it.
    pub(crate) fn tells_anything(&self) -> bool {
        !self.reasoning.is_empty() || !self.content.is_empty() || !self.tool_calls.is_empty()
    }

    /// Appends to the arguments of call `index`.
    pub(super) fn add_arguments(&mut self, index: usize, arguments: String) {
        match self.tool_calls.last_mut() {
            Some(last) if last.index == index && last.name.is_none() => {
                last.arguments.push_str(&arguments);
            }
            _ => self.tool_calls.push(ToolCallDelta { index, name: None, id: None, arguments }),
        }
    }
}

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRecord {
    /// Its id.
    pub id: u32,
    /// If the request asked for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// The beginning of a tool call (with a name) or more of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallDelta {
    /// Which call.
    pub index: usize,
    /// Present at the beginning.
    pub name: Option<String>,
    /// At the beginning, where the model gave the call an id.
    pub id: Option<String>,
    /// A piece of JSON.
    pub arguments: String,
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// As the API says it.
    pub reason: FinishKind,
    /// What ended it, beside an end-of-sequence token.
    pub cause: Option<StopCause>,
}

/// `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishKind {
    /// The model ended it, or a stop token or string did.
    Stop,
    /// There was no more room, or no more time.
    Length,
    /// The model ended it and called tools.
    ToolCalls,
}

/// `stop_reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// A stop string.
    Text(String),
    /// A stop token.
    Token(u32),
    /// The request's deadline.
    Deadline,
}

/// A tool call, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletedToolCall {
    /// The function.
    pub name: String,
    /// What the model itself calls the call, where it does.
    pub id: Option<String>,
    /// A JSON document, unless the model wrote something else or was cut short.
    pub arguments: String,
}

/// A whole answer, made of deltas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompletedChoice {
    /// The reasoning.
    pub reasoning: String,
    /// The text.
    pub content: String,
    /// In the order of their indices.
    pub tool_calls: Vec<CompletedToolCall>,
    /// Logprobs of the prompt's tokens from the second on.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// All sampled tokens.
    pub tokens: Vec<TokenRecord>,
    /// How it ended, once it has.
    pub finish: Option<Finish>,
}

impl CompletedChoice {
    /// Appends a delta.
    pub fn add(&mut self, delta: Delta) {
        self.reasoning.push_str(&delta.reasoning);
        self.content.push_str(&delta.content);
        for call in delta.tool_calls {
            if self.tool_calls.len() <= call.index {
                self.tool_calls.resize_with(call.index + 1, CompletedToolCall::default);
            }
            let whole = &mut self.tool_calls[call.index];
            whole.name.push_str(call.name.as_deref().unwrap_or_default());
            whole.id = call.id.or(whole.id.take());
            whole.arguments.push_str(&call.arguments);
        }
        self.prompt_logprobs.extend(delta.prompt_logprobs);
        self.tokens.extend(delta.tokens);
        self.finish = delta.finish.or(self.finish.take());
    }
}
