//! The calls of gpt-oss, and the headers of its messages:
//! `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`.
//!
//! An answer is a row of messages, each with a header. One with a recipient is a call, wherever in
//! the header the recipient stands; the headers and ends of all others are dropped, so what is left
//! is their text. That is why answers are read without tools as well. The prompt ends behind
//! `<|start|>assistant`, so the first header may begin with the recipient.
//!
//! Source: OpenAI's "Harmony response format" and gpt-oss's chat template.

use super::family::Family;
use super::grammar;
use super::lark::{Lark, TEXT};
use super::markup::{Calls, Frame, Markup, Progress, Reader};
use super::named_json::{Head, NamedJson, is_name, no_id};
use super::rules::CallRules;
use super::shape::{Grammar, JSON_CALL, Shape};

const MESSAGE: &str = "<|message|>";
const RECIPIENT: &str = " to=";

pub(super) const FAMILY: Family = Family {
    name: "harmony",
    detect: |template| {
        ["<|start|>", "<|channel|>", MESSAGE].iter().all(|mark| template.contains(mark))
    },
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<|start|>",
        "<|channel|>",
        "<|constrain|>",
        MESSAGE,
        "<|end|>",
        "<|call|>",
        "<|return|>",
    ],
    always: true,
    grammar: Grammar::Own(grammar_of_messages),
};

static SHAPE: Shape = Shape {
    each: "<|channel|>commentary to=functions.",
    before: "",
    middle: " <|constrain|>json<|message|>",
    after: "<|call|>",
    ..JSON_CALL
};

/// One message at most is a call, since it ends the answer. Reasoning is messages before it,
/// and so is text.
fn grammar_of_messages(markers: &'static [&'static str], rules: &CallRules) -> String {
    let single = CallRules {
        functions: rules.functions,
        required: rules.required,
        preamble: rules.preamble,
        parallel: false,
        answer: rules.answer.clone(),
        reasoning: None,
        token_id: rules.token_id,
    };
    let mut lark = Lark::new(markers, &single);
    let call = format!("{} {}", lark.literal(SHAPE.each), grammar::calls(&mut lark, &SHAPE));
    let next = lark.text_until("<|end|><|start|>assistant");
    let mut before = Vec::new();
    if rules.reasoning.is_some() {
        before.push(format!("{} {next}", lark.literal("<|channel|>analysis<|message|>")));
    }
    if rules.preamble || !(rules.required || rules.answer.is_some()) {
        before.push(format!("{} {next}", lark.literal("<|channel|>commentary<|message|>")));
    }
    let before =
        if before.is_empty() { String::new() } else { format!("({})*", before.join(" | ")) };
    let inside = rules.reasoning.as_ref().is_some_and(|reasoning| reasoning.starts_inside);
    let first = if inside { next.as_str() } else { "" };
    let answer = rules.answer.as_deref().unwrap_or(TEXT);
    let last = format!("{} {answer}", lark.literal("<|channel|>final<|message|>"));
    let last = if rules.required { call } else { format!("({call} | {last})") };
    lark.finish(&format!("{first} {before} {last}"))
}

static FRAME: Frame = Frame {
    openers: &["<|start|>", "<|channel|>"],
    bare: &[' '],
    closers: &[],
    dropped: &["<|end|>", "<|call|>", "<|return|>"],
    reader: |opener, _| {
        let json = NamedJson::new(&HEAD, true);
        Box::new(Header { bare: opener.is_empty(), head: String::new(), json })
    },
};

static HEAD: Head =
    Head { lead: "", name: |head| recipient(head.trim_end().strip_suffix(MESSAGE)?), id: no_id };

/// The recipient in a header, but for the namespace of functions.
fn recipient(header: &str) -> Option<&str> {
    let (_, rest) = header.split_once("to=").filter(|(before, _)| {
        before.is_empty() || before.ends_with(|c: char| c.is_whitespace() || c == '>')
    })?;
    let end = rest.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(rest.len());
    let name = rest[..end].strip_prefix("functions.").unwrap_or(&rest[..end]);
    is_name(name).then_some(name)
}

/// Reads a header, and the arguments behind it where it has a recipient.
#[derive(Debug)]
struct Header {
    /// Whether the header begins the answer, so it is one only with a recipient in front.
    bare: bool,
    /// What was read up to the end of the header.
    head: String,
    json: NamedJson,
}

impl Reader for Header {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        if !self.head.ends_with(MESSAGE) {
            self.head.push(c);
            let head = self.head.as_str();
            if self.bare && !head.starts_with(RECIPIENT) && !RECIPIENT.starts_with(head) {
                return Progress::Broken;
            }
            if head.strip_suffix(MESSAGE).is_some_and(|header| recipient(header).is_none()) {
                calls.commit();
                return Progress::Done;
            }
        }
        self.json.feed(c, calls)
    }

    fn in_markup(&self) -> bool {
        self.json.in_markup()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn the_recipient_stands_anywhere_in_the_header() {
        for header in [
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>",
            " to=functions.f<|channel|>commentary<|constrain|>json<|message|>",
            "<|channel|>analysis to=f code<|message|>",
        ] {
            check("harmony", &format!("{header}{{\"a\": 1}}<|call|>"), "", &[("f", "{\"a\": 1}")]);
        }
    }

    #[test]
    fn headers_are_dropped_and_texts_kept() {
        let call = "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>";
        let text = format!("<|channel|>commentary<|message|>I look.<|end|>{call}");
        check("harmony", &text, "I look.", &[("f", "{}")]);
        check("harmony", "<|channel|>final<|message|> Hi to=you<|return|>", " Hi to=you", &[]);
        check("harmony", "Hi, no header", "Hi, no header", &[]);
        check("harmony", " tomorrow", " tomorrow", &[]);
        let code = "<|channel|>commentary to=python<|message|>print(1)";
        check("harmony", &format!("{code}<|call|>"), &format!("{code}<|call|>"), &[]);
    }
}
