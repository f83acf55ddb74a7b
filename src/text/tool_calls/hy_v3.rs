//! The calls of Hunyuan 3: between `<tool_calls>` and `</tool_calls>` for each call `<tool_call>NAME<tool_sep>`,
//! in it `<arg_key>KEY</arg_key>` and `<arg_value>VALUE</arg_value>`, then `</tool_call>`. In the open
//! models every tag ends with `:opensource`.
//!
//! Source: the model's chat template.

use super::family::Family;
use super::grammar::grammar;
use super::markup::{Frame, Markup};
use super::rules::CallRules;
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "hy_v3",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[
        "<tool_calls:opensource>",
        "</tool_calls:opensource>",
        "<tool_call:opensource>",
        "</tool_call:opensource>",
        "<tool_sep:opensource>",
        "<arg_key:opensource>",
        "</arg_key:opensource>",
        "<arg_value:opensource>",
        "</arg_value:opensource>",
        "<tool_calls>",
        "</tool_calls>",
        "<tool_call>",
        "</tool_call>",
        "<tool_sep>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ],
    always: false,
    grammar: Grammar::Own(grammar_by_vocabulary),
};

fn is_family_of(template: &str) -> bool {
    // The template may write what its tags end with on its own.
    ["<arg_key{}>", "<arg_key:opensource>"].iter().any(|tag| template.contains(tag))
        || ["<tool_sep>", "<arg_key>"].iter().all(|tag| template.contains(tag))
}

/// The vocabulary tells how its tags end.
fn grammar_by_vocabulary(markers: &'static [&'static str], rules: &CallRules) -> String {
    let plain = (rules.token_id)("<tool_calls>").is_some();
    grammar(if plain { &PLAIN_SHAPE } else { &SHAPE }, markers, rules)
}

static SHAPE: Shape = Shape {
    open: "<tool_calls:opensource>",
    each: "\n<tool_call:opensource>",
    before: "",
    middle: "<tool_sep:opensource>",
    arguments: Arguments::Tags(&TAGS),
    after: "",
    between: "",
    close: "\n</tool_calls:opensource>",
    ..JSON_CALL
};

static PLAIN_SHAPE: Shape = Shape {
    open: "<tool_calls>",
    each: "\n<tool_call>",
    before: "",
    middle: "<tool_sep>",
    arguments: Arguments::Tags(&PLAIN_TAGS),
    after: "",
    between: "",
    close: "\n</tool_calls>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<tool_calls:opensource>", "<tool_call:opensource>", "<tool_calls>", "<tool_call>"],
    bare: &[],
    closers: &["</tool_calls:opensource>", "</tool_calls>"],
    dropped: &[],
    reader: |opener, functions| {
        let tags = if opener.ends_with(":opensource>") { &TAGS } else { &PLAIN_TAGS };
        Box::new(Tagged::new(tags, functions, opener == tags.lead))
    },
};

static TAGS: Tags = Tags {
    lead: "<tool_call:opensource>",
    name_end: "<tool_sep:opensource>",
    key_open: "<arg_key:opensource>",
    key_end: "</arg_key:opensource>",
    value_open: "<arg_value:opensource>",
    value_close: "</arg_value:opensource>",
    close: "</tool_call:opensource>",
    ..PLAIN
};

static PLAIN_TAGS: Tags = Tags {
    lead: "<tool_call>",
    name_end: "<tool_sep>",
    key_open: "<arg_key>",
    key_end: "</arg_key>",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
    close: "</tool_call>",
    ..PLAIN
};

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn tags_end_with_a_word_or_without() {
        let plain = "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>g<tool_sep>\n</tool_call>\n</tool_calls>";
        let found = [("f", "{\"a\": 1}"), ("g", "{}")];
        check("hy_v3", &format!("Hm. {plain}"), "Hm.", &found);
        check("hy_v3", &plain.replace('>', ":opensource>"), "", &found);
        check("hy_v3", "<tool_call>f<tool_sep></tool_call> So.", " So.", &[("f", "{}")]);
        check_text("hy_v3", "<tool_calls>\n<tool_call:opensource>");
        check_text("hy_v3", "<tool_call>f g<tool_sep></tool_call>");
    }
}
