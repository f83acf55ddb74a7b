//! GBNF text to rules.
//!
//! A rule ends with its line, except inside parentheses, after `::=` and around `|`.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::super::error::GrammarError;
use super::super::vocabulary::Vocabulary;

const MAX_DEPTH: usize = 64;
const MAX_REPEATS: u32 = 100_000;
const MAX_RULES: usize = 5_000;

/// A GBNF grammar, its rules by index.
#[derive(Debug)]
pub(super) struct Grammar {
    pub rules: Vec<Rule>,
    /// The rule `root`.
    pub root: usize,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub body: Node,
}

/// A part of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Literal(String),
    /// One character, as a character class of the `regex` crate.
    Class(String),
    /// One token, as Lark spells it.
    Token(String),
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

/// Reads a GBNF grammar.
pub(super) fn parse(text: &str, vocabulary: &Vocabulary) -> Result<Grammar, GrammarError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        vocabulary,
        names: HashMap::new(),
        order: Vec::new(),
        bodies: Vec::new(),
    };
    parser.grammar()
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    vocabulary: &'t Vocabulary,
    names: HashMap<&'t str, usize>,
    // Name and place of first mention.
    order: Vec<(&'t str, usize)>,
    bodies: Vec<Option<Node>>,
}

impl<'t> Parser<'t> {
    fn grammar(&mut self) -> Result<Grammar, GrammarError> {
        self.space(true);
        while self.at < self.text.len() {
            let place = self.at;
            let name = self.name().ok_or_else(|| self.error(place, "a rule's name expected"))?;
            let index = self.rule_index(name, place)?;
            self.space(true);
            if !self.eat("::=") {
                return Err(self.error(self.at, "`::=` expected"));
            }
            self.space(true);
            let body = self.choice(false)?;
            if self.bodies[index].replace(body).is_some() {
                return Err(self.error(place, format!("rule `{name}` is defined twice")));
            }
            let ends_line = self.text[self.at..].starts_with(['\n', '\r']);
            if !ends_line && self.at < self.text.len() {
                let rest: String = self.text[self.at..].chars().take(20).collect();
                return Err(self.error(self.at, format!("{rest:?} is not expected here")));
            }
            self.space(true);
        }
        let Some(&root) = self.names.get("root") else {
            return Err(self.error(0, "rule `root` is not defined"));
        };
        let mut rules = Vec::new();
        for ((name, place), body) in self.order.iter().zip(self.bodies.drain(..)) {
            let undefined = || error(self.text, *place, format!("rule `{name}` is not defined"));
            rules.push(Rule { body: body.ok_or_else(undefined)? });
        }
        Ok(Grammar { rules, root })
    }

