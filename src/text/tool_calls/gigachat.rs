//! The calls of GigaChat 3: `<|function_call|>{"name": ..., "arguments": {...}}`, or the object in a message of
//! its own, `function call<|role_sep|>`; and of GigaChat 3.5: within
//! `<｜GCML｜tool_calls>` one `<｜GCML｜invoke name="NAME">` for each call, in it
//! `<｜GCML｜parameter name="KEY" string="true|false">` with a text as it is, or a JSON document.
//!
//! Source: the models' chat template.

use super::family::Family;
use super::grammar::grammar;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Frame, Markup};
use super::rules::CallRules;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Says, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "gigachat",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|function_call|>", "<|role_sep|>", "<|message_sep|>"],
    always: false,
    grammar: Grammar::Own(grammar_by_vocabulary),
};

/// Older vocabularies have no token for calls.
fn grammar_by_vocabulary(markers: &'static [&'static str], rules: &CallRules) -> String {
    let has = |token: &str| (rules.token_id)(token).is_some();
    let as_message = has("<|role_sep|>") && !has("<|function_call|>");
    grammar(if as_message { &MESSAGE_SHAPE } else { &SHAPE }, markers, rules)
}

static MESSAGE_SHAPE: Shape =
    Shape { each: "<|message_sep|>\n\nfunction call<|role_sep|>\n", between: "", ..JSON_CALL };

static SHAPE: Shape = Shape { each: "<|function_call|>", between: "", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["<|function_call|>", "function call<|role_sep|>"],
    bare: &[],
    closers: &[],
    dropped: &["<|message_sep|>"],
    reader: |_, _| Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Never)),
};

fn is_family_of(template: &str) -> bool {
    let message = ["function call", "<|role_sep|>"];
    template.contains("<|function_call|>") || message.iter().all(|mark| template.contains(mark))
}

pub(super) const FAMILY_35: Family = Family {
    name: "gigachat35",
    detect: |template| template.contains("｜GCML｜"),
    parser: |functions| Markup::boxed(&FRAME_35, functions),
    markers: &["｜GCML｜"],
    always: false,
    grammar: Grammar::Shape(&SHAPE_35),
};

static SHAPE_35: Shape = Shape {
    open: "<｜GCML｜tool_calls>",
    each: "\n<｜GCML｜invoke name=\"",
    before: "",
    middle: "\">",
    arguments: Arguments::Tags(&TAGS_35),
    after: "",
    between: "",
    close: "\n</｜GCML｜tool_calls>",
    ..JSON_CALL
};

static FRAME_35: Frame = Frame {
    openers: &["<｜GCML｜tool_calls>", TAGS_35.lead],
    bare: &[],
    closers: &["</｜GCML｜tool_calls>"],
    dropped: &[],
    reader: |opener, functions| Box::new(Tagged::new(&TAGS_35, functions, opener == TAGS_35.lead)),
};

static TAGS_35: Tags = Tags {
    lead: "<｜GCML｜invoke name=\"",
    key_open: "<｜GCML｜parameter name=\"",
    key_end: ">",
    says: Says::IsText,
    value_close: "</｜GCML｜parameter>",
    close: "</｜GCML｜invoke>",
    ..PLAIN
};

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn a_call_may_be_a_message_of_its_own() {
        let call = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
        let text =
            format!("Hm.<|message_sep|>\n\nfunction call<|role_sep|>\n{call}<|message_sep|>\n\n");
        check("gigachat", &text, "Hm.", &[("f", "{\"a\": 1}")]);
        check("gigachat", "A function call is", "A function call is", &[]);
    }
}
