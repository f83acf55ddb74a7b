//! The calls of Functionary 3.1 and of Llama 3.1's custom format: `<function=NAME>{...}</function>`.
//!
//! Source: Functionary's chat template.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::named_json::{Head, NamedJson, is_name, no_id};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "functionary",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    each: "<function=",
    before: "",
    middle: ">",
    after: "</function>",
    between: "",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<function="],
    bare: &[],
    closers: &["</function>"],
    dropped: &[],
    reader: |_, _| Box::new(NamedJson::new(&HEAD, true)),
};

static HEAD: Head = Head { lead: "", name, id: no_id };

fn is_family_of(template: &str) -> bool {
    let other = ["<tool_call>", "<parameter=", "<seed:tool_call>"];
    template.contains("</function>") && !other.into_iter().any(|text| template.contains(text))
}

fn name(head: &str) -> Option<&str> {
    Some(head.trim().strip_suffix('>')?.trim()).filter(|name| is_name(name))
}
