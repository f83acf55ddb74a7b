//! A list of calls between tags of its own: `<tool_calls>[{"name": ..., "arguments": {...}}]</tool_calls>`
//! (Apriel, Jamba), or `<TOOLCALL>[...]</TOOLCALL>` (Nemotron Nano).
//!
//! Sources: the chat templates of Apriel 1.6, Jamba 1.5 and Nemotron Nano 2.

use super::family::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "tool_list",
    detect: |template| template.contains("<tool_calls>["),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<tool_calls>", "</tool_calls>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

pub(super) const FAMILY_NEMOTRON: Family = Family {
    name: "nemotron",
    detect: |template| template.contains("<TOOLCALL>["),
    parser: |functions| Markup::boxed(&FRAME_NEMOTRON, functions),
    markers: &["<TOOLCALL>", "</TOOLCALL>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE_NEMOTRON),
};

static SHAPE: Shape =
    Shape { open: "<tool_calls>", begin: "[", close: "]</tool_calls>", ..JSON_CALL };

static SHAPE_NEMOTRON: Shape =
    Shape { open: "<TOOLCALL>", begin: "[", close: "]</TOOLCALL>", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["<tool_calls>"],
    bare: &[],
    closers: &["</tool_calls>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Maybe)),
};

static FRAME_NEMOTRON: Frame = Frame {
    openers: &["<TOOLCALL>"],
    bare: &[],
    closers: &["</TOOLCALL>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Maybe)),
};
