//! Reads one call that is a JSON object: name and arguments are members of it, in any order.
//!
//! The call begins as soon as its name and the first character of its arguments are known; arguments
//! are handed out as they are written. Knows nothing of what stands around the object.

use std::fmt::Write as _;

use serde_json::Value;

use super::json_scanner::{JsonScanner, Malformed, Step};
use super::markup::{Calls, Progress};

/// What the members of a call are called.
#[derive(Debug)]
pub(super) enum Keys {
    /// Name and arguments have a member each.
    Members {
        names: &'static [&'static str],
        arguments: &'static [&'static str],
        /// Other keys that a call may have; with none given it may have any.
        others: Option<&'static [&'static str]>,
    },
    /// The only key is the name, its value are the arguments.
    NameIsKey,
}

/// The usual keys, beside any others: what stands behind an opening text is meant as a call.
pub(super) const NAME_AND_ARGUMENTS: Keys =
    Keys::Members { names: &["name"], arguments: &["arguments", "parameters"], others: None };

/// The usual keys where nothing but the keys tells a call from an answer in JSON.
pub(super) const ONLY_NAME_AND_ARGUMENTS: Keys = Keys::Members {
    names: &["name"],
    arguments: &["arguments", "parameters"],
    others: Some(&["type", "id"]),
};

/// Appends a character of a JSON document. Models write line ends into strings; JSON wants them
/// escaped.
pub(super) fn push_json(json: &mut String, c: char, in_string: bool) {
    if in_string && c < ' ' {
        let escaped = write!(json, "\\u{:04x}", u32::from(c));
        escaped.expect("writing to a string does not fail");
    } else {
        json.push(c);
    }
}

/// A call that is being read, from its opening brace on.
#[derive(Debug)]
pub(super) struct JsonCall {
    keys: &'static Keys,
    /// All of the call's text.
    raw: String,
    scanner: JsonScanner,
    /// Where the key or value that is being read starts in `raw`.
    start: usize,
    key: Option<String>,
    name: Option<String>,
    /// Arguments that are known and not handed out.
    arguments: String,
    /// Whether the value that is being read is the arguments' object.
    in_arguments: bool,
    has_arguments: bool,
    begun: bool,
}

impl JsonCall {
    pub(super) fn new(keys: &'static Keys) -> Self {
        Self {
            keys,
            raw: String::new(),
            scanner: JsonScanner::default(),
            start: 0,
            key: None,
            name: None,
            arguments: String::new(),
            in_arguments: false,
            has_arguments: false,
            begun: false,
        }
    }

    /// Whether the call has been told of.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    /// Takes the next character.
    pub(super) fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        let progress = self.read(c);
        if progress != Progress::Broken {
            self.hand_out(calls);
        }
        progress
    }

    /// Tells of the call once its name and arguments are known.
    fn hand_out(&mut self, calls: &mut Calls) {
        let Some(name) = self.name.as_deref().filter(|_| self.has_arguments) else { return };
        if !self.begun {
            self.begun = true;
            calls.begin(name);
        }
        calls.arguments(&std::mem::take(&mut self.arguments));
    }

    fn read(&mut self, c: char) -> Progress {
        let at = self.raw.len();
        let in_string = self.scanner.in_string();
        self.raw.push(c);
        let step = self.scanner.feed(c);
        if self.in_arguments && step.is_ok() {
            push_json(&mut self.arguments, c, in_string);
        }
        match step {
            Err(Malformed) => Progress::Broken,
            Ok(Step::Inside) => {
                if c == '"' && self.key.is_none() && !in_string {
                    self.start = at;
                }
                Progress::Inside
            }
            Ok(Step::KeyEnd) => self.key_end(),
            Ok(Step::ValueStart) => {
                self.start = at;
                if c == '{' && self.is_arguments() {
                    self.in_arguments = true;
                    self.has_arguments = true;
                    self.arguments.push(c);
                }
                Progress::Inside
            }
            Ok(Step::ValueEnd) => self.value_end(self.raw.len()),
            Ok(Step::BehindValue { closes }) => match self.value_end(at) {
                Progress::Inside if closes => self.object_end(),
                progress => progress,
            },
            Ok(Step::ObjectEnd) => self.object_end(),
        }
    }

    fn key_end(&mut self) -> Progress {
        let Ok(key) = serde_json::from_str::<String>(&self.raw[self.start..]) else {
            return Progress::Broken;
        };
        let known = match self.keys {
            Keys::Members { others: None, .. } => true,
            Keys::Members { names, arguments, others: Some(others) } => {
                [names, arguments, others].iter().any(|keys| keys.contains(&key.as_str()))
            }
            Keys::NameIsKey => self.name.replace(key.clone()).is_none() && !key.is_empty(),
        };
        self.key = Some(key);
        if known { Progress::Inside } else { Progress::Broken }
    }

    /// Whether the member that is being read holds the arguments, for the first time.
    fn is_arguments(&self) -> bool {
        let key = self.key.as_deref().unwrap_or_default();
        let is_key = match self.keys {
            Keys::Members { arguments, .. } => arguments.contains(&key),
            Keys::NameIsKey => true,
        };
        is_key && !self.has_arguments
    }

    fn is_name(&self) -> bool {
        let key = self.key.as_deref().unwrap_or_default();
        let is_key = matches!(self.keys, Keys::Members { names, .. } if names.contains(&key));
        is_key && self.name.is_none()
    }

    fn value_end(&mut self, end: usize) -> Progress {
        let value = &self.raw[self.start..end];
        if self.in_arguments {
            self.in_arguments = false;
        } else if self.is_name() {
            match serde_json::from_str::<String>(value) {
                Ok(name) if !name.is_empty() => self.name = Some(name),
                _ => return Progress::Broken,
            }
        } else if self.is_arguments() {
            let Some(document) = document(value) else { return Progress::Broken };
            self.arguments = document;
            self.has_arguments = true;
        }
        self.key = None;
        Progress::Inside
    }

    fn object_end(&mut self) -> Progress {
        if self.name.is_none() {
            return Progress::Broken;
        }
        if !self.has_arguments {
            if matches!(self.keys, Keys::NameIsKey) {
                return Progress::Broken;
            }
            self.has_arguments = true;
            "{}".clone_into(&mut self.arguments);
        }
        Progress::Done
    }
}

/// Arguments that are no object: a string holds the JSON document, `null` says that there are none.
fn document(value: &str) -> Option<String> {
    match serde_json::from_str(value) {
        Ok(Value::Null) => Some("{}".to_owned()),
        Ok(Value::String(text)) if text.trim().is_empty() => Some("{}".to_owned()),
        Ok(Value::String(text)) => {
            let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&text).is_ok();
            is_object.then_some(text)
        }
        _ => None,
    }
}
