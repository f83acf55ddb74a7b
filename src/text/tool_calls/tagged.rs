//! Reads a call whose arguments stand in tags, one pair of tags each, with values as plain text.
//!
//! The call begins at its first parameter, or its end where it has none. A text is handed out while
//! it is written; other values when they are complete, since only the whole tells what they are.

use serde_json::Value;

use super::event::Functions;
use super::json_call::push_json;
use super::json_scanner::{JsonScanner, Step};
use super::markup::{Calls, Progress, Reader};
use super::named_json::is_name;
use super::parameter_types::{Types, to_json};

/// Longer names and keys are text.
const MAX_HEAD: usize = 400;

/// The text that opens a value whose characters are not the markup's.
pub(super) const CDATA: &str = "<![CDATA[";

/// What an attribute behind a parameter's key says of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    Nothing,
    /// Whether it is a text: `string="true"`.
    IsText,
    /// Its type: `type="number"`. The function's name has attributes as well.
    Type,
}

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
    /// What is said of the value behind the key, which stands in quotes where anything is.
    pub(super) says: Says,
    /// What opens the value behind the key; may be empty.
    pub(super) value_open: &'static str,
    /// What ends a parameter's value.
    pub(super) value_close: &'static str,
    /// What ends a value that began with `<![CDATA[`; empty where none does.
    pub(super) cdata_close: &'static str,
    /// Whether a line end at each end of a value is the markup's.
    pub(super) lines: bool,
    /// What opens all arguments as one JSON object, and what stands behind it up to the end of the
    /// call; empty where nothing does.
    pub(super) json_open: &'static str,
    pub(super) json_close: &'static str,
    /// What ends the call.
    pub(super) close: &'static str,
}

/// Tags to begin from, of a family that has all of them.
pub(super) const PLAIN: Tags = Tags {
    lead: "",
    name_end: "\">",
    key_open: "",
    key_end: "\">",
    says: Says::Nothing,
    value_open: "",
    value_close: "",
    cdata_close: "",
    lines: false,
    json_open: "",
    json_close: "",
    close: "",
};

impl Tags {
    /// The function's name in what stands before the end of the tag.
    fn name<'t>(&self, text: &'t str) -> &'t str {
        let name = text.split_once('"').filter(|_| self.says == Says::Type);
        name.map_or(text, |(name, _)| name).trim()
    }

    /// The key in what stands between the tag's ends, and what the attribute says of the value.
    fn key(&self, text: &str) -> Option<(String, Option<Types>)> {
        if self.says == Says::Nothing {
            return Some((text.trim().to_owned(), None)).filter(|(key, _)| !key.is_empty());
        }
        let (key, attributes) = text.split_once('"')?;
        let types = match (self.says, attributes.trim()) {
            (_, "") => None,
            (Says::Type, "type=\"string\"") | (_, "string=\"true\"") => Some(Types::TEXT),
            (_, "string=\"false\"") => Some(Types::NO_TEXT),
            (Says::Type, says) if says.starts_with("type=\"") => Some(Types::NO_TEXT),
            _ => return None,
        };
        let key = if self.says == Says::Type { unescaped(key) } else { key.to_owned() };
        (!key.is_empty()).then_some((key, types))
    }
}

/// An attribute's value without the references that stand in it.
fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&amp;", "&")
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
    /// Within all arguments as one JSON object.
    Json(JsonScanner),
    /// Behind it, with what was read.
    BehindJson(String),
}

