//! Grammars of calls: for a request's functions, what a model may write so that its calls are well
//! formed, in a family's format, with arguments by the functions' schemas.
//!
//! The language is Lark as llguidance reads it: `%json` embeds a schema, `<[7]>` is a special token by
//! its id, and a lazy lexeme ends as soon as it can. Free text before calls ends where the family's
//! opening text is complete; from there on only a call can follow. What a grammar accepts, the
//! family's parser reads. Nothing here knows tokens beyond what [`CallRules::token_id`] says of them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::tagged::Tags;
use super::{python_grammar, tagged_grammar};

/// A function that may be called.
#[derive(Debug, Clone)]
pub struct FunctionRule {
    /// Its name.
    pub name: String,
    /// The JSON schema of its parameters, or null where any object will do.
    pub schema: Value,
}

/// Thoughts that may stand before everything else.
#[derive(Debug, Clone)]
pub struct ThoughtRule {
    /// The text that opens them.
    pub open: String,
    /// The text that closes them.
    pub close: String,
    /// Whether the answer begins within them.
    pub starts_inside: bool,
}

/// What an answer's calls have to be like.
pub struct CallRules<'a> {
    /// The functions that may be called.
    pub functions: &'a [FunctionRule],
    /// Whether there has to be a call. If not, text may stand before calls, or instead of them.
    pub required: bool,
    /// Whether text may stand before calls that are required.
    pub preamble: bool,
    /// Whether there may be more than one call.
    pub parallel: bool,
    /// What an answer without calls has to be, as a part of a rule; any text where there is none.
    pub answer: Option<String>,
    /// Thoughts before all this, where the model has them.
    pub thoughts: Option<ThoughtRule>,
    /// The id of a text that is one special token of the vocabulary: no other token can be a part of
    /// that text, and plain text never becomes this token.
    pub token_id: &'a dyn Fn(&str) -> Option<u32>,
}

/// Stands in a [`Shape`]'s texts for a number that the model picks.
const NUMBER: &str = "\u{0}";
/// Stands there for a word that the model picks.
const WORD: &str = "\u{1}";

/// How a family writes calls.
#[derive(Debug)]
pub(super) struct Shape {
    /// What opens all calls, once.
    pub(super) open: &'static str,
    /// What stands behind that, once.
    pub(super) begin: &'static str,
    /// What opens each of them.
    pub(super) each: &'static str,
    /// What stands between that and the name.
    pub(super) before: &'static str,
    /// What stands between name and arguments.
    pub(super) middle: &'static str,
    pub(super) arguments: Arguments,
    /// What stands behind the arguments.
    pub(super) after: &'static str,
    /// What stands between two calls.
    pub(super) between: &'static str,
    /// What closes all calls, once.
    pub(super) close: &'static str,
    /// First characters of calls where nothing opens them.
    pub(super) bare: &'static [char],
}

/// How a family's grammar is written.
#[derive(Clone, Copy)]
pub(super) enum Grammar {
    Shape(&'static Shape),
    /// By the family itself, from its markers.
    Own(fn(&'static [&'static str], &CallRules) -> String),
}

/// How a family writes arguments.
#[derive(Debug)]
pub(super) enum Arguments {
    Json,
    Tags(&'static Tags),
    Python,
}

/// A call that is a JSON object, alone.
pub(super) const JSON_CALL: Shape = Shape {
    open: "",
    begin: "",
    each: "",
    before: "{\"name\": \"",
    middle: "\", \"arguments\": ",
    arguments: Arguments::Json,
    after: "}",
    between: ", ",
    close: "",
    bare: &[],
};

/// The grammar of calls in a shape.
pub(super) fn grammar(
    shape: &Shape,
    markers: &'static [&'static str],
    rules: &CallRules,
) -> String {
    let mut lark = Lark::new(markers, rules);
    let calls = lark.calls(shape);
    let trigger = if shape.open.is_empty() { shape.each } else { shape.open };
    let answer = if trigger.is_empty() {
        lark.bare_answer(&calls, shape.bare)
    } else {
        lark.marked_answer(&calls, trigger)
    };
    lark.finish(&answer)
}

/// A grammar that is being written.
pub(super) struct Lark<'a> {
    pub(super) rules: &'a CallRules<'a>,
    markers: &'static [&'static str],
    text: String,
    count: usize,
}

/// Any text.
pub(super) const TEXT: &str = "/(?s:.*)/";

/// A part of a text.
enum Piece<'t> {
    Special(u32),
    Plain(&'t str),
    Number,
    Word,
}

