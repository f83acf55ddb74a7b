//! The calls of MiniMax M1: between `<tool_calls>` and `</tool_calls>` for each call a line
//! `{"name": ..., "arguments": {...}}`.
//!
//! Source: the model's chat template.

use super::family::Family;
use super::json_call::{NAME_AND_ARGUMENTS, ONLY_NAME_AND_ARGUMENTS};
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "minimax_m1",
    detect: |template| template.contains("<tool_calls>\\n{"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<tool_calls>", "</tool_calls>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<tool_calls>",
    begin: "\n",
    between: "\n",
    close: "\n</tool_calls>",
    ..JSON_CALL
};

/// Calls but for the first stand without an opening text.
static FRAME: Frame = Frame {
    openers: &["<tool_calls>"],
    bare: &['{'],
    closers: &["</tool_calls>"],
    dropped: &[],
    reader: |opener, _| {
        let bare = opener.is_empty();
        let keys = if bare { &ONLY_NAME_AND_ARGUMENTS } else { &NAME_AND_ARGUMENTS };
        Box::new(JsonCalls::new(keys, List::Maybe))
    },
};
