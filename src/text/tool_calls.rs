//! Tool calls in what a model writes: one parser per family of models, found by name.
//!
//! A parser turns text into content and calls while it is being written. Whatever the pieces, the
//! events joined are the same, and text that is no call after all comes out as content: nothing is
//! lost. Which family a model belongs to is told by its chat template, which shows the model how
//! calls are written.

mod hermes;
mod json_scanner;

use std::fmt::Debug;

/// What a parser found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text for the user.
    Content(String),
    /// A call begins.
    CallBegin {
        /// Number of the call in this answer, from 0.
        index: usize,
        /// The function's name.
        name: String,
    },
    /// More of a call's arguments; joined, they are a JSON document.
    Arguments {
        /// Number of the call.
        index: usize,
        /// A piece of JSON.
        arguments: String,
    },
}

/// Reads the answer of one request.
pub trait ToolCallParser: Send + Debug {
    /// Appends a piece of text and gives what became certain.
    fn push(&mut self, text: &str) -> Vec<ToolEvent>;

    /// Ends the text and gives what was held back. Nothing may be pushed afterwards.
    fn finish(&mut self) -> Vec<ToolEvent>;
}

/// A family of models that writes calls in the same way.
struct Family {
    name: &'static str,
    /// Whether a chat template is one of the family's.
    detect: fn(&str) -> bool,
    parser: fn() -> Box<dyn ToolCallParser>,
}

const FAMILIES: [Family; 1] = [Family {
    name: "hermes",
    detect: hermes::is_family_of,
    parser: || Box::new(hermes::Hermes::default()),
}];

/// The name of the family that a chat template belongs to.
pub fn detect(template_source: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|family| (family.detect)(template_source)).map(|family| family.name)
}

/// A new parser of the family called `name`.
pub fn parser(name: &str) -> Option<Box<dyn ToolCallParser>> {
    FAMILIES.iter().find(|family| family.name == name).map(|family| (family.parser)())
}

/// The names of all families.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

/// Collects events, joining pieces of the same kind.
#[derive(Debug, Default)]
struct Events {
    events: Vec<ToolEvent>,
}

impl Events {
    fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(ToolEvent::Content(content)) => content.push_str(text),
            _ => self.events.push(ToolEvent::Content(text.to_owned())),
        }
    }

    fn begin(&mut self, index: usize, name: String) {
        self.events.push(ToolEvent::CallBegin { index, name });
    }

    fn arguments(&mut self, index: usize, text: &str) {
        match self.events.last_mut() {
            Some(ToolEvent::Arguments { arguments, .. }) => arguments.push_str(text),
            _ => self.events.push(ToolEvent::Arguments { index, arguments: text.to_owned() }),
        }
    }

    fn take(&mut self) -> Vec<ToolEvent> {
        std::mem::take(&mut self.events)
    }
}
