//! The calls of InternLM 2 and 3: `<|action_start|><|plugin|>{"name": ..., "parameters": {...}}<|action_end|>`.
//!
//! Source: the models' chat template, as vLLM keeps it.

use super::family::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "internlm",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|action_start|>", "<|plugin|>", "<|action_end|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    each: "<|action_start|><|plugin|>",
    before: "\n{\"name\": \"",
    middle: "\", \"parameters\": ",
    after: "}<|action_end|>",
    between: "",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|action_start|><|plugin|>"],
    bare: &[],
    closers: &["<|action_end|>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Never)),
};

fn is_family_of(template: &str) -> bool {
    template.contains("<|action_start|><|plugin|>")
}
