//! The text of an answer to its parts: reasoning, content and tool calls.
//!
//! Reasoning is split off first, and the rest is read for calls; each model's own markup is
//! known to the parsers in `text`. Knows no tokens and no JSON.

use super::delta::{Delta, ToolCallDelta};
use crate::text::reasoning::{self, ReasoningEvent, ReasoningParser};
use crate::text::tool_calls::{self, Functions, ToolCallParser, ToolEvent};

/// How an answer is to be read.
#[derive(Clone, Debug, Default)]
pub struct ReadingPlan {
    /// The family whose reasoning is split from the rest.
    pub reasoning: Option<&'static str>,
    /// Whether the prompt ends within reasoning.
    pub starts_inside: bool,
    /// Whether reasoning is left out of the answer.
    pub hide_reasoning: bool,
    /// The family whose calls are looked for.
    pub tools: Option<&'static str>,
    /// What may be called.
    pub functions: Functions,
    /// At most one call.
    pub single_call: bool,
}

impl ReadingPlan {
    /// Special tokens that the parsers have to see.
    pub fn markers(&self) -> impl Iterator<Item = &'static str> {
        let reasoning = self.reasoning.map_or(&[][..], reasoning::markers);
        let tools = self.tools.map_or(&[][..], tool_calls::markers);
        reasoning.iter().chain(tools).copied()
    }
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct Reader {
    reasoning: Option<Box<dyn ReasoningParser>>,
    tools: Option<Box<dyn ToolCallParser>>,
    hide_reasoning: bool,
    single_call: bool,
    so_far: SoFar,
}

/// What is known of the text so far.
#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    reasons: bool,
    called_tools: bool,
}

impl Reader {
    pub(super) fn new(plan: &ReadingPlan) -> Self {
        let starts_inside = plan.starts_inside && plan.reasoning.is_some();
        Self {
            reasoning: plan.reasoning.and_then(|name| reasoning::parser(name, starts_inside)),
            tools: plan.tools.and_then(|name| tool_calls::parser(name, &plan.functions)),
            hide_reasoning: plan.hide_reasoning,
            single_call: plan.single_call,
            so_far: SoFar { reasons: starts_inside, called_tools: false },
        }
    }

    /// Whether the text so far ends within reasoning, as far as that is certain.
    pub(super) fn reasons(&self) -> bool {
        self.so_far.reasons
    }

    /// Whether there was a call.
    pub(super) fn called_tools(&self) -> bool {
        self.so_far.called_tools
    }

    /// Appends a piece of text; what became certain goes to `delta`.
    pub(super) fn push(&mut self, text: &str, delta: &mut Delta) {
        match &mut self.reasoning {
            None => self.push_content(text, delta),
            Some(parser) => {
                let events = parser.push(text);
                self.take_reasoning(events, delta);
            }
        }
    }

    /// Ends the text, with what was held back.
    pub(super) fn finish(&mut self, delta: &mut Delta) {
        if let Some(mut parser) = self.reasoning.take() {
            let events = parser.finish();
            self.take_reasoning(events, delta);
        }
        if let Some(mut parser) = self.tools.take() {
            let events = parser.finish();
            self.take_calls(events, delta);
        }
    }

    fn take_reasoning(&mut self, events: Vec<ReasoningEvent>, delta: &mut Delta) {
        for event in events {
            match event {
                ReasoningEvent::Reasoning(text) => {
                    self.so_far.reasons = true;
                    if !self.hide_reasoning {
                        delta.reasoning.push_str(&text);
                    }
                }
                ReasoningEvent::Content(text) => {
                    self.so_far.reasons = false;
                    self.push_content(&text, delta);
                }
            }
        }
    }

    fn push_content(&mut self, text: &str, delta: &mut Delta) {
        match &mut self.tools {
            None => delta.content.push_str(text),
            Some(parser) => {
                let events = parser.push(text);
                self.take_calls(events, delta);
            }
        }
    }

    fn take_calls(&mut self, events: Vec<ToolEvent>, delta: &mut Delta) {
        for event in events {
            match event {
                ToolEvent::Content(text) => delta.content.push_str(&text),
                ToolEvent::CallBegin { index, .. } | ToolEvent::Arguments { index, .. }
                    if self.single_call && index > 0 => {}
                ToolEvent::CallBegin { index, name, id } => {
                    self.so_far.called_tools = true;
                    let (name, arguments) = (Some(name), String::new());
                    let call = ToolCallDelta { index, name, id, arguments };
                    delta.tool_calls.push(call);
                }
                ToolEvent::Arguments { index, arguments } => delta.add_arguments(index, arguments),
            }
        }
    }
}
