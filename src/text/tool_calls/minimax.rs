//! The calls of MiniMax M2: within `<minimax:tool_call>` and `</minimax:tool_call>` one
//! `<invoke name="NAME">` for each call, in it `<parameter name="KEY">VALUE</parameter>`, then `</invoke>`.
//!
//! Source: the model's chat template.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "minimax_m2",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<minimax:tool_call>", "</minimax:tool_call>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<minimax:tool_call>",
    each: "\n<invoke name=\"",
    before: "",
    middle: "\">",
    arguments: Arguments::Tags(&TAGS),
    after: "",
    between: "",
    close: "\n</minimax:tool_call>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<minimax:tool_call>", "<invoke name=\""],
    bare: &[],
    closers: &["</minimax:tool_call>"],
    dropped: &[],
    reader: |opener, functions| Box::new(Tagged::new(&TAGS, functions, opener == TAGS.lead)),
};

static TAGS: Tags = Tags {
    lead: "<invoke name=\"",
    key_open: "<parameter name=\"",
    value_close: "</parameter>",
    close: "</invoke>",
    ..PLAIN
};

fn is_family_of(template: &str) -> bool {
    template.contains("<minimax:tool_call>")
}