impl<'a> Lark<'a> {
    pub(super) fn new(markers: &'static [&'static str], rules: &'a CallRules<'a>) -> Self {
        Self { rules, markers, text: String::new(), count: 0 }
    }

    /// Adds a rule and gives its name.
    pub(super) fn rule(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        self.add(&name, body);
        name
    }

    /// Adds a rule that may name itself.
    pub(super) fn recursive(&mut self, body: &dyn Fn(&str) -> String) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        self.add(&name, &body(&name));
        name
    }

    fn add(&mut self, name: &str, body: &str) {
        writeln!(self.text, "{name}: {body}").expect("writing to a string does not fail");
    }

    /// A text as it stands in a rule: special tokens where the vocabulary has them.
    pub(super) fn literal(&self, text: &str) -> String {
        let written = self.pieces(text).into_iter().map(|(_, piece)| match piece {
            Piece::Special(id) => format!("<[{id}]>"),
            Piece::Plain(text) => string(text),
            Piece::Number => "/[0-9]{1,4}/".to_owned(),
            Piece::Word => "/[a-zA-Z0-9_-]{1,32}/".to_owned(),
        });
        let written: Vec<String> = written.collect();
        written.join(" ")
    }

    /// Text up to `end`, and `end` itself. Where that has a special token, text ends at it.
    pub(super) fn text_until(&mut self, end: &str) -> String {
        let special = self.pieces(end).iter().find_map(|(at, piece)| match piece {
            Piece::Special(_) => Some(*at),
            _ => None,
        });
        match special {
            Some(0) => format!("{TEXT} {}", self.literal(end)),
            Some(at) => {
                self.count += 1;
                let name = format!("T{}", self.count);
                self.add(&name, &format!("{TEXT} {}", string(&end[..at])));
                format!("{name} {}", self.literal(&end[at..]))
            }
            None => {
                self.count += 1;
                let name = format!("r{}", self.count);
                self.add(&format!("{name}[lazy]"), &format!("{TEXT} {}", string(end)));
                name
            }
        }
    }

    /// A document by a schema.
    pub(super) fn json(schema: &Value) -> String {
        format!("%json {schema}")
    }

    /// The parts of a text, each with its place.
    fn pieces<'t>(&self, text: &'t str) -> Vec<(usize, Piece<'t>)> {
        let mut pieces = Vec::new();
        let (mut plain, mut at) = (0, 0);
        while let Some(c) = text[at..].chars().next() {
            let found = self.piece_at(&text[at..]);
            let next = at + found.as_ref().map_or(c.len_utf8(), |(_, len)| *len);
            if let Some((piece, _)) = found {
                pieces.extend((plain < at).then(|| (plain, Piece::Plain(&text[plain..at]))));
                pieces.push((at, piece));
                plain = next;
            }
            at = next;
        }
        pieces.extend((plain < at).then(|| (plain, Piece::Plain(&text[plain..at]))));
        pieces
    }

    /// What begins a text that is more than plain, and how long it is.
    fn piece_at<'t>(&self, text: &'t str) -> Option<(Piece<'t>, usize)> {
        let special = || {
            let thoughts = self.rules.thoughts.iter();
            let tags = thoughts.flat_map(|thoughts| [thoughts.open.as_str(), &thoughts.close]);
            let mut marks = self.markers.iter().copied().chain(tags);
            let mark = marks.find(|mark| !mark.is_empty() && text.starts_with(*mark))?;
            Some((Piece::Special((self.rules.token_id)(mark)?), mark.len()))
        };
        match text.get(..1) {
            Some(NUMBER) => Some((Piece::Number, 1)),
            Some(WORD) => Some((Piece::Word, 1)),
            _ => special(),
        }
    }

    /// Calls, from behind the text that opens them on.
    pub(super) fn calls(&mut self, shape: &Shape) -> String {
        let rules = self.rules;
        let calls: Vec<String> =
            rules.functions.iter().map(|function| self.call(shape, function)).collect();
        let call = self.rule(&calls.join(" | "));
        let each = if shape.open.is_empty() { "" } else { shape.each };
        let begin = self.literal(&[shape.begin, each].concat());
        let between = self.literal(&[shape.between, shape.each].concat());
        let more = if rules.parallel { format!("({between} {call})*") } else { String::new() };
        self.rule(&format!("{begin} {call} {more} {}", self.literal(shape.close)))
    }

    fn call(&mut self, shape: &Shape, function: &FunctionRule) -> String {
        let in_json = shape.before.ends_with("{\"") || shape.before.ends_with(": \"");
        let name = if in_json {
            let quoted = json!(function.name).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        } else {
            function.name.clone()
        };
        let head = self.literal(&[shape.before, &name, shape.middle].concat());
        let arguments = match shape.arguments {
            Arguments::Json => Self::json(&object_schema(&function.schema)),
            Arguments::Tags(tags) => tagged_grammar::parameters(self, tags, &function.schema),
            Arguments::Python => python_grammar::arguments(self, &function.schema),
        };
        self.rule(&format!("{head} {arguments} {}", self.literal(shape.after)))
    }

    /// An answer whose calls an opening text tells.
    fn marked_answer(&mut self, calls: &str, trigger: &str) -> String {
        let opener = self.literal(trigger);
        let rules = self.rules;
        if rules.required && !rules.preamble {
            return format!("/[ \\n]{{0,4}}/ {opener} {calls}");
        }
        if let Some(answer) = &rules.answer {
            return format!("{answer} | /[ \\n]{{0,4}}/ {opener} {calls}");
        }
        let text_and_calls = format!("{} {calls}", self.text_until(trigger));
        if rules.required { text_and_calls } else { format!("{TEXT} | {text_and_calls}") }
    }

    /// An answer that is either calls, told by their first character, or text.
    fn bare_answer(&mut self, calls: &str, bare: &[char]) -> String {
        if self.rules.required {
            return format!("/[ \\n]{{0,4}}/ {calls}");
        }
        if let Some(answer) = &self.rules.answer {
            return format!("{answer} | {calls}");
        }
        let first: Vec<String> = bare.iter().map(|c| format!("\\{c}")).collect();
        format!("/[^{}\\s](?s:.*)/ | {calls}", first.concat())
    }

    /// The grammar whose answers are these, behind thoughts where there are any.
    pub(super) fn finish(mut self, answer: &str) -> String {
        let answer = self.rule(answer);
        let start = match &self.rules.thoughts {
            None => answer,
            Some(thoughts) => {
                let (text, open) = (self.text_until(&thoughts.close), self.literal(&thoughts.open));
                if thoughts.starts_inside {
                    format!("{text} {answer}")
                } else {
                    format!("(/[ \\n]{{0,4}}/ {open} {text})? {answer}")
                }
            }
        };
        format!("start: {start}\n{}", self.text)
    }
}

