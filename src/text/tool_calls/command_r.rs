//! The calls of Command R7B and Command A:
//! `<|START_ACTION|>[{"tool_call_id": ..., "tool_name": ..., "parameters": {...}}]<|END_ACTION|>`.
//!
//! Source: the models' chat templates for tool use.

use super::family::Family;
use super::json_call::Keys;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "command_r",
    detect: |template| template.contains("<|START_ACTION|>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|START_ACTION|>", "<|END_ACTION|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<|START_ACTION|>",
    begin: "[\n",
    before: "    {\"tool_call_id\": \"\u{0}\", \"tool_name\": \"",
    middle: "\", \"parameters\": ",
    between: ",\n",
    close: "\n]<|END_ACTION|>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|START_ACTION|>"],
    bare: &[],
    closers: &["<|END_ACTION|>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&KEYS, List::Maybe)),
};

static KEYS: Keys =
    Keys::Members { names: &["tool_name"], arguments: &["parameters"], others: None };
