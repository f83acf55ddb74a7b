//! Reads a call as Gemma models write it: `call:NAME{key:value,...}`. Texts stand between marks of their
//! own and are not escaped; keys, numbers and words stand as they are; lists and objects nest.
//!
//! A value that is neither text nor number nor word is a text whose marks the model left out.

use serde_json::Value;

use super::markup::{Calls, Progress, Reader};
use super::named_json::is_name;
use super::tagged::escaped;

/// Longer heads, keys and words are text.
const MAX_WORD: usize = 4_000;
/// Deepest nesting of a value.
const MAX_DEPTH: usize = 64;

const HEAD: &str = "call:";

/// Reads the call behind one opening text.
#[derive(Debug)]
pub(super) struct GemmaCall {
    /// What stands at both ends of a text.
    quote: &'static str,
    phase: Phase,
    /// Open containers; none before the arguments.
    open: Vec<Container>,
}

#[derive(Debug)]
struct Container {
    is_object: bool,
    is_empty: bool,
}

#[derive(Debug)]
enum Phase {
    Head(String),
    /// Before a key or within it, or at the end of the object.
    Key(String),
    /// Within a key that stands between marks.
    QuotedKey(String),
    Colon,
    /// Before a value or within a mark or a word, or at the end of the list.
    Value(String),
    /// Within a text, with what is not handed out.
    Text(String),
    /// Behind a value.
    More,
}

impl GemmaCall {
    pub(super) fn new(quote: &'static str) -> Self {
        Self { quote, phase: Phase::Head(String::new()), open: Vec::new() }
    }

    fn head(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Head(seen) = &mut self.phase else { return Progress::Broken };
        if c == '{' {
            let name = seen.trim().strip_prefix(HEAD).map(str::trim);
            let Some(name) = name.filter(|name| is_name(name)) else { return Progress::Broken };
            calls.begin(name);
            return self.enter(true, calls);
        }
        seen.push(c);
        let head = seen.trim_start();
        let fits = HEAD.starts_with(head) || head.starts_with(HEAD);
        if fits && seen.len() <= MAX_WORD { Progress::Inside } else { Progress::Broken }
    }

    /// A list or an object begins.
    fn enter(&mut self, is_object: bool, calls: &mut Calls) -> Progress {
        if self.open.len() >= MAX_DEPTH {
            return Progress::Broken;
        }
        calls.arguments(if is_object { "{" } else { "[" });
        self.open.push(Container { is_object, is_empty: true });
        self.next();
        Progress::Inside
    }

    /// A list or an object ends.
    fn leave(&mut self, calls: &mut Calls) -> Progress {
        let Some(container) = self.open.pop() else { return Progress::Broken };
        calls.arguments(if container.is_object { "}" } else { "]" });
        self.phase = Phase::More;
        if self.open.is_empty() { Progress::Done } else { Progress::Inside }
    }

    /// What may follow an opening bracket or a comma.
    fn next(&mut self) {
        let is_object = self.open.last().is_some_and(|container| container.is_object);
        let seen = String::new();
        self.phase = if is_object { Phase::Key(seen) } else { Phase::Value(seen) };
    }

    /// A member of the innermost container begins: the comma before it.
    fn member(&mut self, calls: &mut Calls) {
        if let Some(container) = self.open.last_mut()
            && !std::mem::take(&mut container.is_empty)
        {
            calls.arguments(", ");
        }
    }

    fn begin_value(&mut self, calls: &mut Calls) {
        if self.open.last().is_some_and(|container| !container.is_object) {
            self.member(calls);
        }
    }

    fn key(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Key(seen) = &mut self.phase else { return Progress::Broken };
        match c {
            '}' if seen.is_empty() => return self.leave(calls),
            ':' if !seen.trim().is_empty() => {
                let key = seen.trim().to_owned();
                return self.begin_member(&key, true, calls);
            }
            c if c.is_whitespace() && seen.is_empty() => return Progress::Inside,
            '{' | '}' | '[' | ']' | ',' | ':' | '\n' => return Progress::Broken,
            c => seen.push(c),
        }
        if seen == self.quote {
            self.phase = Phase::QuotedKey(String::new());
        } else if seen.len() > MAX_WORD {
            return Progress::Broken;
        }
        Progress::Inside
    }

