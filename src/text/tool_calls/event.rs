//! What a parser of calls is given and what it gives. Refuses to know formats.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use serde_json::Value;

/// What a [`ToolCallParser`] found in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text for the user, outside of calls.
    Content(String),
    /// A call begins.
    CallBegin {
        /// Number of the call in this answer, from 0.
        index: usize,
        /// The function's name.
        name: String,
        /// What the model itself calls the call, where its format has such a name: the template
        /// renders it again. No two calls of an answer have the same.
        id: Option<String>,
    },
    /// More of a call's arguments; joined, they are a JSON document.
    Arguments {
        /// Number of the call that the arguments belong to.
        index: usize,
        /// A piece of JSON.
        arguments: String,
    },
}

/// Finds the tool calls in the answer to one request.
pub trait ToolCallParser: Send + Debug {
    /// Appends a piece of text and gives what became certain.
    fn push(&mut self, text: &str) -> Vec<ToolEvent>;

    /// Ends the text and gives what was held back. Nothing may be pushed afterwards.
    fn finish(&mut self) -> Vec<ToolEvent>;
}

/// The functions of a request: what is known of a call's arguments. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Functions(Arc<HashMap<String, Value>>);

impl Functions {
    /// Names, each with the JSON schema of its parameters (null where there is none).
    pub fn new(functions: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self(Arc::new(functions.into_iter().collect()))
    }

    /// Whether functions are known, and this one is not among them.
    pub(super) fn lack(&self, name: &str) -> bool {
        !self.0.is_empty() && !self.0.contains_key(name)
    }

    /// The schema of a function's parameters.
    pub(super) fn parameters(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}
