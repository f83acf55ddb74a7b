//! The calls of Kimi K3: between `<|open|>tools<|sep|>` and `<|close|>tools<|sep|>` for each call
//! `<|open|>call tool="NAME" index="1"<|sep|>`, in it
//! `<|open|>argument key="KEY" type="TYPE"<|sep|>VALUE<|close|>argument<|sep|>`, then `<|close|>call<|sep|>`.
//! All arguments may stand as one object in `<|open|>json type="object"<|sep|>` instead.
//!
//! The text of an answer stands in such tags as well, which the reader of reasoning drops.
//! Source: the model's chat template.

use super::family::Family;
use super::grammar;
use super::lark::{Lark, TEXT};
use super::markup::{Frame, Markup};
use super::rules::CallRules;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Says, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "kimi_k3",
    detect: |template| template.contains("<|open|>") && template.contains("'tools'"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["<|open|>", "<|close|>", "<|sep|>"],
    always: false,
    grammar: Grammar::Own(grammar_behind_text),
};

const OPEN: &str = "<|open|>tools<|sep|>";

static SHAPE: Shape = Shape {
    open: OPEN,
    each: "<|open|>call tool=\"",
    before: "",
    middle: "\" index=\"\u{0}\"<|sep|>",
    arguments: Arguments::Tags(&TAGS),
    after: "",
    between: "",
    close: "<|close|>tools<|sep|>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &[OPEN, "<|open|>call tool=\""],
    bare: &[],
    closers: &["<|close|>tools<|sep|>"],
    dropped: &[],
    reader: |opener, functions| Box::new(Tagged::new(&TAGS, functions, opener == TAGS.lead)),
};

static TAGS: Tags = Tags {
    lead: "<|open|>call tool=\"",
    name_end: "<|sep|>",
    key_open: "<|open|>argument key=\"",
    key_end: "<|sep|>",
    says: Says::Type,
    value_close: "<|close|>argument<|sep|>",
    json_open: "<|open|>json type=\"object\"<|sep|>",
    json_close: "<|close|>json<|sep|><|close|>call<|sep|>",
    close: "<|close|>call<|sep|>",
    ..PLAIN
};

/// The text of the answer stands before calls even where it is empty; the prompt may have opened it.
fn grammar_behind_text(markers: &'static [&'static str], rules: &CallRules) -> String {
    let mut lark = Lark::new(markers, rules);
    let calls = format!("{} {}", lark.literal(OPEN), grammar::calls(&mut lark, &SHAPE));
    let open = lark.literal("<|open|>response<|sep|>");
    let close = lark.literal("<|close|>response<|sep|>");
    let empty = format!("({open})? ({close})? {calls}");
    let answer = match &rules.answer {
        _ if rules.required && !rules.preamble => empty,
        Some(answer) => format!("({open})? {answer} ({close})? | {empty}"),
        None => {
            let text = format!("{} {}", lark.text_until(OPEN), grammar::calls(&mut lark, &SHAPE));
            if rules.required { text } else { format!("{TEXT} | {text}") }
        }
    };
    lark.finish(&answer)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    fn call(name: &str, arguments: &str) -> String {
        format!("<|open|>call tool=\"{name}\" index=\"1\"<|sep|>{arguments}<|close|>call<|sep|>")
    }

    fn argument(key: &str, kind: &str, value: &str) -> String {
        let open = format!("<|open|>argument key=\"{key}\" type=\"{kind}\"<|sep|>");
        format!("{open}{value}<|close|>argument<|sep|>")
    }

    #[test]
    fn the_attribute_tells_types() {
        let all = argument("a", "string", "12\n") + &argument("b", "number", "12");
        let found = [("f", "{\"a\": \"12\\n\", \"b\": 12}")];
        check("kimi_k3", &call("f", &all), "", &found);
        let text = format!("Hm.<|open|>tools<|sep|>{}<|close|>tools<|sep|>", call("f", &all));
        check("kimi_k3", &text, "Hm.", &found);
        let quoted = argument("a &quot;b&quot; &amp;c", "array", "[1]");
        check("kimi_k3", &call("f", &quoted), "", &[("f", "{\"a \\\"b\\\" &c\": [1]}")]);
    }

    #[test]
    fn arguments_may_be_one_object() {
        let json =
            |text: &str| format!("<|open|>json type=\"object\"<|sep|>{text}<|close|>json<|sep|>");
        let text = call("f", &json("{\"a\": {\"b\": 1}}")) + &call("g", &json("{}"));
        check("kimi_k3", &text, "", &[("f", "{\"a\": {\"b\": 1}}"), ("g", "{}")]);
        check_text("kimi_k3", &call("f", &json("[1]")));
    }

    #[test]
    fn other_tags_are_text() {
        check_text("kimi_k3", "<|open|>response<|sep|>Hm.<|close|>response<|sep|>");
        check_text("kimi_k3", "<|open|>tools<|sep|><|close|>tools<|sep|>");
        check_text("kimi_k3", &call("f g", ""));
    }
}
