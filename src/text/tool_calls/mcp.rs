//! The calls of MiroThinker: `<use_mcp_tool>`, in it `<server_name>`, `<tool_name>NAME</tool_name>` and
//! `<arguments>` with a JSON object.
//!
//! Source: the model's chat template. The server's name is the template's invention and is dropped.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::named_json::{Head, NamedJson, is_name, no_id};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "mcp",
    detect: |template| template.contains("</use_mcp_tool>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<use_mcp_tool>",
    each: "\n<server_name>",
    before: "\u{1}</server_name>\n<tool_name>",
    middle: "</tool_name>\n<arguments>\n",
    after: "\n</arguments>",
    between: "",
    close: "\n</use_mcp_tool>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<use_mcp_tool>", "<server_name>"],
    bare: &[],
    closers: &["</arguments>", "</use_mcp_tool>"],
    dropped: &[],
    reader: |opener, _| Box::new(NamedJson::new(&HEAD, opener == HEAD.lead)),
};

static HEAD: Head = Head { lead: "<server_name>", name, id: no_id };

fn name(head: &str) -> Option<&str> {
    let (_, rest) = head.trim().strip_suffix("<arguments>")?.split_once("</server_name>")?;
    let name = rest.trim().strip_prefix("<tool_name>")?.strip_suffix("</tool_name>")?.trim();
    Some(name).filter(|name| is_name(name))
}
