//! The calls of Hermes and Qwen models: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
//!
//! Source: the chat templates of Hermes 2 Pro, Qwen2.5, QwQ and Granite 4.

use super::family::Family;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "hermes",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<tool_call>", "</tool_call>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    each: "<tool_call>",
    before: "\n{\"name\": \"",
    after: "}\n</tool_call>",
    between: "\n",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<tool_call>"],
    bare: &[],
    closers: &["</tool_call>"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Never)),
};

fn is_family_of(template: &str) -> bool {
    // Others put XML, or a list of calls, between the same tags.
    let has = |text: &str| template.contains(text);
    let names = has("\"name\"") || has("\\\"name\\\"");
    let other = ["<function=", "<arg_key>", "<parameter", "list of json objects", "<use_mcp_tool>"];
    has("<tool_call>") && names && !other.into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};
    use super::super::{Functions, ToolEvent};
    use super::*;

    #[test]
    fn calls_are_read_with_the_text_around_them() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n";
        check("hermes", text, "Let me see.", &[("f", "{\"a\": [1, \"}\"]}"), ("g", "{}")]);
        check_text("hermes", "no call < here\n");
        check_text("hermes", "  \n");
    }

    #[test]
    fn arguments_are_handed_out_as_they_are_written() {
        let mut parser = (FAMILY.parser)(&Functions::default());
        assert_eq!(parser.push("<tool_call>{\"name\": \"f\", \"argum"), []);
        let events = parser.push("ents\": {\"a\": 1");
        let begin = ToolEvent::CallBegin { index: 0, name: "f".to_owned(), id: None };
        let piece = |text: &str| ToolEvent::Arguments { index: 0, arguments: text.to_owned() };
        assert_eq!(events, [begin, piece("{\"a\": 1")]);
        assert_eq!(parser.push("2}}</tool"), [piece("2}")]);
        assert_eq!(parser.push("_call>"), []);
        assert_eq!(parser.finish(), []);
    }

    #[test]
    fn members_may_come_in_any_order_and_shape() {
        for (call, arguments) in [
            ("{\"arguments\": {\"a\": 1}, \"name\": \"f\"}", "{\"a\": 1}"),
            ("{\"name\": \"f\"}", "{}"),
            ("{\"name\": \"f\", \"arguments\": null}", "{}"),
            ("{\"name\": \"f\", \"arguments\": \"\"}", "{}"),
            ("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}", "{\"a\": 1}"),
            ("{\"id\": 1, \"name\": \"f\", \"parameters\": {}, \"x\": 2}", "{}"),
            (
                "{\"name\": \"f\", \"arguments\": {\"name\": \"g\", \"arguments\": 1}}",
                "{\"name\": \"g\", \"arguments\": 1}",
            ),
            ("{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}", "{\"a\": \"x\\u000ay\"}"),
        ] {
            let text = format!("<tool_call>{call}</tool_call>");
            check("hermes", &text, "", &[("f", arguments)]);
        }
    }

    #[test]
    fn what_is_malformed_is_content() {
        for text in [
            "a\n<tool_call>\nnot json\n</tool_call> b",
            "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
            "<tool_call>{\"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": \"1\"}</tool_call>",
            "<tool_call>[]</tool_call>",
            "<tool_call>{\"name\": \"f\"",
            "<tool_call",
        ] {
            check_text("hermes", text);
        }
        let text = "<tool_call>x<tool_call>{\"name\": \"f\"}</tool_call>";
        check("hermes", text, "<tool_call>x", &[("f", "{}")]);
    }

    #[test]
    fn a_call_that_breaks_off_keeps_what_was_valid() {
        let begun = "<tool_call>{\"name\": \"f\", \"arguments\": ";
        let check = |rest: &str, content: &str, arguments: &str| {
            check("hermes", &format!("{begun}{rest}"), content, &[("f", arguments)]);
        };
        check("{\"a\": 1", "", "{\"a\": 1");
        check("{\"a\": oops}}", "oops}}", "{\"a\": ");
        check("{}} and more", " and more", "{}");
        check("{}}\n</tool_", "", "{}");
    }
}
