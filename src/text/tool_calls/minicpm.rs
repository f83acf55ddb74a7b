//! The calls of MiniCPM 5: `<function name="NAME">`, in it `<param name="KEY">VALUE</param>`, then
//! `</function>`. A text that has characters of markup stands between `<![CDATA[` and `]]>`. And of MiniCPM 3:
//! a fence of Python, a line `f(a=1,b="x")` for each call, between `<|tool_call_start|>` and `<|tool_call_end|>`.
//!
//! Sources: the models' chat templates.

use super::family::Family;
use super::literal_grammar::PYTHON;
use super::markup::{Frame, Markup};
use super::python_calls::PythonCalls;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY_3: Family = Family {
    name: "minicpm3",
    detect: |template| template.contains("<|tool_call_start|>\\n```python"),
    parser: |functions| Markup::boxed(&FRAME_3, functions),
    markers: &["<|tool_call_start|>", "<|tool_call_end|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE_3),
};

static SHAPE_3: Shape = Shape {
    open: "<|tool_call_start|>",
    begin: "\n```python\n",
    before: "",
    middle: "(",
    arguments: Arguments::Literals(&PYTHON),
    after: ")\n",
    between: "",
    close: "```\n<|tool_call_end|>",
    ..JSON_CALL
};

static FRAME_3: Frame = Frame {
    openers: &["<|tool_call_start|>\n```python"],
    bare: &[],
    closers: &["<|tool_call_end|>"],
    dropped: &[],
    reader: |_, _| Box::new(PythonCalls::lines("```")),
};

pub(super) const FAMILY: Family = Family {
    name: "minicpm5",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<function", "</function>", "<param", "</param>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    each: "<function name=\"",
    before: "",
    middle: "\">",
    arguments: Arguments::Tags(&TAGS),
    after: "",
    between: "\n",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<function name=\""],
    bare: &[],
    closers: &[],
    dropped: &[],
    reader: |_, functions| Box::new(Tagged::new(&TAGS, functions, true)),
};

static TAGS: Tags = Tags {
    lead: "<function name=\"",
    key_open: "<param name=\"",
    value_close: "</param>",
    cdata_close: "]]></param>",
    close: "</function>",
    ..PLAIN
};

fn is_family_of(template: &str) -> bool {
    template.contains("<function name=") && template.contains("<param name=")
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn a_fence_of_python_holds_calls() {
        let text = "<|tool_call_start|>\n```python\nf(a=\"x\",b=[1, true])\ng()\n```\n<|tool_call_end|>\nSo.";
        let found = [("f", "{\"a\": \"x\", \"b\": [1,true]}"), ("g", "{}")];
        check("minicpm3", text, "\nSo.", &found);
    }

    #[test]
    fn markup_in_texts_is_no_markup() {
        let call = |value: &str| {
            format!("<function name=\"f\"><param name=\"a\">{value}</param></function>")
        };
        check(
            "minicpm5",
            &call("<![CDATA[<b> & </param>\n]]>"),
            "",
            &[("f", "{\"a\": \"<b> & </param>\\n\"}")],
        );
        check("minicpm5", &call("<![CDATA[1]]>"), "", &[("f", "{\"a\": \"1\"}")]);
        check("minicpm5", &call("<![CD"), "", &[("f", "{\"a\": \"<![CD\"}")]);
        check("minicpm5", &call("['a', True]"), "", &[("f", "{\"a\": [\"a\",true]}")]);
        let two = format!("Look: {}\n{}", call("1"), call(""));
        check("minicpm5", &two, "Look:", &[("f", "{\"a\": 1}"), ("f", "{\"a\": \"\"}")]);
    }
}
