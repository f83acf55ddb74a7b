//! The calls of Kimi K2: `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`,
//! all of them between `<|tool_calls_section_begin|>` and `<|tool_calls_section_end|>`.
//!
//! Source: Moonshot's tool call guidance for Kimi K2 and the models' chat templates.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::named_json::{Head, NamedJson, is_id, is_name};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "kimi_k2",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<|tool_calls_section_begin|>",
    each: "<|tool_call_begin|>",
    before: "functions.",
    middle: ":\u{0}<|tool_call_argument_begin|>",
    after: "<|tool_call_end|>",
    between: "",
    close: "<|tool_calls_section_end|>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    bare: &[],
    closers: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
    dropped: &[],
    reader: |opener, _| Box::new(NamedJson::new(&HEAD, opener == HEAD.lead)),
};

static HEAD: Head = Head { lead: "<|tool_call_begin|>", name, id };

/// All that stands in the head is the call's id, and the template renders it as it is.
fn id(head: &str) -> Option<&str> {
    let id = head.trim().strip_suffix("<|tool_call_argument_begin|>")?.trim();
    let numbered = id.rsplit_once(':').is_some_and(|(_, number)| !number.is_empty());
    Some(id).filter(|id| numbered && is_id(id))
}

fn is_family_of(template: &str) -> bool {
    template.contains("<|tool_calls_section_begin|>")
        || template.contains("tool_declare<|im_middle|>")
}

/// The name in `functions.NAME:0`, the call's id; the words around the name may be missing.
fn name(head: &str) -> Option<&str> {
    let id = head.trim().strip_suffix("<|tool_call_argument_begin|>")?.trim();
    let id = id.strip_prefix("functions.").unwrap_or(id);
    let number =
        id.rsplit_once(':').filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()));
    Some(number.map_or(id, |(name, _)| name)).filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::name;

    #[test]
    fn the_name_is_in_the_id() {
        let head = |id: &str| format!("{id} <|tool_call_argument_begin|>");
        assert_eq!(name(&head("functions.get.it:12")), Some("get.it"));
        assert_eq!(name(&head("f:0")), Some("f"));
        assert_eq!(name(&head("f")), Some("f"));
        assert_eq!(name("functions.f:0"), None);
        let call = "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|>";
        check("kimi_k2", &format!("a {call} b"), "a b", &[("f", "{}")]);
    }
}
