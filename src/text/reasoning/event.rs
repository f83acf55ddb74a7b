//! What a parser of reasoning is and what it gives. Refuses to know formats.

use std::fmt::Debug;

/// What a [`ReasoningParser`] found in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasoningEvent {
    /// Text of the model's reasoning.
    Reasoning(String),
    /// Text that is no reasoning.
    Content(String),
}

/// Parts the answer to one request into reasoning and content.
pub trait ReasoningParser: Send + Debug {
    /// Appends a piece of text and gives what became certain.
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent>;

    /// Ends the text and gives what was held back. Nothing may be pushed afterwards.
    fn finish(&mut self) -> Vec<ReasoningEvent>;
}
