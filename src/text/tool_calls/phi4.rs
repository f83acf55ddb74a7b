//! The calls of Phi-4-mini: `functools[{"name": ..., "arguments": {...}}]`, or the list between
//! `<|tool_call|>` and `<|/tool_call|>`.
//!
//! Sources: the model's chat template (tools between `<|tool|>` and `<|/tool|>`), its special tokens, and
//! vLLM's template, which asks for `functools`.

use super::family::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "phi4_mini",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|tool_call|>", "<|/tool_call|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape =
    Shape { open: "functools", begin: "[", before: "{\"name\": \"", close: "]", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["functools", "<|tool_call|>"],
    bare: &[],
    closers: &["<|/tool_call|>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Maybe)),
};

fn is_family_of(template: &str) -> bool {
    template.contains("<|/tool|>") || template.contains("functools")
}
