//! The calls of Command R and Command R+: `Action:`, then in a fence of JSON a list
//! `[{"tool_name": ..., "parameters": {...}}]`.
//!
//! Source: the models' chat templates for tool use.

use super::family::Family;
use super::json_call::Keys;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "command_r_plus",
    detect: |template| template.contains("Action:") && template.contains("\"tool_name\""),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "Action:\n```json\n",
    begin: "[\n",
    before: "    {\n        \"tool_name\": \"",
    middle: "\",\n        \"parameters\": ",
    after: "\n    }",
    between: ",\n",
    close: "\n]```",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["Action:\n```json", "Action: ```json", "Action:```json"],
    bare: &[],
    closers: &["```"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&KEYS, List::Maybe)),
};

static KEYS: Keys =
    Keys::Members { names: &["tool_name"], arguments: &["parameters"], others: None };
