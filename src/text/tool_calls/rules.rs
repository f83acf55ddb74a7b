//! What the calls of an answer have to be like, as a request asks for it. Refuses to know formats.

use serde_json::Value;

/// A function that may be called.
#[derive(Debug, Clone)]
pub struct FunctionRule {
    /// The function's name.
    pub name: String,
    /// The JSON schema of the function's parameters, or null where any object will do.
    pub schema: Value,
    /// The one argument of a function that takes a text of a grammar.
    pub text: Option<TextArgument>,
}

/// An argument that is a text of a grammar.
#[derive(Debug, Clone)]
pub struct TextArgument {
    /// The argument's name.
    pub name: String,
    /// The text as a part of a rule in Lark.
    pub plain: String,
    /// What stands between the quotes of a JSON string of the text, as a part of a rule in Lark.
    pub quoted: String,
}

/// Reasoning that may stand before everything else.
#[derive(Debug, Clone)]
pub struct ReasoningRule {
    /// The text that opens reasoning.
    pub open: String,
    /// The text that closes reasoning.
    pub close: String,
    /// Whether the answer begins within reasoning.
    pub starts_inside: bool,
}

/// What an answer's calls have to be like.
pub struct CallRules<'a> {
    /// The functions that may be called.
    pub functions: &'a [FunctionRule],
    /// Whether there has to be a call. If not, text may stand before calls, or instead of them.
    pub required: bool,
    /// Whether text may stand before calls that are required.
    pub preamble: bool,
    /// Whether there may be more than one call.
    pub parallel: bool,
    /// What an answer without calls has to be, as a part of a rule; any text where there is none.
    pub answer: Option<String>,
    /// Reasoning before text and calls, where the model reasons.
    pub reasoning: Option<ReasoningRule>,
    /// The id of a text that is one special token of the vocabulary: no other token can be a part of
    /// that text, and plain text never becomes this token.
    pub token_id: &'a dyn Fn(&str) -> Option<u32>,
}
