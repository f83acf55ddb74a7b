//! The calls of GLM 4.5 and later, Ling 3 and Laguna: `<tool_call>NAME`, then for every argument
//! `<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`, then `</tool_call>`; line ends may stand between.
//!
//! Source: the models' chat templates.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Grammar, Shape, tagged_call};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "glm",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = tagged_call("<tool_call>", &TAGS);

static FRAME: Frame = Frame {
    openers: &["<tool_call>"],
    bare: &[],
    closers: &[],
    dropped: &[],
    reader: |_, functions| Box::new(Tagged::new(&TAGS, functions, true)),
};

static TAGS: Tags = Tags {
    lead: "<tool_call>",
    name_end: "",
    key_open: "<arg_key>",
    key_end: "</arg_key>",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
    close: "</tool_call>",
    ..PLAIN
};

fn is_family_of(template: &str) -> bool {
    template.contains("<arg_key>")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn line_ends_may_stand_anywhere_between_tags() {
        let calls = [("f", "{\"a\": 1, \"b\": \"x\\ny\"}")];
        let text = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key><arg_value>x\ny</arg_value>\n</tool_call>";
        check("glm", text, "", &calls);
        check("glm", &text.replacen("f\n", "f", 1), "", &calls);
        check("glm", "<tool_call>f</tool_call>", "", &[("f", "{}")]);
        check("glm", "<tool_call>f\n</tool_call>", "", &[("f", "{}")]);
    }

    #[test]
    fn what_is_malformed_is_content() {
        for text in [
            "<tool_call>a b</tool_call>",
            "<tool_call>f\n<b>",
            "<tool_call>f",
            "<tool_call></tool_call>",
        ] {
            check_text("glm", text);
        }
        let cut = "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>";
        check("glm", cut, "", &[("f", "{\"a\": 1")]);
    }
}
