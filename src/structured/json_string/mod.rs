//! Grammars of what stands between the quotes of a JSON string, made from grammars of its value.
//!
//! What JSON escapes becomes its escape, in the one spelling that JSON writers use (`\n`, `\"`,
//! `\u001b`). An escape is longer than its character, and all escapes begin alike; so a lexer, which
//! decides by the next byte where a lexeme ends, can't be left with the grammar's own terminals. A
//! grammar without recursion becomes one terminal. The rules of a recursive one stay, and each of
//! its terminals becomes rules of single characters.

mod escape;
mod reader;

use std::collections::HashMap;
use std::fmt::Write as _;

use escape::{class, error, one_terminal, single_characters};
use reader::{Definition, Part};

use super::error::GrammarError;
use super::lark::{quote, regex_quote};

/// Any text between the quotes.
const ANY: &str = r#"/(?:[^"\\\x00-\x1f]|\\(?:["\\bfnrt]|u00[01][0-9a-f]))*/"#;

/// The Lark grammar of what stands between the quotes where `grammar` is the string's.
///
/// # Errors
/// Where the grammar can't be read, or has parts that are no text (special tokens, embedded
/// grammars), attributes of rules, or a regular expression with anchors or word boundaries; and
/// where a recursive one excludes texts (`~`, `&`).
pub(super) fn quoted(grammar: &str) -> Result<String, GrammarError> {
    let definitions = reader::read(grammar)?;
    let names = definitions.iter().enumerate().map(|(at, definition)| (definition.name, at));
    let names: HashMap<&str, usize> = names.collect();
    let recursive = is_recursive(&definitions, &names)?;
    let mut out = String::new();
    for (at, definition) in definitions.iter().enumerate() {
        let writer =
            Writer { definition, names: &names, recursive, groups: Vec::new(), out: &mut out };
        writer.write(at)?;
    }
    let start = names.get("start").ok_or_else(|| error("it has no rule start"))?;
    let ignored =
        names.contains_key(reader::IGNORED).then(|| name(names[reader::IGNORED], recursive));
    let ignored = ignored.map(|ignored| format!("{ignored}* ")).unwrap_or_default();
    let _ = writeln!(out, "start: {ignored}{}", name(*start, recursive));
    Ok(out)
}

/// Whether a definition leads back to itself.
fn is_recursive(
    definitions: &[Definition],
    names: &HashMap<&str, usize>,
) -> Result<bool, GrammarError> {
    // Definitions that are left over once those without open references are taken away again and
    // again refer to each other.
    let mut open: Vec<Vec<usize>> = Vec::with_capacity(definitions.len());
    for definition in definitions {
        let mut needed = Vec::new();
        for part in &definition.parts {
            if let Part::Name(name) = part {
                let found = names.get(name);
                needed.push(*found.ok_or_else(|| error(&format!("{name} is not defined")))?);
            }
        }
        open.push(needed);
    }
    let mut left: Vec<usize> = (0..open.len()).collect();
    loop {
        let before = left.len();
        let kept = left.clone();
        left.retain(|at| open[*at].iter().any(|needed| kept.contains(needed)));
        if left.len() == before {
            return Ok(!left.is_empty());
        }
    }
}

/// The name of a definition in the new grammar: a rule's, or a terminal's.
fn name(at: usize, recursive: bool) -> String {
    if recursive { format!("r{at}") } else { format!("T{at}") }
}

struct Writer<'w> {
    definition: &'w Definition<'w>,
    names: &'w HashMap<&'w str, usize>,
    recursive: bool,
    /// Of each open group, whether it is excluded.
    groups: Vec<bool>,
    out: &'w mut String,
}

impl Writer<'_> {
    fn write(mut self, at: usize) -> Result<(), GrammarError> {
        let _ = write!(self.out, "{}:", name(at, self.recursive));
        let mut excluded = false;
        for part in &self.definition.parts {
            if let Part::Sign("~") = part {
                excluded = true;
                if self.recursive {
                    return Err(error("a recursive grammar can't exclude texts"));
                }
                *self.out += " (~";
                continue;
            }
            self.part(part, excluded)?;
            excluded = false;
        }
        self.out.push('\n');
        Ok(())
    }

    /// Writes a part; `excluded` is what stands behind `~`.
    fn part(&mut self, part: &Part, excluded: bool) -> Result<(), GrammarError> {
        match part {
            Part::Sign("&") if self.recursive => {
                return Err(error(
                    "a recursive grammar can't have texts that follow two terminals",
                ));
            }
            Part::Sign("(") => {
                self.groups.push(excluded);
                *self.out += " (";
                return Ok(());
            }
            Part::Sign(")") => {
                self.out.push(')');
                if self.groups.pop() == Some(true) {
                    self.close_excluded();
                }
                return Ok(());
            }
            Part::Sign(sign) => {
                // What repeats follows at once.
                let space = if "|&".contains(*sign) { " " } else { "" };
                let _ = write!(self.out, "{space}{sign}");
                return Ok(());
            }
            _ => {}
        }
        let written = match part {
            Part::Name(written) => name(self.names[written], self.recursive),
            Part::Text(text) if self.recursive => single_characters(&regex_quote(text), "")?,
            Part::Text(text) => quote(&escape::escaped(text)),
            Part::Range(first, last) => self.pattern(&class(first, last), "")?,
            Part::Pattern(pattern, flags) => self.pattern(pattern, flags)?,
            Part::Sign(_) => unreachable!("signs are written above"),
        };
        let _ = match self.names.get(reader::IGNORED) {
            Some(ignored) if self.is_followed_by_ignored(part) => {
                write!(self.out, " ({written} {}*)", name(*ignored, self.recursive))
            }
            _ => write!(self.out, " {written}"),
        };
        if excluded {
            self.close_excluded();
        }
        Ok(())
    }

    fn pattern(&self, pattern: &str, flags: &str) -> Result<String, GrammarError> {
        if self.recursive {
            single_characters(pattern, flags)
        } else {
            one_terminal(pattern, flags)
        }
    }

    /// What `%ignore` names may stand behind each terminal of a rule.
    fn is_followed_by_ignored(&self, part: &Part) -> bool {
        let is_terminal = |part: &Part| match part {
            Part::Name(name) => reader::is_terminal(name),
            _ => true,
        };
        !reader::is_terminal(self.definition.name) && is_terminal(part)
    }

    /// `~X` is anything but `X`; here, anything that may stand between the quotes.
    fn close_excluded(&mut self) {
        let _ = write!(self.out, " & {ANY})");
    }
}
