//! The calls of Gemma 4, `<|tool_call>call:NAME{key:value,...}<tool_call|>` with texts between `<|"|>` marks,
//! and of FunctionGemma, `<start_function_call>call:NAME{...}<end_function_call>` with `<escape>` marks.
//!
//! Sources: the models' chat templates.

use super::family::Family;
use super::gemma_call::GemmaCall;
use super::literal_grammar::Literals;
use super::markup::{Frame, Markup};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "gemma4",
    detect: |template| template.contains("<tool_call|>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|tool_call>", "<tool_call|>", QUOTE],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

pub(super) const FAMILY_FUNCTION_GEMMA: Family = Family {
    name: "functiongemma",
    detect: |template| template.contains("<start_function_call>"),
    parser: |functions| Markup::boxed(&FRAME_FUNCTION_GEMMA, functions),
    markers: &["<start_function_call>", "<end_function_call>", ESCAPE],
    always: false,
    grammar: Grammar::Shape(&SHAPE_FUNCTION_GEMMA),
};

const QUOTE: &str = "<|\"|>";
const ESCAPE: &str = "<escape>";

static SHAPE: Shape = Shape {
    each: "<|tool_call>",
    before: "call:",
    middle: "{",
    arguments: Arguments::Literals(&LITERALS),
    after: "}<tool_call|>",
    between: "",
    ..JSON_CALL
};

static SHAPE_FUNCTION_GEMMA: Shape = Shape {
    each: "<start_function_call>",
    before: "call:",
    middle: "{",
    arguments: Arguments::Literals(&LITERALS_FUNCTION_GEMMA),
    after: "}<end_function_call>",
    between: "",
    ..JSON_CALL
};

/// The template writes what Jinja makes of nothing; models also write JSON's word.
const GEMMA: Literals = Literals {
    words: [&["true"], &["false"], &["None", "null"]],
    comma: ",",
    argument: ":",
    member: ":",
    quote: QUOTE,
    quotes_keys: false,
    sorted: true,
};

static LITERALS: Literals = GEMMA;

static LITERALS_FUNCTION_GEMMA: Literals = Literals { quote: ESCAPE, ..GEMMA };

static FRAME: Frame = Frame {
    openers: &["<|tool_call>"],
    bare: &[],
    closers: &["<tool_call|>"],
    dropped: &[],
    reader: |_, _| Box::new(GemmaCall::new(QUOTE)),
};

static FRAME_FUNCTION_GEMMA: Frame = Frame {
    openers: &["<start_function_call>"],
    bare: &[],
    closers: &["<end_function_call>"],
    dropped: &[],
    reader: |_, _| Box::new(GemmaCall::new(ESCAPE)),
};

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    fn call(arguments: &str) -> String {
        format!("<|tool_call>call:f{{{arguments}}}<tool_call|>")
    }

    #[test]
    fn values_become_json() {
        for (arguments, json) in [
            ("", "{}"),
            ("a:<|\"|>x \"y\"\n}<|\"|>", "{\"a\": \"x \\\"y\\\"\\n}\"}"),
            ("a:1,b:-2.5e3,c:true,d:null", "{\"a\": 1, \"b\": -2.5e3, \"c\": true, \"d\": null}"),
            ("a:None,b:True,c:False", "{\"a\": null, \"b\": true, \"c\": false}"),
            ("a:[1,<|\"|>]<|\"|>,[]],b:{}", "{\"a\": [1, \"]\", []], \"b\": {}}"),
            ("a:{b:{c:1},d:[{e:2}]}", "{\"a\": {\"b\": {\"c\": 1}, \"d\": [{\"e\": 2}]}}"),
            ("a:{<|\"|>b c<|\"|>:1}", "{\"a\": {\"b c\": 1}}"),
            (" a : 1 , b : [ 2 , 3 ] ", "{\"a\": 1, \"b\": [2, 3]}"),
            ("a:Oslo in May,b:\"x\"", "{\"a\": \"Oslo in May\", \"b\": \"x\"}"),
        ] {
            check("gemma4", &call(arguments), "", &[("f", json)]);
        }
        let text = "<start_function_call>call:f{a:<escape>x<|<escape>}<end_function_call>";
        check("functiongemma", text, "", &[("f", "{\"a\": \"x<|\"}")]);
    }

    #[test]
    fn several_calls_stand_between_texts() {
        let two = format!("I look.\n{}{} So.", call("a:1"), call(""));
        check("gemma4", &two, "I look. So.", &[("f", "{\"a\": 1}"), ("f", "{}")]);
    }

    #[test]
    fn what_is_malformed_is_content() {
        for text in ["<|tool_call>call f{}<tool_call|>", "<|tool_call>call:f g{}", "<|tool_call>f"]
        {
            check_text("gemma4", text);
        }
        check("gemma4", "<|tool_call>call:f{a:1,b:<|\"|>x", "", &[("f", "{\"a\": 1, \"b\": \"x")]);
        check("gemma4", "<|tool_call>call:f{a:]} b", "]} b", &[("f", "{\"a\": ")]);
    }
}
