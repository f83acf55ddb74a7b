//! Reads a call whose name stands before its arguments: a head that holds the name, then a JSON
//! object.

use super::json_call::push_json;
use super::json_scanner::{JsonScanner, Malformed, Step};
use super::markup::{Calls, Progress, Reader};

/// Longer heads are text.
const MAX_HEAD: usize = 400;

/// How a family writes names.
#[derive(Debug)]
pub(super) struct Head {
    /// What opens a call behind the text that opens all of them; empty where there is one text only.
    pub(super) lead: &'static str,
    /// The name in what stands between the opening text and the opening brace.
    pub(super) name: fn(&str) -> Option<&str>,
    /// The call's id in the same text, where the model gives it one.
    pub(super) id: fn(&str) -> Option<&str>,
}

/// The id in heads that have none.
pub(super) fn no_id(_: &str) -> Option<&str> {
    None
}

/// Reads the call behind one opening text.
#[derive(Debug)]
pub(super) struct NamedJson {
    head: &'static Head,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Before the lead, or within it.
    Lead(String),
    /// Before the opening brace.
    Name(String),
    Arguments(JsonScanner),
}

impl NamedJson {
    /// Reads a call from the lead on, or where `led` from behind it.
    pub(super) fn new(head: &'static Head, led: bool) -> Self {
        let phase = if led { Phase::Name(String::new()) } else { Phase::Lead(String::new()) };
        Self { head, phase }
    }

    fn arguments(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Arguments(scanner) = &mut self.phase else { return Progress::Broken };
        let in_string = scanner.in_string();
        let step = scanner.feed(c);
        if step == Err(Malformed) {
            return Progress::Broken;
        }
        let mut piece = String::new();
        push_json(&mut piece, c, in_string);
        calls.arguments(&piece);
        match step {
            Ok(Step::ObjectEnd | Step::BehindValue { closes: true }) => Progress::Done,
            _ => Progress::Inside,
        }
    }
}

impl Reader for NamedJson {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        match &mut self.phase {
            Phase::Lead(seen) if seen.is_empty() && c.is_whitespace() => Progress::Inside,
            Phase::Lead(seen) => {
                seen.push(c);
                if seen == self.head.lead {
                    self.phase = Phase::Name(String::new());
                } else if !self.head.lead.starts_with(seen.as_str()) {
                    return Progress::Broken;
                }
                Progress::Inside
            }
            Phase::Name(seen) if c == '{' => {
                let Some(name) = (self.head.name)(seen) else { return Progress::Broken };
                calls.begin_as(name, (self.head.id)(seen));
                self.phase = Phase::Arguments(JsonScanner::default());
                self.arguments(c, calls)
            }
            Phase::Name(seen) => {
                seen.push(c);
                if seen.len() > MAX_HEAD { Progress::Broken } else { Progress::Inside }
            }
            Phase::Arguments(_) => self.arguments(c, calls),
        }
    }

    fn in_markup(&self) -> bool {
        matches!(self.phase, Phase::Arguments(_))
    }
}

/// Whether this may be a function's name: one word without the characters of markup.
pub(super) fn is_name(text: &str) -> bool {
    let in_name = |c: char| !c.is_whitespace() && !"<>[]{}()\"'`,;|｜".contains(c);
    !text.is_empty() && text.len() <= 256 && text.chars().all(in_name)
}

/// Whether this may be a call's id: one word without the characters of markup, of a length that
/// clients bear.
pub(super) fn is_id(text: &str) -> bool {
    let in_id = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    !text.is_empty() && text.len() <= 128 && text.chars().all(in_id)
}
