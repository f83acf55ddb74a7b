//! Parts an answer by the texts around its reasoning. Knows no family.
//!
//! Line ends right at a tag belong to it. Reasoning that begins an answer needs the opening text at its
//! beginning, so that one which is only talked about later stays text.

use std::collections::VecDeque;

use super::event::{ReasoningEvent, ReasoningParser};

/// The texts around a family's reasoning.
#[derive(Debug)]
pub(super) struct Tags {
    /// What opens reasoning.
    pub(super) opens: &'static [&'static str],
    /// What closes reasoning; the first one may be forced.
    pub(super) closes: &'static [&'static str],
    /// What ends reasoning that was not closed, and is content itself.
    pub(super) breaks: &'static [&'static str],
    /// Whether reasoning may begin anywhere: the tags are no text that anyone would write.
    pub(super) anywhere: bool,
    /// Whether all whitespace at the tags is theirs, not only line ends.
    pub(super) spaces: bool,
    /// Markup of content, dropped wherever it stands.
    pub(super) dropped: &'static [&'static str],
    /// What content may be wrapped in: dropped at its beginning.
    pub(super) wraps: &'static [&'static str],
    /// What content may be wrapped in: dropped at the end of the answer.
    pub(super) unwraps: &'static [&'static str],
}

/// Tags without anything special.
pub(super) const PLAIN: Tags = Tags {
    opens: &[],
    closes: &[],
    breaks: &[],
    anywhere: false,
    spaces: false,
    dropped: &[],
    wraps: &[],
    unwraps: &[],
};

/// The parser of one answer whose reasoning stands between tags.
#[derive(Debug)]
pub(super) struct TagReader {
    tags: &'static Tags,
    inside: bool,
    /// Whether nothing but whitespace came since the beginning or since the last tag.
    fresh: bool,
    behind: Behind,
    /// Text that may be the beginning of a tag.
    seen: String,
    /// Whitespace that a tag may follow, or an end of the answer as [`Behind::Unwrapped`] tells.
    held: String,
    /// What is to be read, with what began no tag after all in front.
    input: VecDeque<char>,
    events: Vec<ReasoningEvent>,
}

/// What stands before the text that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Text,
    /// A tag, so line ends belong to it.
    Tag,
    /// A closing wrapper: it and what follows are dropped if that is whitespace to the end.
    Unwrapped,
}

/// What a complete mark means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Close,
    Break,
    Dropped,
    Unwrap,
}

impl TagReader {
    pub(super) fn new(tags: &'static Tags, starts_inside: bool) -> Self {
        Self {
            tags,
            inside: starts_inside,
            fresh: true,
            behind: if starts_inside { Behind::Tag } else { Behind::Text },
            seen: String::new(),
            held: String::new(),
            input: VecDeque::new(),
            events: Vec::new(),
        }
    }

    fn feed(&mut self, c: char) {
        self.seen.push(c);
        let marks = self.marks();
        let seen = self.seen.as_str();
        let mut marks =
            marks.iter().flat_map(|(texts, mark)| texts.iter().map(|text| (*text, *mark)));
        let complete = marks.clone().find(|(text, _)| *text == seen).map(|(_, mark)| mark);
        if let Some(mark) = complete {
            self.meet(mark);
        } else if !marks.any(|(text, _)| text.starts_with(seen)) {
            let seen = std::mem::take(&mut self.seen);
            let mut rest = seen.chars();
            if let Some(first) = rest.next() {
                self.text(first);
            }
            self.give_back(rest.as_str());
        }
    }

    fn give_back(&mut self, text: &str) {
        for c in text.chars().rev() {
            self.input.push_front(c);
        }
    }

    /// The marks that mean something at this point of the answer, and what.
    fn marks(&self) -> [(&'static [&'static str], Mark); 4] {
        let tags = self.tags;
        if self.inside {
            // Models that were put behind the opening text may write it again.
            let again = if self.fresh { tags.opens } else { &[] };
            let (closes, breaks) = ((tags.closes, Mark::Close), (tags.breaks, Mark::Break));
            [closes, breaks, (again, Mark::Dropped), (&[], Mark::Unwrap)]
        } else {
            let opens = if self.fresh || tags.anywhere { tags.opens } else { &[] };
            let wraps = if self.fresh { tags.wraps } else { &[] };
            let (dropped, unwraps) = ((tags.dropped, Mark::Dropped), (tags.unwraps, Mark::Unwrap));
            [(opens, Mark::Open), dropped, (wraps, Mark::Dropped), unwraps]
        }
    }

    fn meet(&mut self, mark: Mark) {
        let text = std::mem::take(&mut self.seen);
        if mark == Mark::Unwrap {
            self.behind = Behind::Unwrapped;
            self.held.push_str(&text);
            return;
        }
        self.drop_held();
        match mark {
            Mark::Dropped | Mark::Unwrap => {}
            Mark::Open => self.inside = true,
            Mark::Close => self.inside = false,
            Mark::Break => {
                self.inside = false;
                self.fresh = false;
                self.behind = Behind::Text;
                self.give_back(&text);
                return;
            }
        }
        self.behind = Behind::Tag;
        self.fresh = true;
    }

    /// The whitespace that was held stands right at a tag. Where an answer begins with it, or where
    /// all whitespace is the tag's, nothing of it is left; else line ends are the tag's.
    fn drop_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        if self.behind == Behind::Unwrapped {
            self.emit(&held);
        } else if !self.fresh && !self.tags.spaces {
            self.emit(held.trim_end_matches('\n'));
        }
    }

    fn text(&mut self, c: char) {
        let waits = if self.fresh || self.tags.spaces || self.behind == Behind::Unwrapped {
            c.is_whitespace()
        } else {
            c == '\n'
        };
        if waits {
            self.held.push(c);
            return;
        }
        self.release();
        self.fresh = false;
        self.emit(c.encode_utf8(&mut [0; 4]));
    }

    /// What was held is followed by text, or by nothing.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        let kept = match std::mem::replace(&mut self.behind, Behind::Text) {
            Behind::Tag if self.tags.spaces => held.trim_start(),
            Behind::Tag => held.trim_start_matches('\n'),
            Behind::Text | Behind::Unwrapped => held.as_str(),
        };
        self.emit(kept);
    }

    fn emit(&mut self, text: &str) {
        match (self.events.last_mut(), self.inside) {
            _ if text.is_empty() => {}
            (Some(ReasoningEvent::Reasoning(last)), true)
            | (Some(ReasoningEvent::Content(last)), false) => last.push_str(text),
            (_, true) => self.events.push(ReasoningEvent::Reasoning(text.to_owned())),
            (_, false) => self.events.push(ReasoningEvent::Content(text.to_owned())),
        }
    }
}

impl ReasoningParser for TagReader {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        self.input.extend(text.chars());
        while let Some(c) = self.input.pop_front() {
            self.feed(c);
        }
        std::mem::take(&mut self.events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        for c in std::mem::take(&mut self.seen).chars() {
            self.text(c);
        }
        if self.behind != Behind::Unwrapped {
            self.release();
        }
        std::mem::take(&mut self.events)
    }
}
