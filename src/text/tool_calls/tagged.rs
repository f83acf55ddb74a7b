//! Reads a call whose arguments stand in tags, one pair of tags each, with values as plain text.
//!
//! The call begins at its first parameter, or its end where it has none. A text is handed out while
//! it is written; other values when they are complete, since only the whole tells what they are.

use serde_json::Value;

use super::event::Functions;
use super::markup::{Calls, Progress, Reader};
use super::named_json::is_name;
use super::parameter_types::{Types, to_json};

/// Longer names and keys are text.
const MAX_HEAD: usize = 400;

/// The tags that a family writes around calls and parameters.
#[derive(Debug)]
pub(super) struct Tags {
    /// What opens a call behind the text that opens all of them.
    pub(super) lead: &'static str,
    /// What ends the function's name; empty where a line end or the next tag does.
    pub(super) name_end: &'static str,
    /// What opens a parameter's key.
    pub(super) key_open: &'static str,
    /// What ends a parameter's key.
    pub(super) key_end: &'static str,
    /// Whether the key stands in quotes, followed by an attribute that says if the value is a text.
    pub(super) says_text: bool,
    /// What opens the value behind the key; may be empty.
    pub(super) value_open: &'static str,
    /// What ends a parameter's value.
    pub(super) value_close: &'static str,
    /// Whether a line end at each end of a value is the markup's.
    pub(super) lines: bool,
    /// What ends the call.
    pub(super) close: &'static str,
}

impl Tags {
    /// The key in what stands between the tag's ends, and what the attribute says of the value.
    fn key<'t>(&self, text: &'t str) -> Option<(&'t str, Option<bool>)> {
        let (key, attributes) = match text.split_once('"') {
            Some(parts) if self.says_text => parts,
            None if self.says_text => return None,
            _ => (text.trim(), ""),
        };
        let is_text = match attributes.trim() {
            "string=\"true\"" => Some(true),
            "string=\"false\"" => Some(false),
            "" => None,
            _ => return None,
        };
        (!key.is_empty()).then_some((key, is_text))
    }
}

/// Reads the call behind one opening text.
#[derive(Debug)]
pub(super) struct Tagged {
    tags: &'static Tags,
    functions: Functions,
    phase: Phase,
    name: String,
    /// Parameters of the call so far.
    count: usize,
    begun: bool,
}

#[derive(Debug)]
enum Phase {
    /// Before the lead, or within it.
    Lead(String),
    Name(String),
    /// Before a parameter or the end of the call, or within the text that opens them.
    Between(String),
    Key(String),
    /// Before the value, or within the text that opens it.
    ValueOpen {
        seen: String,
        key: String,
        types: Types,
    },
    Value(TaggedValue),
}

/// A value that is being read.
#[derive(Debug)]
struct TaggedValue {
    types: Types,
    /// What was read and not handed out.
    held: String,
    /// Whether nothing has been read.
    fresh: bool,
}

impl Tagged {
    /// Reads a call from the lead on, or where `led` from behind it.
    pub(super) fn new(tags: &'static Tags, functions: &Functions, led: bool) -> Self {
        let phase = if led { Phase::Name(String::new()) } else { Phase::Lead(String::new()) };
        let (functions, name) = (functions.clone(), String::new());
        Self { tags, functions, phase, name, count: 0, begun: false }
    }

    fn name(&mut self, c: char) -> Progress {
        let Phase::Name(seen) = &mut self.phase else { return Progress::Broken };
        seen.push(c);
        let end = self.tags.name_end;
        // Without a text of its own, the name ends at a line end or before a tag.
        let (name, rest) = if !end.is_empty() {
            (seen.strip_suffix(end), "")
        } else if c == '<' {
            (seen.strip_suffix('<'), "<")
        } else {
            (seen.strip_suffix('\n').filter(|name| !name.trim().is_empty()), "")
        };
        match name.map(str::trim) {
            None if seen.len() > MAX_HEAD => Progress::Broken,
            None => Progress::Inside,
            Some(name) if is_name(name) => {
                name.clone_into(&mut self.name);
                self.phase = Phase::Between(rest.to_owned());
                Progress::Inside
            }
            Some(_) => Progress::Broken,
        }
    }

    fn between(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Between(seen) = &mut self.phase else { return Progress::Broken };
        if seen.is_empty() && c.is_whitespace() {
            return Progress::Inside;
        }
        seen.push(c);
        if seen == self.tags.key_open {
            self.phase = Phase::Key(String::new());
        } else if seen == self.tags.close {
            self.begin(calls);
            calls.arguments("}");
            return Progress::Done;
        } else {
            let tags = [self.tags.key_open, self.tags.close];
            if !tags.iter().any(|tag| tag.starts_with(seen.as_str())) {
                return Progress::Broken;
            }
        }
        Progress::Inside
    }

