//! The calls of Llama 3.1 and later as JSON: `{"name": ..., "parameters": {...}}`, several with `;`
//! between them, perhaps behind `<|python_tag|>`.
//!
//! Without the tag only an answer that begins with a call is read, and only keys that a call has keep it
//! a call: other answers in JSON are text. Sources: Meta's prompt format for custom tools and the
//! models' chat templates.

use super::family::Family;
use super::json_call::ONLY_NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "llama3_json",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|python_tag|>"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape =
    Shape { middle: "\", \"parameters\": ", between: "; ", bare: &['{'], ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["<|python_tag|>"],
    bare: &['{'],
    closers: &[";"],
    dropped: &[],
    reader: |_, _| Box::new(JsonCalls::new(&ONLY_NAME_AND_ARGUMENTS, List::Maybe)),
};

fn is_family_of(template: &str) -> bool {
    let has = |text: &str| template.contains(text);
    let format = has("\"parameters\": ") && has("{\"name\": ");
    format && (has("<|python_tag|>") || has("<|eom_id|>") || has("<|start_header_id|>"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn calls_stand_behind_the_tag_or_at_the_beginning() {
        let call = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
        let two = [("f", "{\"a\": 1}"), ("f", "{\"a\": 1}")];
        check("llama3_json", call, "", &two[..1]);
        check("llama3_json", &format!(" \n{call}; {call}"), "", &two);
        check("llama3_json", &format!("<|python_tag|>{call};{call}"), "", &two);
        check("llama3_json", &format!("I look.<|python_tag|>{call}"), "I look.", &two[..1]);
        check("llama3_json", &format!("{{\"type\": \"function\", {}", &call[1..]), "", &two[..1]);
        check_text("llama3_json", &format!("Such as {call}"));
    }

    #[test]
    fn other_answers_in_json_are_text_at_once() {
        check_text("llama3_json", "{\"answer\": 42, \"name\": \"f\", \"parameters\": {}}");
        check_text("llama3_json", "{\"name\": \"Ada\", \"age\": 36}");
        check_text("llama3_json", "{}");
        check_text("llama3_json", "<|python_tag|>print(1)");
        let mut parser = (super::FAMILY.parser)(&super::super::Functions::default());
        assert_eq!(parser.push("{\"answer\"").len(), 1);
    }
}
