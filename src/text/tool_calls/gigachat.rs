//! The calls of GigaChat 3: `<|function_call|>{"name": ..., "arguments": {...}}`.
//!
//! Source: the models' chat template.

use super::family::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "gigachat",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|function_call|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape { each: "<|function_call|>", between: "", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["<|function_call|>"],
    bare: &[],
    closers: &[],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Never)),
};

fn is_family_of(template: &str) -> bool {
    template.contains("<|function_call|>")
}
