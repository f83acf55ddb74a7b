//! Free text with tagged parts, as Lark.
//!
//! Up to a trigger the text is free; the trigger ends it, and one of the tags that begin with the
//! trigger must follow. Where a trigger, a beginning or an end holds the text of a special token,
//! the token itself and its spelling are both allowed, with one exception: a trigger in which a
//! special token stands behind other characters is recognized spelled out only. Other special
//! tokens are in no free text.

use std::fmt::Write as _;

use super::error::GrammarError;
use super::lark::{quote, regex, regex_quote};
use super::spec::{GrammarSpec, StructuralTag, Tag};
use super::vocabulary::{Piece, Vocabulary};
use super::{notation, schema};

const MAX_TAGS: usize = 1000;

/// The Lark grammar of `structure`.
pub(super) fn to_lark(
    structure: &StructuralTag,
    vocabulary: &Vocabulary,
) -> Result<String, GrammarError> {
    let refuse = |reason: String| Err(GrammarError::syntax("structural tag", reason));
    if structure.tags.is_empty() || structure.triggers.is_empty() {
        return refuse("it needs a tag and a trigger".to_owned());
    }
    if structure.tags.len() > MAX_TAGS {
        let (actual, limit) = (structure.tags.len(), MAX_TAGS);
        return Err(GrammarError::TooLarge { what: "tags", actual, limit });
    }
    if structure.triggers.iter().any(String::is_empty) {
        return refuse("a trigger is empty".to_owned());
    }
    // The longest trigger that a tag begins with is the one that opens it.
    let mut tags_of: Vec<Vec<usize>> = vec![Vec::new(); structure.triggers.len()];
    for (index, tag) in structure.tags.iter().enumerate() {
        let fits = structure.triggers.iter().enumerate();
        let fits = fits.filter(|(_, trigger)| tag.begin.starts_with(trigger.as_str()));
        match fits.max_by_key(|(_, trigger)| trigger.len()) {
            Some((trigger, _)) => tags_of[trigger].push(index),
            None => return refuse(format!("{:?} begins with no trigger", tag.begin)),
        }
    }
    let mut writer = Writer { vocabulary, rules: String::new() };
    for (index, tag) in structure.tags.iter().enumerate() {
        writer.tag(index, tag)?;
    }
    let used = (0..tags_of.len()).filter(|trigger| !tags_of[*trigger].is_empty());
    let used: Vec<usize> = used.collect();
    for &trigger in &used {
        writer.trigger(trigger, &structure.triggers[trigger], &tags_of[trigger], structure);
    }
    writer.start(structure, &used);
    Ok(writer.rules)
}

struct Writer<'v> {
    vocabulary: &'v Vocabulary,
    rules: String,
}

impl Writer<'_> {
    fn start(&mut self, structure: &StructuralTag, used: &[usize]) {
        let parts: Vec<String> = used.iter().map(|trigger| format!("part_{trigger}")).collect();
        let triggers = structure.triggers.iter().map(|trigger| regex_quote(trigger));
        let triggers = triggers.collect::<Vec<_>>().join("|");
        // The part repeats; free text ends the whole unless the first tag does.
        let start = match (structure.at_least_one, structure.stop_after_first) {
            (true, true) => "part",
            (false, true) => "part | FREE?",
            (true, false) => "part+ FREE?",
            (false, false) => "part* FREE?",
        };
        let _ = writeln!(
            self.rules,
            "start: {start}\npart: {}\n\
             FREE: /(?s:.+)/ & ~/(?s:.*)(?:{triggers})(?s:.*)/",
            parts.join(" | ")
        );
    }

    // Free text up to the trigger, and then one of its tags.
    fn trigger(&mut self, index: usize, trigger: &str, tags: &[usize], structure: &StructuralTag) {
        // A longer trigger that goes on like this one is not this one.
        let tags: Vec<String> = tags
            .iter()
            .map(|tag| {
                let rest = &structure.tags[*tag].begin[trigger.len()..];
                format!("{} tag_{tag}", self.literal(rest))
            })
            .collect();
        let tags = tags.join(" | ");
        let pieces = self.vocabulary.split_special(trigger);
        let token = match pieces.first() {
            Some(Piece::Special(id, text)) => {
                format!("FREE? <[{id}]> {} | ", self.literal(&trigger[text.len()..]))
            }
            _ => String::new(),
        };
        let _ = writeln!(
            self.rules,
            "part_{index}: ({token}spelled_{index}) ({tags})\n\
             spelled_{index}[lazy]: /(?s:.*)(?:{})/",
            regex_quote(trigger)
        );
    }

    // What follows the beginning: the content and the end.
    fn tag(&mut self, index: usize, tag: &Tag) -> Result<(), GrammarError> {
        let end = self.literal(&tag.end);
        let body = match tag.content.as_ref() {
            GrammarSpec::JsonObject => {
                let schema = schema::prepare(&serde_json::json!({"type": "object"}))?;
                format!("%json {schema} {end}")
            }
            GrammarSpec::JsonSchema(schema) => format!("%json {} {end}", schema::prepare(schema)?),
            // The end of the tag is the first text that is one, even if the content could hold it.
            GrammarSpec::Regex(pattern) => self.until_end(index, &regex(pattern), tag),
            GrammarSpec::Choice(choices) if choices.is_empty() => {
                return Err(GrammarError::syntax("choice", "there is nothing to choose from"));
            }
            GrammarSpec::Choice(choices) => {
                let choices: Vec<String> = choices.iter().map(|choice| quote(choice)).collect();
                format!("({}) {end}", choices.join(" | "))
            }
            nested @ (GrammarSpec::Lark(_) | GrammarSpec::Gbnf(_)) => {
                format!("%lark {{\n{}\n}} {end}", notation::to_lark(nested, self.vocabulary)?)
            }
            GrammarSpec::StructuralTag(_) => {
                let reason = "a tag inside a tag is free text; put both on one level";
                return Err(GrammarError::syntax("structural tag", reason));
            }
        };
        let _ = writeln!(self.rules, "tag_{index}: {body}");
        Ok(())
    }

    fn until_end(&mut self, index: usize, content: &str, tag: &Tag) -> String {
        if tag.end.is_empty() {
            return content.to_owned();
        }
        let pieces = self.vocabulary.split_special(&tag.end);
        let _ = writeln!(self.rules, "closed_{index}[lazy]: {content} {}", quote(&tag.end));
        match pieces[..] {
            [Piece::Special(id, text), ..] => {
                let rest = self.literal(&tag.end[text.len()..]);
                format!("closed_{index} | {content} <[{id}]> {rest}")
            }
            _ => format!("closed_{index}"),
        }
    }

    // A text in which special tokens may come as tokens or spelled out.
    fn literal(&self, text: &str) -> String {
        let pieces = self.vocabulary.split_special(text).into_iter().map(|piece| match piece {
            Piece::Plain(text) => quote(text),
            Piece::Special(id, text) => format!("(<[{id}]> | {})", quote(text)),
        });
        let pieces: Vec<String> = pieces.collect();
        if pieces.is_empty() { "\"\"".to_owned() } else { pieces.join(" ") }
    }
}
