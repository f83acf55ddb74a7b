//! The calls of Olmo 3: between `<function_calls>` and `</function_calls>` a line of Python for each call,
//! `f(a=1, b="x")`.
//!
//! Source: the model's chat template.

use super::family::Family;
use super::literal_grammar::PYTHON;
use super::markup::{Frame, Markup};
use super::python_calls::PythonCalls;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "olmo3",
    detect: |template| template.contains("<function_calls>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<function_calls>", CLOSE],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

const CLOSE: &str = "</function_calls>";

static SHAPE: Shape = Shape {
    open: "<function_calls>",
    begin: "\n",
    before: "",
    middle: "(",
    arguments: Arguments::Literals(&PYTHON),
    after: ")",
    between: "\n",
    close: "\n</function_calls>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<function_calls>"],
    bare: &[],
    closers: &[],
    dropped: &[],
    reader: |_, _| Box::new(PythonCalls::lines(CLOSE)),
};

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn every_line_is_a_call() {
        let two = [("f", "{\"a\": \"x\"}"), ("g.h", "{}")];
        let text = "Hm.\n<function_calls>f(a=\"x\")\ng.h()</function_calls>\n";
        check("olmo3", text, "Hm.", &two);
        check("olmo3", "<function_calls>\nf(a='x')\n\ng.h()\n</function_calls> So.", " So.", &two);
        check("olmo3", "<function_calls>f(a='x')", "", &two[..1]);
        check(
            "olmo3",
            "<function_calls>f(a='x') no</function_calls>",
            " no</function_calls>",
            &two[..1],
        );
        check_text("olmo3", "<function_calls></function_calls>");
        check_text("olmo3", "<function_calls>f g()</function_calls>");
    }
}
