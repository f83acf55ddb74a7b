//! A list of calls between tags of its own: `<tool_calls>[{"name": ..., "arguments": {...}}]</tool_calls>`
//! (Apriel, Jamba) or `<TOOLCALL>[...]</TOOLCALL>` (Nemotron Nano).
//!
//! Sources: the chat templates of Apriel 1.6, Jamba 1.5 and Nemotron Nano 2.

use super::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};

pub(super) const FAMILY: Family = Family {
    name: "tool_list",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<tool_calls>", "</tool_calls>", "<TOOLCALL>", "</TOOLCALL>"],
    always: false,
};

static FRAME: Frame = Frame {
    openers: &["<tool_calls>", "<TOOLCALL>"],
    bare: &[],
    closers: &["</tool_calls>", "</TOOLCALL>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Maybe)),
};

fn is_family_of(template: &str) -> bool {
    ["<tool_calls>[", "<TOOLCALL>["].iter().any(|open| template.contains(open))
}
