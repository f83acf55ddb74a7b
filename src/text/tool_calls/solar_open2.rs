//! The calls of Solar Open 2: `<|tool_call:start|>NAME`, in it
//! `<|tool_arg:start|>KEY<|tool_arg:value|>VALUE<|tool_arg:end|>` on lines of their own, then `<|tool_call:end|>`.
//!
//! Source: the description of the format in the servers that know it.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Grammar, Shape, tagged_call};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "solar_open2",
    detect: |template| template.contains("<|tool_arg:start|>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<|tool_call:start|>",
        "<|tool_arg:start|>",
        "<|tool_arg:value|>",
        "<|tool_arg:end|>",
        "<|tool_call:end|>",
    ],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = tagged_call("<|tool_call:start|>", &TAGS);

static FRAME: Frame = Frame {
    openers: &["<|tool_call:start|>"],
    bare: &[],
    closers: &[],
    dropped: &[],
    reader: |_, functions| Box::new(Tagged::new(&TAGS, functions, true)),
};

static TAGS: Tags = Tags {
    lead: "<|tool_call:start|>",
    name_end: "",
    key_open: "<|tool_arg:start|>",
    key_end: "<|tool_arg:value|>",
    value_close: "<|tool_arg:end|>",
    close: "<|tool_call:end|>",
    ..PLAIN
};
