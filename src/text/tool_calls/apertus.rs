//! The calls of Apertus: `<|tools_prefix|>[{"name": {...}}]<|tools_suffix|>`, where the only key of an
//! object is the function's name.
//!
//! Source: the models' chat template.

use super::family::Family;
use super::json_call::Keys;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "apertus",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|tools_prefix|>", "<|tools_suffix|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<|tools_prefix|>",
    begin: "[",
    before: "{\"",
    middle: "\": ",
    close: "]<|tools_suffix|>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|tools_prefix|>"],
    bare: &[],
    closers: &["<|tools_suffix|>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&KEYS, List::Always)),
};

fn is_family_of(template: &str) -> bool {
    template.contains("<|tools_prefix|>")
}

static KEYS: Keys = Keys::NameIsKey;
