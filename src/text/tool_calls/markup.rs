//! Finds the calls of one family in an answer, and keeps apart what is text.
//!
//! A [`Frame`] says what opens and closes calls; what stands between is read by the family's
//! [`Reader`], character by character, so pieces of any size give the same. What no event tells
//! when a reader gives up goes back into the text and is read again, but for the opening text. Whitespace around calls belongs to the markup and is dropped. This file knows no
//! format.

use std::collections::VecDeque;
use std::fmt::Debug;

use super::event::{Functions, ToolCallParser, ToolEvent};

/// How a family sets its calls apart from text.
#[derive(Debug)]
pub(super) struct Frame {
    /// What opens calls; none is the beginning of another.
    pub(super) openers: &'static [&'static str],
    /// First characters of calls that stand without an opening text: at the beginning of an answer
    /// or behind other calls.
    pub(super) bare: &'static [char],
    /// What may stand behind a call and is dropped: each of them once, in this order.
    pub(super) closers: &'static [&'static str],
    /// Markup that is dropped wherever it stands outside of calls.
    pub(super) dropped: &'static [&'static str],
    /// Reads what stands behind the opening text it is given (empty for a bare call, whose first
    /// character it is fed).
    pub(super) reader: fn(&str, &Functions) -> Box<dyn Reader>,
}

/// Reads what stands behind an opening text.
pub(super) trait Reader: Send + Debug {
    /// Takes the next character.
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress;

    /// Whether what no event tells is markup even where the answer ends here: a call that broke off,
    /// or what stands between calls.
    fn in_markup(&self) -> bool;
}

/// What a [`Reader`] makes of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The call is not complete.
    Inside,
    /// The character completes the call.
    Done,
    /// The character can't stand where it does.
    Broken,
}

/// Collects events, joining pieces of the same kind.
#[derive(Debug, Default)]
pub(super) struct Calls {
    events: Vec<ToolEvent>,
    /// Calls begun so far.
    count: usize,
    /// The ids that the model gave to calls.
    ids: Vec<String>,
    /// Whitespace that is content only if no call follows.
    space: String,
    /// Whether something of a call was handed out since this was last asked.
    committed: bool,
}

impl Calls {
    /// A call begins.
    pub(super) fn begin(&mut self, name: &str) {
        self.begin_as(name, None);
    }

    /// A call begins, with the id that the model gave it. Another call's id is none.
    pub(super) fn begin_as(&mut self, name: &str, id: Option<&str>) {
        let id = id.filter(|id| !self.ids.iter().any(|other| other == id)).map(str::to_owned);
        self.ids.extend(id.clone());
        self.events.push(ToolEvent::CallBegin { index: self.count, name: name.to_owned(), id });
        self.count += 1;
        self.space.clear();
        self.committed = true;
    }

    /// More arguments of the call that began last.
    pub(super) fn arguments(&mut self, text: &str) {
        self.committed = true;
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ToolEvent::Arguments { arguments, .. }) => arguments.push_str(text),
            _ => {
                let index = self.count.saturating_sub(1);
                self.events.push(ToolEvent::Arguments { index, arguments: text.to_owned() });
            }
        }
    }

    /// What was read belongs to a call and is no text whatever follows.
    pub(super) fn commit(&mut self) {
        self.committed = true;
    }

    /// Content; whitespace waits for what follows.
    pub(super) fn text(&mut self, text: &str) {
        let body = text.trim_end();
        if !body.is_empty() {
            let space = std::mem::take(&mut self.space);
            self.content(&space);
            self.content(body);
        }
        self.space.push_str(&text[body.len()..]);
    }

    /// Ends the content. Whitespace at the end is content where no call stands.
    pub(super) fn end_text(&mut self) {
        let space = std::mem::take(&mut self.space);
        if self.count == 0 {
            self.content(&space);
        }
    }

    /// Gives the events since the last time.
    pub(super) fn take(&mut self) -> Vec<ToolEvent> {
        std::mem::take(&mut self.events)
    }

    fn content(&mut self, text: &str) {
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ToolEvent::Content(content)) => content.push_str(text),
            _ => self.events.push(ToolEvent::Content(text.to_owned())),
        }
    }
}

/// The parser of one answer whose calls stand in markup.
#[derive(Debug)]
pub(super) struct Markup {
    frame: &'static Frame,
    functions: Functions,
    state: State,
    calls: Calls,
    /// What is to be read, with what a reader gave back in front.
    input: VecDeque<char>,
    /// Whether only whitespace and calls came so far.
    fresh: bool,
}

