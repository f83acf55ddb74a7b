//! The calls of LongCat: between `<longcat_tool_call>` and `</longcat_tool_call>` a JSON object
//! `{"name": ..., "arguments": {...}}`, or in later models `NAME`, then for every argument
//! `<longcat_arg_key>KEY</longcat_arg_key>` and `<longcat_arg_value>VALUE</longcat_arg_value>`.
//!
//! Source: the models' chat templates.

use super::event::Functions;
use super::family::Family;
use super::grammar::grammar;
use super::json_call::NAME_AND_ARGUMENTS;
use super::json_calls::{JsonCalls, List};
use super::markup::{Calls, Frame, Markup, Progress, Reader};
use super::rules::CallRules;
use super::shape::{Grammar, JSON_CALL, Shape, tagged_call};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "longcat",
    detect: |template| template.contains("<longcat_tool_call>"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<longcat_tool_call>",
        "</longcat_tool_call>",
        "<longcat_arg_key>",
        "</longcat_arg_key>",
        "<longcat_arg_value>",
        "</longcat_arg_value>",
    ],
    always: false,
    grammar: Grammar::Own(grammar_by_vocabulary),
};

/// Newer vocabularies have tokens for arguments.
fn grammar_by_vocabulary(markers: &'static [&'static str], rules: &CallRules) -> String {
    let tagged = (rules.token_id)("<longcat_arg_key>").is_some();
    grammar(if tagged { &TAGGED_SHAPE } else { &JSON_SHAPE }, markers, rules)
}

static JSON_SHAPE: Shape = Shape {
    each: "<longcat_tool_call>",
    before: "\n{\"name\": \"",
    after: "}\n</longcat_tool_call>",
    between: "\n",
    ..JSON_CALL
};

static TAGGED_SHAPE: Shape = tagged_call("<longcat_tool_call>", &TAGS);

static FRAME: Frame = Frame {
    openers: &["<longcat_tool_call>"],
    bare: &[],
    closers: &["</longcat_tool_call>"],
    dropped: &[],
    reader: |_, functions| Box::new(Either { functions: functions.clone(), reader: None }),
};

static TAGS: Tags = Tags {
    lead: "<longcat_tool_call>",
    name_end: "",
    key_open: "<longcat_arg_key>",
    key_end: "</longcat_arg_key>",
    value_open: "<longcat_arg_value>",
    value_close: "</longcat_arg_value>",
    close: "</longcat_tool_call>",
    ..PLAIN
};

/// One of the two ways; the first character tells which.
#[derive(Debug)]
struct Either {
    functions: Functions,
    reader: Option<Box<dyn Reader>>,
}

impl Reader for Either {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        if self.reader.is_none() && c.is_whitespace() {
            return Progress::Inside;
        }
        let functions = &self.functions;
        let reader = self.reader.get_or_insert_with(|| match c {
            '{' => Box::new(JsonCalls::new(&NAME_AND_ARGUMENTS, List::Never)),
            _ => Box::new(Tagged::new(&TAGS, functions, true)),
        });
        reader.feed(c, calls)
    }

    fn in_markup(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.in_markup())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn both_ways_of_writing_are_read() {
        let found = [("f", "{\"a\": 1}")];
        let json = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
        let tags =
            "f\n<longcat_arg_key>a</longcat_arg_key>\n<longcat_arg_value>1</longcat_arg_value>\n";
        for call in [json, tags] {
            let text = format!("Hm.\n<longcat_tool_call>\n{call}</longcat_tool_call>\n");
            check("longcat", &text, "Hm.", &found);
        }
        check_text("longcat", "<longcat_tool_call>f g</longcat_tool_call>");
    }
}
