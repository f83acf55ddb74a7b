//! The calls of Seed-OSS: within `<seed:tool_call>` and `</seed:tool_call>` a `<function=NAME>`, in it
//! `<parameter=KEY>VALUE</parameter>`, then `</function>`.
//!
//! Source: the model's chat template.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "seed_oss",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<seed:tool_call>", "</seed:tool_call>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    each: "<seed:tool_call>",
    before: "\n<function=",
    middle: ">",
    arguments: Arguments::Tags(&TAGS),
    after: "\n</seed:tool_call>",
    between: "\n",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<seed:tool_call>"],
    bare: &[],
    closers: &["</seed:tool_call>"],
    dropped: &[],
    reader: |_, functions| Box::new(Tagged::new(&TAGS, functions, false)),
};

static TAGS: Tags = Tags {
    lead: "<function=",
    name_end: ">",
    key_open: "<parameter=",
    key_end: ">",
    value_close: "</parameter>",
    close: "</function>",
    ..PLAIN
};

fn is_family_of(template: &str) -> bool {
    template.contains("<seed:tool_call>")
}