    fn choice(&mut self, nested: bool) -> Result<Node, GrammarError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let (actual, limit) = (self.depth, MAX_DEPTH);
            return Err(GrammarError::TooLarge { what: "nesting of groups", actual, limit });
        }
        let mut choices = vec![self.sequence(nested)?];
        loop {
            let before = self.at;
            self.space(true);
            if !self.eat("|") {
                if !nested {
                    self.at = before;
                }
                break;
            }
            self.space(true);
            choices.push(self.sequence(nested)?);
        }
        self.depth -= 1;
        Ok(if choices.len() == 1 { choices.swap_remove(0) } else { Node::Choice(choices) })
    }

    fn sequence(&mut self, nested: bool) -> Result<Node, GrammarError> {
        let mut nodes = Vec::new();
        loop {
            self.space(nested);
            let place = self.at;
            let Some(c) = self.text[self.at..].chars().next() else { break };
            let node = match c {
                '"' => self.literal()?,
                '[' => self.class()?,
                '(' => {
                    self.at += 1;
                    let group = self.choice(true)?;
                    self.space(true);
                    if !self.eat(")") {
                        return Err(self.error(place, "a group is not closed"));
                    }
                    group
                }
                '.' => {
                    self.at += 1;
                    Node::Class("[\\u{0}-\\u{10FFFF}]".to_owned())
                }
                '<' | '!' => self.token()?,
                '*' | '+' | '?' | '{' => {
                    let last = nodes.pop();
                    let node = last.ok_or_else(|| self.error(place, "nothing to repeat"))?;
                    self.repeat(node)?
                }
                _ => match self.name() {
                    Some(name) => Node::Rule(self.rule_index(name, place)?),
                    None => break,
                },
            };
            nodes.push(node);
        }
        Ok(if nodes.len() == 1 { nodes.swap_remove(0) } else { Node::Sequence(nodes) })
    }

    fn repeat(&mut self, node: Node) -> Result<Node, GrammarError> {
        let place = self.at;
        let (min, max) = if self.eat("*") {
            (0, None)
        } else if self.eat("+") {
            (1, None)
        } else if self.eat("?") {
            (0, Some(1))
        } else {
            self.at += 1;
            let inside = self.text[self.at..].split_once('}').map(|(inside, _)| inside);
            let inside = inside.ok_or_else(|| self.error(place, "`{` is not closed"))?;
            self.at += inside.len() + 1;
            let refuse = || self.error(place, format!("{{{inside}}} is no repetition"));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| refuse());
            let (min, max) = match inside.split_once(',') {
                None => (number(inside)?, Some(number(inside)?)),
                Some((min, max)) if max.trim().is_empty() => (number(min)?, None),
                Some((min, max)) => (number(min)?, Some(number(max)?)),
            };
            if max.is_some_and(|max| max < min) {
                return Err(refuse());
            }
            (min, max)
        };
        let count = max.unwrap_or(min);
        if count > MAX_REPEATS {
            let (actual, limit) = (count as usize, MAX_REPEATS as usize);
            return Err(GrammarError::TooLarge { what: "repetitions", actual, limit });
        }
        Ok(match max {
            Some(0) => Node::Sequence(Vec::new()),
            _ => Node::Repeat(Box::new(node), min, max),
        })
    }

    fn literal(&mut self) -> Result<Node, GrammarError> {
        let place = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.character() {
                Some(Ok(('"', false))) => return Ok(Node::Literal(text)),
                Some(Ok(('\n', false))) | None => {
                    return Err(self.error(place, "a literal is not closed"));
                }
                Some(Ok((c, _))) => text.push(c),
                Some(Err(reason)) => return Err(self.error(place, reason)),
            }
        }
    }

    fn class(&mut self) -> Result<Node, GrammarError> {
        let place = self.at;
        self.at += 1;
        let mut class = String::from(if self.eat("^") { "[^" } else { "[" });
        let mut is_empty = true;
        loop {
            let first = match self.character() {
                Some(Ok((']', false))) if is_empty => {
                    return Err(self.error(place, "a character class is empty"));
                }
                Some(Ok((']', false))) => {
                    class.push(']');
                    return Ok(Node::Class(class));
                }
                Some(Ok((c, _))) => c,
                Some(Err(reason)) => return Err(self.error(place, reason)),
                None => return Err(self.error(place, "a character class is not closed")),
            };
            is_empty = false;
            push_class_char(first, &mut class);
            let rest = &self.text[self.at..];
            if !rest.starts_with('-') || rest.starts_with("-]") {
                continue;
            }
            self.at += 1;
            match self.character() {
                Some(Ok((last, _))) if last >= first => {
                    class.push('-');
                    push_class_char(last, &mut class);
                }
                Some(Ok((last, _))) => {
                    let reason = format!("the range {first:?}-{last:?} is empty");
                    return Err(self.error(place, reason));
                }
                Some(Err(reason)) => return Err(self.error(place, reason)),
                None => return Err(self.error(place, "a character class is not closed")),
            }
        }
    }

    // The next character of a literal or class, and whether it was escaped.
    fn character(&mut self) -> Option<Result<(char, bool), String>> {
        let mut chars = self.text[self.at..].chars();
        let c = chars.next()?;
        self.at += c.len_utf8();
        if c != '\\' {
            return Some(Ok((c, false)));
        }
        let escaped = chars.next()?;
        self.at += escaped.len_utf8();
        let digits = match escaped {
            'n' => return Some(Ok(('\n', true))),
            'r' => return Some(Ok(('\r', true))),
            't' => return Some(Ok(('\t', true))),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c if c.is_ascii_punctuation() => return Some(Ok((c, true))),
            c => return Some(Err(format!("`\\{c}` is no escape"))),
        };
        let hex = self.text.get(self.at..self.at + digits);
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        self.at += digits;
        Some(code.map(|c| (c, true)).ok_or_else(|| {
            format!("the escape `\\{escaped}` is not followed by {digits} digits of a character")
        }))
    }

    fn token(&mut self) -> Result<Node, GrammarError> {
        let place = self.at;
        let negated = if self.eat("!") { "^" } else { "" };
        let spelled = self.text[self.at..].split_inclusive('>').next().unwrap_or_default();
        if !spelled.starts_with('<') || !spelled.ends_with('>') || spelled.contains('\n') {
            return Err(self.error(place, "a token is `<text>` or `<[id]>`"));
        }
        let id = spelled.strip_prefix("<[").and_then(|rest| rest.strip_suffix("]>"));
        let id = match id {
            Some(id) => id.parse::<u32>().ok().filter(|id| (*id as usize) < self.vocabulary.size()),
            None => self.vocabulary.special(spelled),
        };
        let id = id.ok_or_else(|| self.error(place, format!("{spelled} is no special token")))?;
        self.at += spelled.len();
        Ok(Node::Token(format!("<[{negated}{id}]>")))
    }

    fn name(&mut self) -> Option<&'t str> {
        let rest = &self.text[self.at..];
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        let name = &rest[..len.unwrap_or(rest.len())];
        self.at += name.len();
        (!name.is_empty()).then_some(name)
    }

    fn rule_index(&mut self, name: &'t str, place: usize) -> Result<usize, GrammarError> {
        if let Some(index) = self.names.get(name) {
            return Ok(*index);
        }
        let index = self.order.len();
        if index >= MAX_RULES {
            let (actual, limit) = (index + 1, MAX_RULES);
            return Err(GrammarError::TooLarge { what: "rules", actual, limit });
        }
        self.names.insert(name, index);
        self.order.push((name, place));
        self.bodies.push(None);
        Ok(index)
    }

    // Skips white space and comments; line ends only where `lines` says so.
    fn space(&mut self, lines: bool) {
        loop {
            let rest = &self.text[self.at..];
            let skipped = match rest.as_bytes().first() {
                Some(b' ' | b'\t') => 1,
                Some(b'#') => rest.find(['\n', '\r']).unwrap_or(rest.len()),
                Some(b'\n' | b'\r') if lines => 1,
                _ => return,
            };
            self.at += skipped;
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.text[self.at..].starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn error(&self, place: usize, reason: impl Into<String>) -> GrammarError {
        error(self.text, place, reason)
    }
}

fn error(text: &str, place: usize, reason: impl Into<String>) -> GrammarError {
    let line = text[..place.min(text.len())].matches('\n').count() + 1;
    GrammarError::syntax("GBNF grammar", format!("line {line}: {}", reason.into()))
}

fn push_class_char(c: char, class: &mut String) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        class.push(c);
    } else {
        let _ = write!(class, "\\u{{{:X}}}", u32::from(c));
    }
}
