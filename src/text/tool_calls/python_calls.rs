//! Reads Python calls with keyword arguments, a list of them, `[f(a=1, b="x"), g()]`, or lines up to a
//! closing text.
//!
//! A call begins with its first argument, or its end where it has none; each argument is handed out
//! when it is complete.

use serde_json::Value;

use super::markup::{Calls, Progress, Reader};
use super::python_literal;

/// Longer names and keywords are text.
const MAX_WORD: usize = 256;

/// Reads the list of calls behind one opening text.
#[derive(Debug, Default)]
pub(super) struct PythonCalls {
    phase: Phase,
    /// The name of the call that is being read.
    name: String,
    /// Arguments of the current call so far; none before an event told of the call.
    arguments: usize,
    begun: bool,
    /// What ends the lines; empty where a list is read.
    close: &'static str,
}

#[derive(Debug, Default)]
enum Phase {
    /// Before the list of calls.
    #[default]
    Start,
    /// Before a name or within it; `after` where a call stands before it.
    Name {
        after: bool,
    },
    /// Before a keyword, its `=`, or the call's end.
    Keyword(String),
    Value(PythonValue),
    /// Behind a call.
    Between,
    /// Before a call on a line of its own.
    Line,
    /// Within the text that closes lines.
    Closing(String),
}

/// The text of an argument's value, and where in it reading is.
#[derive(Debug, Default)]
struct PythonValue {
    keyword: String,
    text: String,
    /// Brackets that are open.
    depth: usize,
    quote: Option<char>,
    /// The quote that stood last, if only whitespace follows it so far.
    closed: Option<char>,
    escaped: bool,
}

impl PythonValue {
    /// Whether the character is the first behind the value; else it becomes a part of it.
    fn ends_at(&mut self, c: char) -> bool {
        if let Some(quote) = self.closed.take_if(|_| !c.is_whitespace())
            && !python_literal::may_follow_string(c)
        {
            self.quote = Some(quote);
        }
        match self.quote {
            Some(_) if self.escaped => self.escaped = false,
            Some(_) if c == '\\' => self.escaped = true,
            Some(quote) if c == quote => self.closed = self.quote.take(),
            Some(_) => {}
            None => match c {
                ',' | ')' if self.depth == 0 => return true,
                '"' | '\'' => self.quote = Some(c),
                '[' | '(' | '{' => self.depth += 1,
                // One bracket too many is told when the literal is read.
                ']' | ')' | '}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            },
        }
        self.text.push(c);
        false
    }
}

impl PythonCalls {
    /// Reads lines, up to `close` and with it.
    pub(super) fn lines(close: &'static str) -> Self {
        Self { close, ..Self::default() }
    }

    /// Takes what stands between the calls of lines.
    fn between_lines(&mut self, c: char) -> Progress {
        if self.close.starts_with(c) {
            let after = matches!(self.phase, Phase::Between | Phase::Line);
            self.phase = Phase::Closing(c.to_string());
            return if after { Progress::Inside } else { Progress::Broken };
        }
        match self.phase {
            _ if c == '\n' && matches!(self.phase, Phase::Between) => self.phase = Phase::Line,
            _ if c.is_whitespace() => {}
            Phase::Start | Phase::Line => {
                self.phase = Phase::Name { after: false };
                return self.name(c, false);
            }
            _ => return Progress::Broken,
        }
        Progress::Inside
    }

    fn closing(&mut self, c: char) -> Progress {
        let Phase::Closing(seen) = &mut self.phase else { return Progress::Broken };
        seen.push(c);
        match self.close.strip_prefix(seen.as_str()) {
            Some("") => Progress::Done,
            Some(_) => Progress::Inside,
            None => Progress::Broken,
        }
    }

    fn name(&mut self, c: char, after: bool) -> Progress {
        match c {
            '(' if !self.name.is_empty() => self.phase = Phase::Keyword(String::new()),
            // A comma may stand behind the last call.
            ']' if self.name.is_empty() && after => return Progress::Done,
            c if c.is_whitespace() && self.name.is_empty() => {}
            c if is_in_word(c, self.name.is_empty())
                || (matches!(c, '.' | '-' | '/' | ':') && !self.name.is_empty()) =>
            {
                self.name.push(c);
                if self.name.len() > MAX_WORD {
                    return Progress::Broken;
                }
            }
            _ => return Progress::Broken,
        }
        Progress::Inside
    }

    fn keyword(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Keyword(keyword) = &mut self.phase else { return Progress::Broken };
        let word = keyword.trim_end();
        match c {
            '=' if !word.is_empty() => {
                let keyword = word.to_owned();
                self.phase = Phase::Value(PythonValue { keyword, ..PythonValue::default() });
            }
            ')' if word.is_empty() => self.end_call(calls),
            c if c.is_whitespace() && keyword.is_empty() => {}
            c if c.is_whitespace() => keyword.push(' '),
            c if is_in_word(c, keyword.is_empty()) && word.len() == keyword.len() => {
                keyword.push(c);
                if keyword.len() > MAX_WORD {
                    return Progress::Broken;
                }
            }
            _ => return Progress::Broken,
        }
        Progress::Inside
    }

    fn value(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Value(value) = &mut self.phase else { return Progress::Broken };
        if !value.ends_at(c) {
            return Progress::Inside;
        }
        let Some(json) = python_literal::to_json(&value.text) else { return Progress::Broken };
        let key = Value::from(std::mem::take(&mut value.keyword));
        self.begin(calls);
        let comma = if self.arguments == 0 { "" } else { ", " };
        calls.arguments(&format!("{comma}{key}: {json}"));
        self.arguments += 1;
        if c == ')' {
            self.end_call(calls);
        } else {
            self.phase = Phase::Keyword(String::new());
        }
        Progress::Inside
    }

    fn begin(&mut self, calls: &mut Calls) {
        if !self.begun {
            self.begun = true;
            calls.begin(&self.name);
            calls.arguments("{");
        }
    }

    fn end_call(&mut self, calls: &mut Calls) {
        self.begin(calls);
        calls.arguments("}");
        *self = Self { phase: Phase::Between, close: self.close, ..Self::default() };
    }
}

impl Reader for PythonCalls {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        match &self.phase {
            Phase::Start | Phase::Between | Phase::Line if !self.close.is_empty() => {
                self.between_lines(c)
            }
            Phase::Closing(_) => self.closing(c),
            Phase::Start | Phase::Between if c.is_whitespace() => Progress::Inside,
            Phase::Start if c == '[' => {
                self.phase = Phase::Name { after: false };
                Progress::Inside
            }
            Phase::Name { after } => self.name(c, *after),
            Phase::Keyword(_) => self.keyword(c, calls),
            Phase::Value(_) => self.value(c, calls),
            Phase::Between if c == ',' => {
                self.phase = Phase::Name { after: true };
                Progress::Inside
            }
            Phase::Between if c == ']' => Progress::Done,
            Phase::Start | Phase::Between | Phase::Line => Progress::Broken,
        }
    }

    fn in_markup(&self) -> bool {
        let between = matches!(self.phase, Phase::Between | Phase::Line | Phase::Closing(_));
        self.begun || between
    }
}

fn is_in_word(c: char, first: bool) -> bool {
    c == '_' || if first { c.is_alphabetic() } else { c.is_alphanumeric() }
}
