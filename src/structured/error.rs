//! Why a grammar can't be had, or can't go on.

use std::time::Duration;

/// What went wrong, in words for whoever wrote the grammar. Cheap to clone: requests that wait for
/// the same compilation share its outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A keyword of JSON Schema that can't be enforced as written.
    #[error("`{keyword}` at {} can't be enforced: {reason}", place(.pointer))]
    Unsupported {
        /// The keyword of the schema.
        keyword: String,
        /// JSON pointer of the schema that holds it; empty for the root.
        pointer: String,
        /// What is missing, or what to write instead.
        reason: String,
    },
    /// The value is no JSON Schema.
    #[error("malformed schema at {}: {reason}", place(.pointer))]
    MalformedSchema {
        /// JSON pointer of the offending schema; empty for the root.
        pointer: String,
        /// What is wrong with the schema.
        reason: String,
    },
    /// A schema that no value satisfies.
    #[error("no value can satisfy the schema: {0}")]
    Unsatisfiable(String),
    /// A regular expression, grammar or tag that doesn't parse.
    #[error("invalid {notation}: {reason}")]
    Syntax {
        /// `regex`, `Lark grammar`, `GBNF grammar`, `choice` or `structural tag`.
        notation: &'static str,
        /// Where and why the text can't be read.
        reason: String,
    },
    /// The specification is larger than a bound.
    #[error("{what}: {actual} is above the limit of {limit}")]
    TooLarge {
        /// What has a bound.
        what: &'static str,
        /// How many there are, at least.
        actual: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The automaton outgrew a bound, at compile time or while a text was made.
    #[error("the grammar is too complex: {0}")]
    TooComplex(String),
    /// Compiling takes longer than a request may wait.
    #[error("the grammar was not compiled within {} ms", .0.as_millis())]
    TooSlow(Duration),
    /// As many grammars are being compiled as may be at once.
    #[error("{0} grammars are being compiled, no more are at once; try again")]
    Busy(usize),
    /// The token doesn't continue any text of the grammar.
    #[error("token {0} is not allowed by the grammar here")]
    Rejected(u32),
    /// The engine behind this room failed: a defect, not the caller's fault.
    #[error("the grammar engine failed: {0}")]
    Internal(String),
}

impl GrammarError {
    pub(super) fn unsupported(keyword: &str, pointer: &str, reason: impl Into<String>) -> Self {
        let (keyword, pointer) = (keyword.to_owned(), pointer.to_owned());
        Self::Unsupported { keyword, pointer, reason: reason.into() }
    }

    pub(super) fn malformed(pointer: &str, reason: impl Into<String>) -> Self {
        Self::MalformedSchema { pointer: pointer.to_owned(), reason: reason.into() }
    }

    pub(super) fn syntax(notation: &'static str, reason: impl Into<String>) -> Self {
        Self::Syntax { notation, reason: reason.into() }
    }
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the root" } else { pointer }
}

/// The first line of `text`, shortened.
pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}
