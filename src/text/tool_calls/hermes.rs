//! The calls of Hermes and Qwen models: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
//!
//! A call begins as soon as its name and the first character of its arguments are known; arguments
//! are handed out as they are written. What is malformed before that comes out as content, tag and
//! all; what becomes malformed later ends the call there, and the rest is content. Whitespace around
//! calls belongs to the markup and is dropped.

use std::fmt::Write as _;

use super::json_scanner::{JsonScanner, Malformed, Step};
use super::{Events, ToolCallParser, ToolEvent};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Whether a chat template shows calls in this way. Others put XML, or a list of calls, between the
/// same tags.
pub(super) fn is_family_of(template_source: &str) -> bool {
    let has = |text: &str| template_source.contains(text);
    let names = has("\"name\"") || has("\\\"name\\\"");
    let other = ["<function=", "<arg_key>", "<parameter", "list of json objects"];
    has(OPEN) && names && !other.into_iter().any(has)
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Hermes {
    state: State,
    /// Calls begun so far.
    calls: usize,
    /// Whitespace that is content only if no call follows.
    space: String,
    events: Events,
}

#[derive(Debug)]
enum State {
    /// Outside of calls; what has been read is the beginning of the opening tag.
    Text(String),
    Call(Box<Call>),
    /// Behind a call: whitespace and the beginning of the closing tag.
    Behind(String),
}

impl Default for State {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// A call that is being read.
#[derive(Debug, Default)]
struct Call {
    /// All of it behind the opening tag.
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

/// What a character did to a call.
enum Progress {
    Inside,
    Complete,
    Broken,
}

impl ToolCallParser for Hermes {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        for c in text.chars() {
            self.feed(c);
        }
        self.hand_out_arguments();
        self.events.take()
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        match std::mem::take(&mut self.state) {
            State::Call(call) if call.begun => {}
            State::Call(call) => {
                self.text(OPEN);
                self.text(&call.raw);
            }
            State::Behind(text) if CLOSE.starts_with(text.trim_start()) => {}
            State::Text(text) | State::Behind(text) => self.text(&text),
        }
        if self.calls == 0 {
            self.events.content(&std::mem::take(&mut self.space));
        }
        self.events.take()
    }
}

impl Hermes {
    fn feed(&mut self, c: char) {
        match &mut self.state {
            State::Text(seen) => {
                seen.push(c);
                if seen == OPEN {
                    self.state = State::Call(Box::default());
                } else if !OPEN.starts_with(seen.as_str()) {
                    // The tag holds its first character only once, so only the last one read can
                    // begin another.
                    let seen = std::mem::take(seen);
                    let kept = if c == '<' { seen.len() - 1 } else { seen.len() };
                    self.text(&seen[..kept]);
                    self.state = State::Text(seen[kept..].to_owned());
                }
            }
            State::Call(call) => match call.feed(c) {
                Progress::Inside => self.begin_call(),
                Progress::Complete => {
                    self.begin_call();
                    self.hand_out_arguments();
                    self.state = State::Behind(String::new());
                }
                Progress::Broken => self.give_up(),
            },
            State::Behind(seen) => {
                seen.push(c);
                let tag = seen.trim_start();
                if tag == CLOSE {
                    self.state = State::default();
                } else if !CLOSE.starts_with(tag) {
                    let seen = std::mem::take(seen);
                    self.state = State::default();
                    for c in seen.chars() {
                        self.feed(c);
                    }
                }
            }
        }
    }

    /// Announces the call once its name and arguments are known.
    fn begin_call(&mut self) {
        let State::Call(call) = &mut self.state else { return };
        if !call.begun && call.has_arguments && call.name.is_some() {
            call.begun = true;
            let name = call.name.clone().unwrap_or_default();
            self.events.begin(self.calls, name);
            self.calls += 1;
            self.space.clear();
        }
    }

    fn hand_out_arguments(&mut self) {
        let State::Call(call) = &mut self.state else { return };
        if call.begun && !call.arguments.is_empty() {
            self.events.arguments(self.calls - 1, &std::mem::take(&mut call.arguments));
        }
    }

    /// The call is malformed at its last character: what was not handed out is content.
    fn give_up(&mut self) {
        self.hand_out_arguments();
        let State::Call(call) = std::mem::take(&mut self.state) else { return };
        if call.begun {
            let last = call.raw.chars().next_back();
            if let Some(last) = last {
                self.feed(last);
            }
        } else {
            self.text(OPEN);
            for c in call.raw.chars() {
                self.feed(c);
            }
        }
    }

    /// Content; whitespace waits for what follows.
    fn text(&mut self, text: &str) {
        let body = text.trim_end();
        if !body.is_empty() {
            self.events.content(&std::mem::take(&mut self.space));
            self.events.content(body);
        }
        self.space.push_str(&text[body.len()..]);
    }
}

impl Call {
    fn feed(&mut self, c: char) -> Progress {
        let at = self.raw.len();
        let in_string = self.scanner.in_string();
        self.raw.push(c);
        let step = self.scanner.feed(c);
        if self.in_arguments && step.is_ok() {
            self.add_argument(c, in_string);
        }
        match step {
            Err(Malformed) => Progress::Broken,
            Ok(Step::Inside) => {
                if c == '"' && self.key.is_none() && !in_string {
                    self.start = at;
                }
                Progress::Inside
            }
            Ok(Step::KeyEnd) => {
                self.key = serde_json::from_str(&self.raw[self.start..]).ok();
                if self.key.is_some() { Progress::Inside } else { Progress::Broken }
            }
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

    /// Whether the member that is being read holds the arguments, for the first time.
    fn is_arguments(&self) -> bool {
        matches!(self.key.as_deref(), Some("arguments" | "parameters")) && !self.has_arguments
    }

    /// Models write line ends into strings; JSON wants them escaped.
    fn add_argument(&mut self, c: char, in_string: bool) {
        if in_string && c < ' ' {
            let escaped = write!(self.arguments, "\\u{:04x}", u32::from(c));
            escaped.expect("writing to a string does not fail");
        } else {
            self.arguments.push(c);
        }
    }

    fn value_end(&mut self, end: usize) -> Progress {
        let value = &self.raw[self.start..end];
        if self.in_arguments {
            self.in_arguments = false;
        } else if self.key.as_deref() == Some("name") && self.name.is_none() {
            match serde_json::from_str(value) {
                Ok(name) => self.name = Some(name),
                Err(_) => return Progress::Broken,
            }
        } else if self.is_arguments() {
            // Arguments as a string hold the JSON document; `null` says that there are none.
            self.arguments = match serde_json::from_str::<serde_json::Value>(value) {
                Ok(serde_json::Value::String(document)) => document,
                Ok(serde_json::Value::Null) => "{}".to_owned(),
                _ => return Progress::Broken,
            };
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
            self.has_arguments = true;
            "{}".clone_into(&mut self.arguments);
        }
        Progress::Complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Content, and name and arguments of every call.
    fn read(pieces: &[&str]) -> (String, Vec<(String, String)>) {
        let mut parser = Hermes::default();
        let mut events: Vec<ToolEvent> =
            pieces.iter().flat_map(|piece| parser.push(piece)).collect();
        events.extend(parser.finish());
        let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
        for event in events {
            match event {
                ToolEvent::Content(text) => content.push_str(&text),
                ToolEvent::CallBegin { index, name } => {
                    assert_eq!(index, calls.len());
                    calls.push((name, String::new()));
                }
                ToolEvent::Arguments { index, arguments } => {
                    assert_eq!(index + 1, calls.len());
                    calls[index].1.push_str(&arguments);
                }
            }
        }
        (content, calls)
    }

    #[track_caller]
    fn check(text: &str, content: &str, calls: &[(&str, &str)]) {
        let calls: Vec<_> = calls.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect();
        assert_eq!(read(&[text]), (content.to_owned(), calls), "{text}");
        let single: Vec<String> = text.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(read(&single), read(&[text]), "{text}");
    }

    #[test]
    fn calls_are_read_with_the_text_around_them() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n";
        check(text, "Let me see.", &[("f", "{\"a\": [1, \"}\"]}"), ("g", "{}")]);
        check("no call < here\n", "no call < here\n", &[]);
        check("  \n", "  \n", &[]);
    }

    #[test]
    fn arguments_are_handed_out_as_they_are_written() {
        let mut parser = Hermes::default();
        assert_eq!(parser.push("<tool_call>{\"name\": \"f\", \"argum"), []);
        let events = parser.push("ents\": {\"a\": 1");
        let begin = ToolEvent::CallBegin { index: 0, name: "f".to_owned() };
        let piece = |text: &str| ToolEvent::Arguments { index: 0, arguments: text.to_owned() };
        assert_eq!(events, [begin, piece("{\"a\": 1")]);
        assert_eq!(parser.push("2}}</tool"), [piece("2}")]);
        assert_eq!(parser.push("_call>"), []);
        assert_eq!(parser.finish(), []);
    }

    #[test]
    fn members_may_come_in_any_order_and_shape() {
        check(
            "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
            "",
            &[("f", "{\"a\": 1}")],
        );
        check("<tool_call>{\"name\": \"f\"}</tool_call>", "", &[("f", "{}")]);
        check("<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "", &[("f", "{}")]);
        check(
            "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
            "",
            &[("f", "{\"a\": 1}")],
        );
        check(
            "<tool_call>{\"id\": 1, \"name\": \"f\", \"parameters\": {}, \"x\": 2}</tool_call>",
            "",
            &[("f", "{}")],
        );
        check(
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"name\": \"g\", \"arguments\": 1}}</tool_call>",
            "",
            &[("f", "{\"name\": \"g\", \"arguments\": 1}")],
        );
    }

    #[test]
    fn line_ends_in_strings_are_escaped() {
        let text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>";
        check(text, "", &[("f", "{\"a\": \"x\\u000ay\"}")]);
    }

    #[test]
    fn what_is_malformed_is_content() {
        for text in [
            "a\n<tool_call>\nnot json\n</tool_call> b",
            "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
            "<tool_call>{\"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
            "<tool_call>[]</tool_call>",
            "<tool_call>{\"name\": \"f\"",
            "<tool_call",
        ] {
            check(text, text, &[]);
        }
        check(
            "<tool_call>x<tool_call>{\"name\": \"f\"}</tool_call>",
            "<tool_call>x",
            &[("f", "{}")],
        );
    }

    #[test]
    fn a_call_that_breaks_off_keeps_what_was_valid() {
        check("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", "", &[("f", "{\"a\": 1")]);
        check(
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}",
            "oops}}",
            &[("f", "{\"a\": ")],
        );
        check(
            "<tool_call>{\"name\": \"f\", \"arguments\": {}} and more",
            " and more",
            &[("f", "{}")],
        );
        check("<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_", "", &[("f", "{}")]);
    }

    #[test]
    fn templates_tell_the_family() {
        assert!(is_family_of("...<tool_call>\n{\"name\": <function-name>, \"arguments\": ..."));
        assert!(!is_family_of("<tool_call>\n<function=example>\n<parameter=x>"));
        assert!(!is_family_of("<tool_call>{name}<arg_key>k</arg_key>"));
        assert!(is_family_of("'<tool_call>\\n{\\\"name\\\": \\\"' + tool_call.name"));
        assert!(!is_family_of("ns_token ~ '<tool_call>'"));
        assert!(!is_family_of("<|im_start|>"));
    }

    fn fragment() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(OPEN.to_owned()),
            Just(CLOSE.to_owned()),
            Just("{\"name\": \"f\", \"arguments\": {\"a\": 1}}".to_owned()),
            Just("{\"name\": \"f\", ".to_owned()),
            Just("\"arguments\": {\"é\": [\"".to_owned()),
            Just("\"]}}".to_owned()),
            "[ \n<a{}\":,é]{0,3}",
        ]
    }

    proptest! {
        #[test]
        fn any_split_gives_what_the_whole_text_gives(
            fragments in prop::collection::vec(fragment(), 0..10),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let text = fragments.concat();
            let mut bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            bounds.push(text.len());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| bounds[cut.index(bounds.len())]).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[&text]));
        }
    }
}
