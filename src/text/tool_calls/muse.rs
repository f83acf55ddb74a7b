//! The calls of Muse: a message to a function, ` to=NAME<|message|>`, whose text is `<atem:function_calls>`, in it
//! `<atem:invoke name="NAME">` with `<atem:parameter name="KEY">VALUE</atem:parameter>`, and the closing tags.
//!
//! The headers of messages are dropped; the ends are the reader's of reasoning.
//! Source: the model's chat template.

use super::family::Family;
use super::grammar;
use super::lark::{Lark, TEXT};
use super::markup::{Calls, Frame, Markup, Progress, Reader};
use super::named_json::is_name;
use super::rules::{CallRules, FunctionRule};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "muse",
    detect: |template| template.contains("<atem:function_calls>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|start|>", MESSAGE, "<|eom|>", "<|eot|>"],
    always: false,
    grammar: Grammar::Own(grammar_of_messages),
};

const MESSAGE: &str = "<|message|>";
const NEXT: &str = "<|start|>assistant to=";

static SHAPE: Shape = Shape {
    each: "<atem:function_calls>\n<atem:invoke name=\"",
    before: "",
    middle: "\">",
    arguments: Arguments::Tags(&TAGS),
    after: "\n</atem:function_calls>",
    between: "",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &[NEXT, "<atem:function_calls>", TAGS.lead],
    bare: &[' '],
    closers: &["</atem:function_calls>"],
    dropped: &["<|eom|>", "<|eot|>"],
    reader: |opener, functions| match opener {
        "" | NEXT => Box::new(Header { seen: opener.replace("<|start|>assistant", "") }),
        _ => Box::new(Tagged::new(&TAGS, functions, opener == TAGS.lead)),
    },
};

static TAGS: Tags = Tags {
    lead: "<atem:invoke name=\"",
    key_open: "<atem:parameter name=\"",
    value_close: "</atem:parameter>",
    close: "</atem:invoke>",
    ..PLAIN
};

/// Reads the rest of a message's header: the name of the recipient.
#[derive(Debug)]
struct Header {
    seen: String,
}

impl Reader for Header {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        self.seen.push(c);
        let Some(rest) = self.seen.strip_prefix(" to=") else {
            let fits = " to=".starts_with(self.seen.as_str());
            return if fits { Progress::Inside } else { Progress::Broken };
        };
        if let Some(name) = rest.strip_suffix(MESSAGE) {
            if !is_name(name) {
                return Progress::Broken;
            }
            calls.commit();
            return Progress::Done;
        }
        let name = rest.split('<').next().unwrap_or_default();
        let fits = (name.is_empty() || is_name(name)) && MESSAGE.starts_with(&rest[name.len()..]);
        if fits { Progress::Inside } else { Progress::Broken }
    }

    fn in_markup(&self) -> bool {
        false
    }
}

/// Each call is a message of its own, and so is text before it.
fn grammar_of_messages(markers: &'static [&'static str], rules: &CallRules) -> String {
    let mut lark = Lark::new(markers, rules);
    let calls: Vec<String> =
        rules.functions.iter().map(|function| message(&mut lark, function)).collect();
    let call = lark.rule(&calls.join(" | "));
    // Behind reasoning the header begins a message, else the prompt has begun it.
    let begin = format!("({})?", lark.literal("<|start|>assistant"));
    let next = lark.literal("<|eom|><|start|>assistant");
    let more = if rules.parallel { format!("({next} {call})*") } else { String::new() };
    let text = lark.literal(" to=user<|message|>");
    let before = format!("({text} {})?", lark.text_until("<|eom|><|start|>assistant"));
    let answer = rules.answer.as_deref().unwrap_or(TEXT);
    let answers = match (rules.required, rules.preamble) {
        (true, false) => format!("{call} {more}"),
        (true, true) => format!("{before} {call} {more}"),
        _ if rules.answer.is_some() => format!("({text} {answer} | {call} {more})"),
        _ => format!("({text} {answer} | {before} {call} {more})"),
    };
    lark.finish(&format!("{begin} {answers}"))
}

/// The message that calls a function.
fn message(lark: &mut Lark, function: &FunctionRule) -> String {
    let header = lark.literal(&format!(" to={}{MESSAGE}{}", function.name, SHAPE.each));
    let call = grammar::call(lark, &SHAPE, function);
    lark.rule(&format!("{header} {call}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    const CALL: &str = "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"a\">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls>";

    #[test]
    fn calls_are_messages_to_functions() {
        let found = [("f", "{\"a\": 1}"), ("f", "{\"a\": 1}")];
        let next = format!("<|start|>assistant to=f<|message|>{CALL}");
        check("muse", &format!(" to=f<|message|>{CALL}<|eom|>{next}<|eot|>"), "", &found);
        check("muse", &format!(" to=user<|message|>I look.<|eom|>{next}"), "I look.", &found[..1]);
        check("muse", CALL, "", &found[..1]);
    }

    #[test]
    fn what_is_no_message_is_text() {
        check_text("muse", " to be or not to=be");
        check_text("muse", " to=be <|message|>");
        check_text("muse", "No header to=f<|message|>");
        check_text("muse", &CALL.replace("invoke", "call"));
    }
}
