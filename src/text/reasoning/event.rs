//! What a parser of reasoning is and what it gives. Refuses to know formats.

use std::fmt::Debug;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasoningEvent {
    /// Reasoning.
    Reasoning(String),
    /// Everything else.
    Content(String),
}

/// Reads the answer of one request.
pub trait ReasoningParser: Send + Debug {
    /// Appends a piece of text and gives what became certain.
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent>;

    /// Ends the text and gives what was held back. Nothing may be pushed afterwards.
    fn finish(&mut self) -> Vec<ReasoningEvent>;
}
