//! Reads calls that are JSON objects, one or a list of them, behind an opening text.

use super::json_call::{JsonCall, Keys};
use super::markup::{Calls, Progress, Reader};

/// Whether calls stand in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Never,
    Maybe,
    Always,
}

/// Reads the calls behind one opening text.
#[derive(Debug)]
pub(super) struct JsonCalls {
    keys: &'static Keys,
    list: List,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Before the list, or the object where there is none.
    Start,
    /// Before an object of the list; `first` in a fresh list, whose end would be no call at all.
    Item,
    Call {
        call: Box<JsonCall>,
        in_list: bool,
    },
    /// Behind an object of the list.
    Between,
}

impl JsonCalls {
    pub(super) fn new(keys: &'static Keys, list: List) -> Self {
        Self { keys, list, phase: Phase::Start }
    }

    fn call(&mut self, c: char, in_list: bool, calls: &mut Calls) -> Progress {
        let mut call = Box::new(JsonCall::new(self.keys));
        let progress = call.feed(c, calls);
        self.phase = Phase::Call { call, in_list };
        progress
    }
}

impl Reader for JsonCalls {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        match &mut self.phase {
            Phase::Call { call, in_list } => match call.feed(c, calls) {
                Progress::Done if *in_list => {
                    self.phase = Phase::Between;
                    Progress::Inside
                }
                progress => progress,
            },
            _ if c.is_whitespace() => Progress::Inside,
            Phase::Start if c == '[' && self.list != List::Never => {
                self.phase = Phase::Item;
                Progress::Inside
            }
            Phase::Start if c == '{' && self.list != List::Always => self.call(c, false, calls),
            Phase::Item if c == '{' => self.call(c, true, calls),
            Phase::Between if c == ',' => {
                self.phase = Phase::Item;
                Progress::Inside
            }
            Phase::Between if c == ']' => Progress::Done,
            Phase::Start | Phase::Item | Phase::Between => Progress::Broken,
        }
    }

    fn in_markup(&self) -> bool {
        match &self.phase {
            Phase::Call { call, .. } => call.begun(),
            Phase::Between => true,
            Phase::Start | Phase::Item => false,
        }
    }
}