    fn quoted_key(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::QuotedKey(seen) = &mut self.phase else { return Progress::Broken };
        seen.push(c);
        let Some(key) = seen.strip_suffix(self.quote) else {
            return if seen.len() > MAX_WORD { Progress::Broken } else { Progress::Inside };
        };
        let key = key.to_owned();
        self.begin_member(&key, false, calls)
    }

    fn begin_member(&mut self, key: &str, colon: bool, calls: &mut Calls) -> Progress {
        self.member(calls);
        calls.arguments(&format!("{}: ", Value::from(key)));
        self.phase = if colon { Phase::Value(String::new()) } else { Phase::Colon };
        Progress::Inside
    }

    fn value(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Value(seen) = &mut self.phase else { return Progress::Broken };
        match c {
            c if c.is_whitespace() && seen.is_empty() => Progress::Inside,
            '{' | '[' if seen.is_empty() => {
                self.begin_value(calls);
                self.enter(c == '{', calls)
            }
            ']' if seen.is_empty() && self.open.last().is_some_and(|open| !open.is_object) => {
                self.leave(calls)
            }
            ',' | '}' | ']' => {
                let word = std::mem::take(seen);
                let Some(json) = word_to_json(&word) else { return Progress::Broken };
                self.begin_value(calls);
                calls.arguments(&json);
                self.phase = Phase::More;
                self.more(c, calls)
            }
            c => {
                seen.push(c);
                if seen == self.quote {
                    self.begin_value(calls);
                    calls.arguments("\"");
                    self.phase = Phase::Text(String::new());
                } else if seen.len() > MAX_WORD || c == '{' {
                    return Progress::Broken;
                }
                Progress::Inside
            }
        }
    }

    fn text(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Text(held) = &mut self.phase else { return Progress::Broken };
        held.push(c);
        if let Some(rest) = held.strip_suffix(self.quote) {
            calls.arguments(&(escaped(rest) + "\""));
            self.phase = Phase::More;
            return Progress::Inside;
        }
        let mut starts = held.char_indices().map(|(at, _)| at);
        let kept = starts.find(|at| self.quote.starts_with(&held[*at..])).unwrap_or(held.len());
        let rest = held.split_off(kept);
        calls.arguments(&escaped(&std::mem::replace(held, rest)));
        Progress::Inside
    }

    fn more(&mut self, c: char, calls: &mut Calls) -> Progress {
        let is_object = self.open.last().is_some_and(|container| container.is_object);
        match c {
            c if c.is_whitespace() => Progress::Inside,
            ',' => {
                self.next();
                Progress::Inside
            }
            '}' if is_object => self.leave(calls),
            ']' if !is_object => self.leave(calls),
            _ => Progress::Broken,
        }
    }
}

impl Reader for GemmaCall {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        match &self.phase {
            Phase::Head(_) => self.head(c, calls),
            Phase::Key(_) => self.key(c, calls),
            Phase::QuotedKey(_) => self.quoted_key(c, calls),
            Phase::Colon if c.is_whitespace() => Progress::Inside,
            Phase::Colon if c == ':' => {
                self.phase = Phase::Value(String::new());
                Progress::Inside
            }
            Phase::Colon => Progress::Broken,
            Phase::Value(_) => self.value(c, calls),
            Phase::Text(_) => self.text(c, calls),
            Phase::More => self.more(c, calls),
        }
    }

    fn in_markup(&self) -> bool {
        !matches!(self.phase, Phase::Head(_))
    }
}

/// A number or a word, JSON's or Python's; a text that lacks its marks otherwise.
fn word_to_json(word: &str) -> Option<String> {
    let word = word.trim();
    let json = match word {
        "" => return None,
        "True" => "true".to_owned(),
        "False" => "false".to_owned(),
        "None" => "null".to_owned(),
        _ => match serde_json::from_str::<Value>(word) {
            Ok(_) => word.to_owned(),
            Err(_) => Value::from(word).to_string(),
        },
    };
    Some(json)
}
