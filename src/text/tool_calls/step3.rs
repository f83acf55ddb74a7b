//! The calls of Step 3: between `<｜tool_calls_begin｜>` and `<｜tool_calls_end｜>` for each call
//! `<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME">`, in it
//! `<steptml:parameter name="KEY">VALUE</steptml:parameter>`, then `</steptml:invoke><｜tool_call_end｜>`.
//!
//! Source: the descriptions of the format in the servers that know it.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "step3",
    detect: |template| template.contains("<steptml:invoke"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<｜tool_calls_begin｜>",
        "<｜tool_call_begin｜>",
        "<｜tool_sep｜>",
        "<｜tool_call_end｜>",
        "<｜tool_calls_end｜>",
    ],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<｜tool_calls_begin｜>",
    each: "\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
    before: "",
    middle: "\">",
    arguments: Arguments::Tags(&TAGS),
    after: "<｜tool_call_end｜>",
    between: "",
    close: "\n<｜tool_calls_end｜>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<｜tool_calls_begin｜>", TAGS.lead],
    bare: &[],
    closers: &["<｜tool_call_end｜>", "<｜tool_calls_end｜>"],
    dropped: &[],
    reader: |opener, functions| Box::new(Tagged::new(&TAGS, functions, opener == TAGS.lead)),
};

static TAGS: Tags = Tags {
    lead: "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
    key_open: "<steptml:parameter name=\"",
    value_close: "</steptml:parameter>",
    close: "</steptml:invoke>",
    ..PLAIN
};