/// A schema that allows objects only.
fn object_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(members) if ["type", "$ref"].iter().any(|key| members.contains_key(*key)) => {
            schema.clone()
        }
        Value::Object(members) => {
            let mut members = members.clone();
            members.insert("type".to_owned(), json!("object"));
            Value::Object(members)
        }
        _ => json!({"type": "object"}),
    }
}

/// A text in quotes. The language's strings are JSON's, but for one control character.
pub(super) fn string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::super::{grammar, names};
    use super::*;

    fn written(family: &str, required: bool, token_id: &dyn Fn(&str) -> Option<u32>) -> String {
        let schema = json!({"properties": {"a": {"type": "string"}}, "required": ["a"]});
        let functions = [FunctionRule { name: "f".to_owned(), schema }];
        let (preamble, parallel, thoughts) = (false, true, None);
        let functions = &functions;
        let answer = None;
        let rules =
            CallRules { functions, required, preamble, parallel, answer, thoughts, token_id };
        grammar(family, &rules).unwrap()
    }

    #[test]
    fn required_calls_begin_the_answer() {
        let expected = concat!(
            "start: r4\n",
            "r1: \"\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \" %json ",
            "{\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"],\"type\":\"object\"}",
            " \"}\\n\" <[8]>\n",
            "r2: r1\n",
            "r3:  r2 (\"\\n\" <[7]> r2)* \n",
            "r4: /[ \\n]{0,4}/ <[7]> r3\n",
        );
        let ids = |text: &str| match text {
            "<tool_call>" => Some(7),
            "</tool_call>" => Some(8),
            _ => None,
        };
        assert_eq!(written("hermes", true, &ids), expected);
    }

    #[test]
    fn text_ends_where_a_call_opens() {
        let lark = written("hermes", false, &|_| None);
        assert!(lark.contains("[lazy]: /(?s:.*)/ \"<tool_call>\"\n"), "{lark}");
        let lark = written("hermes", false, &|text| (text == "<tool_call>").then_some(7));
        assert!(lark.contains("/(?s:.*)/ | /(?s:.*)/ <[7]> "), "{lark}");
        let lark = written("llama3_json", false, &|_| None);
        assert!(lark.contains("/[^\\{\\s](?s:.*)/ | "), "{lark}");
    }

    #[test]
    fn every_family_has_a_grammar() {
        for name in names() {
            let lark = written(name, true, &|_| None);
            assert!(lark.starts_with("start: ") && lark.contains('f'), "{name}: {lark}");
        }
        let token_id = &|_: &str| None;
        let (required, preamble, parallel, thoughts) = (true, false, true, None);
        let functions: &[FunctionRule] = &[];
        let answer = None;
        let rules =
            CallRules { functions, required, preamble, parallel, answer, thoughts, token_id };
        assert_eq!(grammar("hermes", &rules), None);
    }
}