/// A value that is being read.
#[derive(Debug)]
struct TaggedValue {
    types: Types,
    /// What was read and not handed out.
    held: String,
    /// Whether nothing has been read.
    fresh: bool,
    /// What ends the value.
    close: &'static str,
    /// Whether the value may still turn out to begin with `<![CDATA[`.
    may_be_cdata: bool,
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
        match name.map(|name| self.tags.name(name)) {
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
        let json = self.tags.json_open;
        let json = if self.count == 0 { json } else { "" };
        if seen == self.tags.key_open {
            self.phase = Phase::Key(String::new());
        } else if seen == json {
            self.phase = Phase::Json(JsonScanner::default());
        } else if seen == self.tags.close {
            self.begin(calls);
            calls.arguments("}");
            return Progress::Done;
        } else {
            let tags = [self.tags.key_open, self.tags.close, json];
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
        let Some((key, types)) = self.tags.key(text) else { return Progress::Broken };
        let of_schema = || Types::of(self.functions.parameters(&self.name), &key);
        let types = types.unwrap_or_else(of_schema);
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
        self.phase = Phase::Value(TaggedValue {
            types,
            held: String::new(),
            fresh: true,
            close: self.tags.value_close,
            may_be_cdata: !self.tags.cdata_close.is_empty(),
        });
    }

    fn value(&mut self, c: char, calls: &mut Calls) {
        let Phase::Value(value) = &mut self.phase else { return };
        let lines = self.tags.lines;
        if std::mem::take(&mut value.fresh) && lines && c == '\n' {
            return;
        }
        value.held.push(c);
        if value.looks_for_cdata(self.tags.cdata_close) {
            return;
        }
        let is_cdata = value.close != self.tags.value_close;
        let ended = value.held.strip_suffix(value.close).map(|text| {
            let text = text.strip_suffix('\n').filter(|_| lines).unwrap_or(text);
            let types = value.types;
            if types.is_text() {
                escaped(text) + "\""
            } else if is_cdata && types.may_be_text() {
                Value::from(text).to_string()
            } else {
                to_json(text, types)
            }
        });
        if let Some(rest) = ended {
            calls.arguments(&rest);
            self.phase = Phase::Between(String::new());
        } else if value.types.is_text() {
            let kept = value.certain(lines);
            let rest = value.held.split_off(kept);
            calls.arguments(&escaped(&std::mem::replace(&mut value.held, rest)));
        }
    }

    fn json(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Json(scanner) = &mut self.phase else { return Progress::Broken };
        let in_string = scanner.in_string();
        let Ok(step) = scanner.feed(c) else { return Progress::Broken };
        let mut piece = String::new();
        push_json(&mut piece, c, in_string);
        if c == '{' && !self.begun {
            self.begun = true;
            calls.begin(&self.name);
        }
        if self.begun {
            calls.arguments(&piece);
        }
        if matches!(step, Step::ObjectEnd | Step::BehindValue { closes: true }) {
            self.phase = Phase::BehindJson(String::new());
        }
        Progress::Inside
    }

    fn behind_json(&mut self, c: char) -> Progress {
        let Phase::BehindJson(seen) = &mut self.phase else { return Progress::Broken };
        if seen.is_empty() && c.is_whitespace() {
            return Progress::Inside;
        }
        seen.push(c);
        if seen == self.tags.json_close {
            return Progress::Done;
        }
        let fits = self.tags.json_close.starts_with(seen.as_str());
        if fits { Progress::Inside } else { Progress::Broken }
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
    /// Whether what is held may be, or is, what opens CDATA, and nothing else is to be made of it.
    fn looks_for_cdata(&mut self, close: &'static str) -> bool {
        if !self.may_be_cdata {
            return false;
        }
        self.may_be_cdata = CDATA != self.held && CDATA.starts_with(&self.held);
        if self.held == CDATA {
            self.held.clear();
            self.close = close;
            return true;
        }
        self.may_be_cdata
    }

    /// How much of what is held can't be the beginning of the value's end.
    fn certain(&self, lines: bool) -> usize {
        let close = self.close;
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
            Phase::Json(_) => self.json(c, calls),
            Phase::BehindJson(_) => self.behind_json(c),
        }
    }

    fn in_markup(&self) -> bool {
        self.begun
    }
}

/// A text as it stands in a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
