//! Writes grammars in Lark as llguidance reads it: `%json` embeds a schema, `<[7]>` is a special token by
//! its id, and a lazy lexeme ends as soon as it can. Refuses to know calls, and tokens beyond what
//! [`CallRules::token_id`] says of them.

use std::fmt::Write as _;

use serde_json::Value;

use super::rules::CallRules;

/// Stands in a shape's texts for a number that the model picks.
pub(super) const NUMBER: &str = "\u{0}";
/// Stands in a shape's texts for a word that the model picks.
pub(super) const WORD: &str = "\u{1}";

/// A grammar that is being written.
pub(super) struct Lark<'a> {
    pub(super) rules: &'a CallRules<'a>,
    markers: &'static [&'static str],
    text: String,
    count: usize,
}

/// The terminal of any text.
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

    /// The name of a rule that is defined later, so that it may name itself.
    pub(super) fn next_rule(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    /// Adds the rule called `name`.
    pub(super) fn define(&mut self, name: &str, body: &str) {
        self.add(name, body);
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
            let reasoning = self.rules.reasoning.iter();
            let tags = reasoning.flat_map(|reasoning| [reasoning.open.as_str(), &reasoning.close]);
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

    /// The grammar whose answers are these, behind reasoning where there is any.
    pub(super) fn finish(mut self, answer: &str) -> String {
        let answer = self.rule(answer);
        let start = match &self.rules.reasoning {
            None => answer,
            Some(reasoning) => {
                let (text, open) =
                    (self.text_until(&reasoning.close), self.literal(&reasoning.open));
                if reasoning.starts_inside {
                    format!("{text} {answer}")
                } else {
                    format!("(/[ \\n]{{0,4}}/ {open} {text})? {answer}")
                }
            }
        };
        format!("start: {start}\n{}", self.text)
    }
}

/// A text in quotes. The language's strings are JSON's, but for one control character.
pub(super) fn string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
