//! The calls of Mistral models: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, and since the
//! tokenizer's version 11 `[TOOL_CALLS]NAME[ARGS]{...}` for each call, with `[CALL_ID]ID` behind the
//! name in versions 11 and 12.
//!
//! Sources: the chat templates of Mistral Nemo and Devstral, and mistral-common's tokenizers.

use super::event::Functions;
use super::family::Family;
use super::grammar::grammar;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Calls, Frame, Markup, Progress, Reader};
use super::named_json::{Head, NamedJson, is_id, is_name};
use super::rules::CallRules;
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    detect: |template| template.contains("[TOOL_CALLS]"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
    always: false,
    grammar: Grammar::Own(grammar_by_vocabulary),
};

/// Newer vocabularies have a token that stands before the arguments.
fn grammar_by_vocabulary(markers: &'static [&'static str], rules: &CallRules) -> String {
    let named = (rules.token_id)("[ARGS]").is_some();
    grammar(if named { &NAMED_SHAPE } else { &LIST_SHAPE }, markers, rules)
}

static NAMED_SHAPE: Shape = Shape {
    each: "[TOOL_CALLS]",
    before: "",
    middle: "[ARGS]",
    after: "",
    between: "",
    ..JSON_CALL
};

static LIST_SHAPE: Shape = Shape { open: "[TOOL_CALLS]", begin: "[", close: "]", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &["[TOOL_CALLS]"],
    bare: &[],
    closers: &[],
    dropped: &[],
    reader: |_, _: &Functions| Box::<Either>::default(),
};

static HEAD: Head = Head { lead: "", name, id };

/// The name in `NAME[CALL_ID]ID[ARGS]`; both marks may be missing.
fn name(head: &str) -> Option<&str> {
    let head = head.trim();
    let head = head.strip_suffix("[ARGS]").unwrap_or(head);
    let name = head.split_once("[CALL_ID]").map_or(head, |(name, _)| name).trim();
    is_name(name).then_some(name)
}

fn id(head: &str) -> Option<&str> {
    let (_, id) = head.split_once("[CALL_ID]")?;
    Some(id.trim().trim_end_matches("[ARGS]").trim()).filter(|id| is_id(id))
}

/// One of the two ways; the first character tells which.
#[derive(Debug, Default)]
struct Either(Option<Box<dyn Reader>>);

impl Reader for Either {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        if self.0.is_none() && c.is_whitespace() {
            return Progress::Inside;
        }
        let reader = self.0.get_or_insert_with(|| match c {
            '[' | '{' => Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Maybe)),
            _ => Box::new(NamedJson::new(&HEAD, true)),
        });
        reader.feed(c, calls)
    }

    fn in_markup(&self) -> bool {
        self.0.as_ref().is_some_and(|reader| reader.in_markup())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn both_ways_of_writing_are_read() {
        let two = [("f", "{\"a\": 1}"), ("g", "{}")];
        let list = "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"abc\"}]";
        check("mistral", &format!("Look.[TOOL_CALLS] {list}"), "Look.", &two);
        check("mistral", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}", "", &two);
        check("mistral", "[TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]g {}", "", &two);
    }

    #[test]
    fn what_is_malformed_is_content() {
        for text in
            ["[TOOL_CALLS]", "[TOOL_CALLS][]", "[TOOL_CALLS]no call {", "[TOOL_CALLS]f[ARGS]"]
        {
            check_text("mistral", text);
        }
        check_text("mistral", &format!("[TOOL_CALLS]{}", "x".repeat(500)));
    }
}