    fn key(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Key(seen) = &mut self.phase else { return Progress::Broken };
        seen.push(c);
        let Some(text) = seen.strip_suffix(self.tags.key_end) else {
            return if seen.len() > MAX_HEAD { Progress::Broken } else { Progress::Inside };
        };
        let Some((key, is_text)) = self.tags.key(text) else { return Progress::Broken };
        let types = match is_text {
            Some(true) => Types::TEXT,
            Some(false) => Types::NO_TEXT,
            None => Types::of(self.functions.parameters(&self.name), key),
        };
        let key = key.to_owned();
        if self.tags.value_open.is_empty() {
            self.open_value(&key, types, calls);
        } else {
            self.phase = Phase::ValueOpen { seen: String::new(), key, types };
        }
        Progress::Inside
    }

    fn value_open(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::ValueOpen { seen, key, types } = &mut self.phase else {
            return Progress::Broken;
        };
        if seen.is_empty() && c.is_whitespace() {
            return Progress::Inside;
        }
        seen.push(c);
        if seen == self.tags.value_open {
            let (key, types) = (std::mem::take(key), *types);
            self.open_value(&key, types, calls);
        } else if !self.tags.value_open.starts_with(seen.as_str()) {
            return Progress::Broken;
        }
        Progress::Inside
    }

    fn open_value(&mut self, key: &str, types: Types, calls: &mut Calls) {
        self.begin(calls);
        let comma = if self.count == 0 { "" } else { ", " };
        let quote = if types.is_text() { "\"" } else { "" };
        calls.arguments(&format!("{comma}{}: {quote}", Value::from(key)));
        self.count += 1;
        self.phase = Phase::Value(TaggedValue { types, held: String::new(), fresh: true });
    }

    fn value(&mut self, c: char, calls: &mut Calls) {
        let Phase::Value(value) = &mut self.phase else { return };
        let lines = self.tags.lines;
        if std::mem::take(&mut value.fresh) && lines && c == '\n' {
            return;
        }
        value.held.push(c);
        let ended = value.held.strip_suffix(self.tags.value_close).map(|text| {
            let text = text.strip_suffix('\n').filter(|_| lines).unwrap_or(text);
            if value.types.is_text() { escaped(text) + "\"" } else { to_json(text, value.types) }
        });
        if let Some(rest) = ended {
            calls.arguments(&rest);
            self.phase = Phase::Between(String::new());
        } else if value.types.is_text() {
            let kept = value.certain(self.tags.value_close, lines);
            let rest = value.held.split_off(kept);
            calls.arguments(&escaped(&std::mem::replace(&mut value.held, rest)));
        }
    }

    fn begin(&mut self, calls: &mut Calls) {
        if !self.begun {
            self.begun = true;
            calls.begin(&self.name);
            calls.arguments("{");
        }
    }
}

impl TaggedValue {
    /// How much of what is held can't be the beginning of the value's end.
    fn certain(&self, close: &str, lines: bool) -> usize {
        let may_end = |rest: &str| {
            let tag = rest.strip_prefix('\n').filter(|_| lines);
            close.starts_with(rest) || tag.is_some_and(|tag| close.starts_with(tag))
        };
        let mut starts = self.held.char_indices().map(|(at, _)| at);
        starts.find(|at| may_end(&self.held[*at..])).unwrap_or(self.held.len())
    }
}

impl Reader for Tagged {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        match &mut self.phase {
            Phase::Lead(seen) if seen.is_empty() && c.is_whitespace() => Progress::Inside,
            Phase::Lead(seen) => {
                seen.push(c);
                if seen == self.tags.lead {
                    self.phase = Phase::Name(String::new());
                } else if !self.tags.lead.starts_with(seen.as_str()) {
                    return Progress::Broken;
                }
                Progress::Inside
            }
            Phase::Name(_) => self.name(c),
            Phase::Between(_) => self.between(c, calls),
            Phase::Key(_) => self.key(c, calls),
            Phase::ValueOpen { .. } => self.value_open(c, calls),
            Phase::Value(_) => {
                self.value(c, calls);
                Progress::Inside
            }
        }
    }

    fn in_markup(&self) -> bool {
        self.begun
    }
}

/// A text as it stands in a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