#[derive(Debug)]
enum State {
    /// Outside of calls; what has been read may begin an opening text.
    Text(String),
    Call {
        /// Everything since the opening text that no event tells.
        raw: String,
        /// The opening text, as long as no event tells it.
        opener: &'static str,
        reader: Box<dyn Reader>,
    },
    /// Behind a call: whitespace, then what may begin a closing text from number `next` on.
    Behind { seen: String, next: usize },
}

impl Markup {
    /// A parser for one answer, as a family's constructor gives it.
    pub(super) fn boxed(frame: &'static Frame, functions: &Functions) -> Box<dyn ToolCallParser> {
        Box::new(Self {
            frame,
            functions: functions.clone(),
            state: State::Text(String::new()),
            calls: Calls::default(),
            input: VecDeque::new(),
            fresh: true,
        })
    }

    fn feed(&mut self, c: char) {
        match &mut self.state {
            State::Text(seen) => {
                seen.push(c);
                self.look_for_opener();
            }
            State::Call { raw, opener, reader } => {
                raw.push(c);
                let progress = reader.feed(c, &mut self.calls);
                if std::mem::take(&mut self.calls.committed) {
                    *opener = "";
                    raw.clear();
                    if progress == Progress::Broken {
                        raw.push(c);
                    }
                }
                match progress {
                    Progress::Inside => {}
                    Progress::Done => self.state = State::Behind { seen: String::new(), next: 0 },
                    Progress::Broken => self.give_up(),
                }
            }
            State::Behind { seen, .. } => {
                seen.push(c);
                self.look_for_closer();
            }
        }
    }

    fn look_for_opener(&mut self) {
        let State::Text(seen) = &mut self.state else { return };
        let frame = self.frame;
        if let Some(opener) = frame.openers.iter().find(|opener| **opener == seen.as_str()) {
            self.open(opener);
            return;
        }
        let first = seen.chars().next();
        if let Some(c) = first.filter(|c| self.fresh && frame.bare.contains(c)) {
            let rest = seen.split_off(c.len_utf8());
            self.give_back(&rest);
            self.open("");
            self.feed(c);
            return;
        }
        if frame.dropped.contains(&seen.as_str()) {
            seen.clear();
            return;
        }
        let mut marks = frame.openers.iter().chain(frame.dropped);
        if marks.any(|mark| mark.starts_with(seen.as_str())) {
            return;
        }
        if let Some(c) = first {
            let rest = seen.split_off(c.len_utf8());
            let text = std::mem::take(seen);
            self.fresh &= c.is_whitespace();
            self.calls.text(&text);
            self.give_back(&rest);
        }
    }

    fn open(&mut self, opener: &'static str) {
        let reader = (self.frame.reader)(opener, &self.functions);
        self.state = State::Call { raw: String::new(), opener, reader };
    }

    fn look_for_closer(&mut self) {
        let State::Behind { seen, next } = &mut self.state else { return };
        let tag = seen.trim_start();
        let closers = self.frame.closers.get(*next..).unwrap_or_default();
        let complete = closers.iter().position(|closer| *closer == tag);
        if let Some(at) = complete {
            *next += at + 1;
            seen.clear();
        } else if closers.is_empty() || !closers.iter().any(|closer| closer.starts_with(tag)) {
            let seen = std::mem::take(seen);
            self.state = State::Text(String::new());
            self.fresh = true;
            self.give_back(&seen);
        }
    }

    /// The reader met something malformed: what no event tells is text.
    fn give_up(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Text(String::new()));
        let State::Call { raw, opener, .. } = state else { return };
        // Reading goes on: the opening text is not read again, and a bare call needs a fresh answer.
        self.fresh = false;
        self.calls.text(opener);
        self.give_back(&raw);
    }

    fn give_back(&mut self, text: &str) {
        for c in text.chars().rev() {
            self.input.push_front(c);
        }
    }
}

impl ToolCallParser for Markup {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.input.extend(text.chars());
        while let Some(c) = self.input.pop_front() {
            self.feed(c);
        }
        self.calls.take()
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        match std::mem::replace(&mut self.state, State::Text(String::new())) {
            State::Call { reader, .. } if reader.in_markup() => {}
            State::Call { raw, opener, .. } => {
                self.calls.text(opener);
                self.calls.text(&raw);
            }
            State::Behind { seen, next } => {
                let tag = seen.trim_start();
                let closers = self.frame.closers.get(next..).unwrap_or_default();
                if tag.is_empty() || !closers.iter().any(|closer| closer.starts_with(tag)) {
                    self.calls.text(&seen);
                }
            }
            State::Text(seen) => self.calls.text(&seen),
        }
        self.calls.end_text();
        self.calls.take()
    }
}
