//! The calls of Llama 3.2, Llama 4 and ToolACE as Python: `[f(a=1, b="x"), g()]` at the beginning of the
//! answer, perhaps between `<|python_start|>` and `<|python_end|>`.
//!
//! Sources: Meta's prompt formats for Llama 3.2 and 4 and the models' chat templates.

use super::family::Family;
use super::literal_grammar::PYTHON;
use super::markup::{Frame, Markup};
use super::python_calls::PythonCalls;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "pythonic",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|python_start|>", "<|python_end|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    begin: "[",
    before: "",
    middle: "(",
    arguments: Arguments::Literals(&PYTHON),
    after: ")",
    close: "]",
    bare: &['['],
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<|python_start|>"],
    bare: &['['],
    closers: &["<|python_end|>"],
    dropped: &[],
    reader: |_, _| Box::<PythonCalls>::default(),
};

fn is_family_of(template: &str) -> bool {
    ["[func_name1(", "[func_name(", "[func1("].iter().any(|shown| template.contains(shown))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn python_calls_are_read() {
        let calls = [("f", "{\"a\": 1, \"b\": \"x)\"}"), ("g.h", "{}")];
        check("pythonic", "[f(a=1, b=\"x)\"), g.h()]", "", &calls);
        check("pythonic", " [ f( a = 1 , b = 'x)' , ) , g.h( ) , ] ", "", &calls);
        check("pythonic", "<|python_start|>[f(a=1, b='x)'), g.h()]<|python_end|>", "", &calls);
        let quotes = "[f(a='it's), [5', b=\"x\"), g.h()]";
        check("pythonic", quotes, "", &[("f", "{\"a\": \"it's), [5\", \"b\": \"x\"}"), calls[1]]);
        check("pythonic", "[f(a=[1, {'b': None}])]", "", &[("f", "{\"a\": [1,{\"b\":null}]}")]);
    }

    #[test]
    fn other_brackets_are_text() {
        for text in
            ["[1, 2]", "[]", "[link](https://example.org)", "[f(1)]", "[f(a=x)]", "See [f(a=1)]"]
        {
            check_text("pythonic", text);
        }
        check("pythonic", "[f(a=1), b]", ", b]", &[("f", "{\"a\": 1}")]);
        check("pythonic", "[f(a=1, b=", "", &[("f", "{\"a\": 1")]);
    }
}
