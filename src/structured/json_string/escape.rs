//! Characters and regular expressions as JSON escapes them.

use std::fmt::Write as _;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

use crate::error::GrammarError;
use crate::lark::regex_quote;

/// The escapes that have a letter.
const SHORT: [(char, char); 7] = [
    ('\u{8}', 'b'),
    ('\t', 't'),
    ('\n', 'n'),
    ('\u{c}', 'f'),
    ('\r', 'r'),
    ('"', '"'),
    ('\\', '\\'),
];

/// Why a grammar has none of what stands between the quotes.
pub(super) fn error(reason: &str) -> GrammarError {
    GrammarError::syntax("Lark grammar of a text in JSON", reason)
}

/// A text as it stands between the quotes.
pub(super) fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The characters from one to another as a regular expression.
pub(super) fn class(first: &str, last: &str) -> String {
    format!("[{}-{}]", regex_quote(first), regex_quote(last))
}

/// A regular expression of values, as a regex literal of what stands between the quotes.
pub(super) fn one_terminal(pattern: &str, flags: &str) -> Result<String, GrammarError> {
    let mut out = String::new();
    let hir = parse(pattern, flags)?;
    Form::Regex.write(&hir, &mut out).map_err(|reason| refusal(pattern, reason))?;
    Ok(if out.is_empty() { "\"\"".to_owned() } else { format!("/{out}/") })
}

/// A regular expression of values, as a part of a rule in which each terminal is what stands for one
/// character between the quotes.
pub(super) fn single_characters(pattern: &str, flags: &str) -> Result<String, GrammarError> {
    let mut out = String::new();
    let hir = parse(pattern, flags)?;
    Form::Rule.write(&hir, &mut out).map_err(|reason| refusal(pattern, reason))?;
    Ok(if out.is_empty() { "\"\"".to_owned() } else { format!("({})", out.trim()) })
}

fn refusal(pattern: &str, reason: &str) -> GrammarError {
    error(&format!("/{pattern}/: {reason}"))
}

fn parse(pattern: &str, flags: &str) -> Result<Hir, GrammarError> {
    let mut parser = ParserBuilder::new();
    for flag in flags.chars() {
        match flag {
            'i' => parser.case_insensitive(true),
            's' => parser.dot_matches_new_line(true),
            'm' => parser.multi_line(true),
            'x' => parser.ignore_whitespace(true),
            // Texts are Unicode, and nobody's locale counts.
            'u' | 'l' => &mut parser,
            _ => return Err(error(&format!("/{pattern}/ has the unknown flag {flag}"))),
        };
    }
    parser.build().parse(pattern).map_err(|reason| error(&reason.to_string()))
}

/// How an expression is written.
#[derive(Clone, Copy)]
enum Form {
    /// Inside of a regex literal.
    Regex,
    /// As a part of a rule, a terminal for each character.
    Rule,
}

impl Form {
    fn write(self, hir: &Hir, out: &mut String) -> Result<(), &'static str> {
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(text) => {
                let text =
                    std::str::from_utf8(&text.0).map_err(|_| "it matches what is no text")?;
                for c in text.chars() {
                    self.push(&regex_quote(&escaped(c.encode_utf8(&mut [0; 4]))), out);
                }
            }
            HirKind::Class(class) => self.push(&written_class(class)?, out),
            HirKind::Look(_) => return Err("anchors and word boundaries are not supported"),
            HirKind::Repetition(repetition) => {
                self.group(&repetition.sub, out)?;
                let _ = match (repetition.min, repetition.max) {
                    (0, None) => write!(out, "*"),
                    (1, None) => write!(out, "+"),
                    (0, Some(1)) => write!(out, "?"),
                    (min, Some(max)) => write!(out, "{{{min},{max}}}"),
                    (min, None) => write!(out, "{{{min},}}"),
                };
            }
            HirKind::Capture(capture) => self.group(&capture.sub, out)?,
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.group(part, out))?,
            HirKind::Alternation(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    *out += if at == 0 { "" } else { "|" };
                    self.group(part, out)?;
                }
            }
        }
        Ok(())
    }

    fn push(self, character: &str, out: &mut String) {
        let _ = match self {
            Self::Regex => write!(out, "{character}"),
            Self::Rule => write!(out, " /{character}/"),
        };
    }

    fn group(self, hir: &Hir, out: &mut String) -> Result<(), &'static str> {
        *out += match self {
            Self::Regex => "(?:",
            Self::Rule => " (",
        };
        let before = out.len();
        self.write(hir, out)?;
        if out.len() == before && matches!(self, Self::Rule) {
            *out += "\"\"";
        }
        out.push(')');
        Ok(())
    }
}

/// A class: what stands for itself, and the escapes of the rest.
fn written_class(class: &Class) -> Result<String, &'static str> {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => class.ranges().iter().map(|r| (r.start(), r.end())).collect(),
        Class::Bytes(class) if class.is_ascii() => {
            class.ranges().iter().map(|r| (char::from(r.start()), char::from(r.end()))).collect()
        }
        Class::Bytes(_) => return Err("it matches what is no text"),
    };
    let is_in = |c: char| ranges.iter().any(|(first, last)| (*first..=*last).contains(&c));
    let mut plain = String::new();
    for (first, last) in &ranges {
        // What is escaped parts the ranges: controls, the quote, the backslash.
        for (low, high) in [(' ', '!'), ('#', '['), (']', char::MAX)] {
            let (low, high) = ((*first).max(low), (*last).min(high));
            if low <= high {
                let _ = write!(plain, "\\u{{{:X}}}-\\u{{{:X}}}", u32::from(low), u32::from(high));
            }
        }
    }
    let mut forms: Vec<String> = Vec::new();
    if !plain.is_empty() {
        forms.push(format!("[{plain}]"));
    }
    let escaped = ('\0'..' ').chain(['"', '\\']).filter(|c| is_in(*c));
    forms.extend(escaped.map(|c| match SHORT.iter().find(|(short, _)| *short == c) {
        Some((_, letter)) => regex_quote(&format!("\\{letter}")),
        None => regex_quote(&format!("\\u{:04x}", u32::from(c))),
    }));
    if forms.is_empty() {
        return Err("a class of it holds nothing");
    }
    Ok(format!("(?:{})", forms.join("|")))
}
