//! Calls without any markup: the whole answer is one call, or a list of calls, in JSON.
//!
//! Only an answer that begins so is read, and only keys that a call has keep it a call: other answers in
//! JSON are text. Sources: the templates of xLAM and others that ask for such an answer.

use super::family::Family;
use super::json_call::ONLY_NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "generic",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape =
    Shape { begin: "[", before: "{\"name\": \"", close: "]", bare: &['[', '{'], ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &[],
    bare: &['{', '['],
    closers: &[";", ","],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&ONLY_NAME_AND_ARGUMENTS, List::Maybe)),
};

fn is_family_of(template: &str) -> bool {
    // The template writes calls of earlier answers, and nothing stands around them.
    let has = |text: &str| template.contains(text);
    let writes_calls = has("tool_calls") && (has("{\"name\": \"") || has("{\\\"name\\\": "));
    writes_calls && (has("\"arguments\"") || has("\"parameters\": "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn one_call_or_a_list_is_the_whole_answer() {
        let call = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
        let two = [("f", "{\"a\": 1}"), ("f", "{\"a\": 1}")];
        check("generic", call, "", &two[..1]);
        check("generic", &format!("[{call},\n {call}]\n"), "", &two);
        for text in ["[]", "[1, 2]", "{\"a\": 1}", "[{\"name\": \"Ada\", \"age\": 36}]", "See [1]."]
        {
            check_text("generic", text);
        }
    }
}
