//! The calls of Solar Open: `<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{...}<|tool_call:end|>`
//! behind `<|tool_calls|>`.
//!
//! Source: the model's chat template. The headers of its messages are not read here.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::named_json::{Head, NamedJson, is_id, is_name};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "solar",
    detect: |template| template.contains("<|tool_call:name|>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<|tool_calls|>",
        "<|tool_call:begin|>",
        "<|tool_call:name|>",
        "<|tool_call:args|>",
        "<|tool_call:end|>",
        "<|calls|>",
    ],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<|tool_calls|>",
    each: "<|tool_call:begin|>",
    before: "\u{1}<|tool_call:name|>",
    middle: "<|tool_call:args|>",
    after: "<|tool_call:end|>",
    between: "",
    close: "<|calls|>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|tool_calls|>", "<|tool_call:begin|>"],
    bare: &[],
    closers: &["<|tool_call:end|>", "<|calls|>"],
    dropped: &[],
    reader: |opener, _| Box::new(NamedJson::new(&HEAD, opener == HEAD.lead)),
};

static HEAD: Head = Head { lead: "<|tool_call:begin|>", name, id };

fn name(head: &str) -> Option<&str> {
    let (_, name) =
        head.trim().strip_suffix("<|tool_call:args|>")?.split_once("<|tool_call:name|>")?;
    Some(name.trim()).filter(|name| is_name(name))
}

fn id(head: &str) -> Option<&str> {
    Some(head.split_once("<|tool_call:name|>")?.0.trim()).filter(|id| is_id(id))
}
