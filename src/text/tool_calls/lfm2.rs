//! The calls of LFM2: a list of Python calls between `<|tool_call_start|>` and `<|tool_call_end|>`.
//!
//! Source: the models' chat templates.

use super::family::Family;
use super::literal_grammar::PYTHON;
use super::markup::{Frame, Markup};
use super::python_calls::PythonCalls;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "lfm2",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|tool_call_start|>", "<|tool_call_end|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<|tool_call_start|>",
    begin: "[",
    before: "",
    middle: "(",
    arguments: Arguments::Literals(&PYTHON),
    after: ")",
    close: "]<|tool_call_end|>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|tool_call_start|>"],
    bare: &[],
    closers: &["<|tool_call_end|>"],
    dropped: &[],
    reader: |_, _| Box::<PythonCalls>::default(),
};

fn is_family_of(template: &str) -> bool {
    // Some templates show the model its tools only, and what it writes is the same.
    let has = |text: &str| template.contains(text);
    let lists = has("<|tool_list_start|>") || has("List of tools: [");
    has("<|tool_call_start|>") || (lists && !has("<tool_call>"))
}
