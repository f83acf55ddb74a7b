//! The calls of Granite 3 models: `<|tool_call|>[{"name": ..., "arguments": {...}}]`, or the same list
//! behind `<tool_call>`; and of Granite 20B function calling: `<function_call> {...}`, one by one.
//! Granite 4 writes as Hermes does.
//!
//! Sources: the chat templates of Granite 3.1 to 3.3 ("respond only with <|tool_call|> followed by a
//! JSON list of tools used") and vLLM's template for Granite 20B.

use super::family::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "granite",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|tool_call|>", "<tool_call>", "</tool_call>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape =
    Shape { open: "<|tool_call|>", begin: "[", before: "{\"name\": \"", close: "]", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["<|tool_call|>", "<tool_call>", "<function_call>"],
    bare: &[],
    closers: &["</tool_call>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Maybe)),
};

fn is_family_of(template: &str) -> bool {
    let has = |text: &str| template.contains(text);
    let list = has("<|tool_call|>") && !has("<|/tool_call|>") && !has("<|tool_calls|>");
    let plain_list = has("<tool_call>") && has("list of json objects");
    list || plain_list || has("<function_call>")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn a_list_or_one_call_stands_behind_each_tag() {
        let call = "{\"name\": \"f\", \"arguments\": {}}";
        let two = [("f", "{}"), ("f", "{}")];
        check("granite", &format!("<|tool_call|>[{call}, {call}]"), "", &two);
        check("granite", &format!("<tool_call>\n[{call}]\n</tool_call>"), "", &two[..1]);
        check("granite", &format!("<function_call> {call}\n<function_call> {call}"), "", &two);
        check_text("granite", "<|tool_call|>[]");
        check("granite", &format!("<|tool_call|>[{call}, {{"), ", {", &two[..1]);
    }
}
