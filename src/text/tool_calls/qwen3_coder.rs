//! The calls of Qwen3-Coder and Qwen3.5: within `<tool_call>` and `</tool_call>` a `<function=NAME>`, in it
//! `<parameter=KEY>` with the value on lines of its own, then `</function>`. The outer tags may be missing.
//!
//! Source: the models' chat templates.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "qwen3_coder",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<tool_call>", "</tool_call>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    each: "<tool_call>",
    before: "\n<function=",
    middle: ">",
    arguments: Arguments::Tags(&TAGS),
    after: "\n</tool_call>",
    between: "\n",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<tool_call>", "<function="],
    bare: &[],
    closers: &["</tool_call>"],
    dropped: &[],
    reader: |opener, functions| Box::new(Tagged::new(&TAGS, functions, opener == TAGS.lead)),
};

static TAGS: Tags = Tags {
    lead: "<function=",
    name_end: ">",
    key_open: "<parameter=",
    key_end: ">",
    value_close: "</parameter>",
    lines: true,
    close: "</function>",
    ..PLAIN
};

fn is_family_of(template: &str) -> bool {
    let seed = template.contains("<seed:tool_call>");
    template.contains("<function=") && template.contains("<parameter=") && !seed
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text, read_both};
    use super::super::{Functions, ToolEvent};

    #[test]
    fn outer_tags_may_be_missing() {
        let call = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>";
        let found = [("f", "{\"a\": 1}")];
        check("qwen3_coder", &format!("<tool_call>\n{call}\n</tool_call>"), "", &found);
        check("qwen3_coder", call, "", &found);
        check("qwen3_coder", &format!("So:\n\n{call}\n</tool_call>\n"), "So:", &found);
        check("qwen3_coder", "<function=f></function>", "", &[("f", "{}")]);
        check_text("qwen3_coder", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>");
    }

    #[test]
    fn texts_are_handed_out_as_they_are_written() {
        let schema = serde_json::json!({"properties": {"a": {"type": "string"}}});
        let functions = Functions::new([("f".to_owned(), schema)]);
        let mut parser = (super::FAMILY.parser)(&functions);
        parser.push("<function=f><parameter=a>\n");
        let piece = |text: &str| ToolEvent::Arguments { index: 0, arguments: text.to_owned() };
        assert_eq!(parser.push("1\n\n</para"), [piece("1\\n")]);
        assert_eq!(parser.push("graph>"), [piece("\\n</paragraph>")]);
        assert_eq!(parser.push("\n</parameter></function>"), [piece("\"}")]);
        let text = "<function=f><parameter=a> 1</parameter></function>";
        let calls = vec![("f".to_owned(), "{\"a\": \" 1\"}".to_owned())];
        assert_eq!(read_both("qwen3_coder", &functions, text), (String::new(), calls));
    }
}
