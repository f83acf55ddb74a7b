//! Ends a text at the first of several stop strings, while it is still being written.
//!
//! Text that might be the beginning of a stop string is held back until that is decided, so that a
//! client never sees a piece of one. The result does not depend on how the text was cut into
//! pieces. Matching runs the automaton of Knuth, Morris and Pratt for every stop string, so a
//! character costs amortized constant time per stop string.

/// What [`StopStrings::push`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopOutcome {
    /// No stop string was found; this much of the text is certain.
    Continue(String),
    /// A stop string was completed. `text` is what was still to be given out; behind it the text
    /// ends. `stop_string` is the one that matched.
    Stopped {
        /// The last piece of the text, with the stop string where it is to be included.
        text: String,
        /// The stop string that was found.
        stop_string: String,
    },
}

/// The stop strings of one request and how far the text matches them.
///
/// The text is cut at the match that is completed first; of several completed by the same
/// character, the one that begins earliest wins.
#[derive(Debug, Clone)]
pub struct StopStrings {
    patterns: Vec<Pattern>,
    include_in_output: bool,
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// Watches for any of `stop_strings`; empty ones are ignored. `include_in_output` keeps the
    /// stop string that matched at the end of the text.
    pub fn new(
        stop_strings: impl IntoIterator<Item = impl Into<String>>,
        include_in_output: bool,
    ) -> Self {
        let texts = stop_strings.into_iter().map(Into::into).filter(|text| !text.is_empty());
        let patterns = texts.map(Pattern::new).collect();
        Self { patterns, include_in_output, held: String::new(), stopped: false }
    }

    /// Appends a piece of text. After [`StopOutcome::Stopped`] everything pushed is ignored.
    pub fn push(&mut self, piece: &str) -> StopOutcome {
        if self.stopped {
            return StopOutcome::Continue(String::new());
        }
        if self.patterns.is_empty() {
            return StopOutcome::Continue(piece.to_owned());
        }
        let before = self.held.len();
        self.held.push_str(piece);
        for (at, &byte) in piece.as_bytes().iter().enumerate() {
            for pattern in &mut self.patterns {
                pattern.advance(byte);
            }
            let complete = self.patterns.iter().filter(|pattern| pattern.is_complete());
            if let Some(found) = complete.max_by_key(|pattern| pattern.text.len()) {
                let stop_string = found.text.clone();
                return self.stop(before + at + 1, stop_string);
            }
        }
        let partial = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0);
        let tail = self.held.split_off(self.held.len() - partial);
        StopOutcome::Continue(std::mem::replace(&mut self.held, tail))
    }

    /// Ends the text and gives what was held back: the beginning of a stop string that never came.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    fn stop(&mut self, end: usize, stop_string: String) -> StopOutcome {
        let cut = if self.include_in_output { end } else { end - stop_string.len() };
        let mut text = std::mem::take(&mut self.held);
        text.truncate(cut);
        self.stopped = true;
        StopOutcome::Stopped { text, stop_string }
    }
}

/// A stop string and the length of its longest prefix that the text ends with.
#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    /// `borders[n]`: the longest proper prefix of the first `n + 1` bytes that is also their end.
    borders: Vec<usize>,
    matched: usize,
}

impl Pattern {
    fn new(text: String) -> Self {
        let bytes = text.as_bytes();
        let mut borders = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = borders[length - 1];
            }
            length += usize::from(bytes[at] == bytes[length]);
            borders[at] = length;
        }
        Self { text, borders, matched: 0 }
    }

    fn advance(&mut self, byte: u8) {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && byte != bytes[self.matched] {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(byte == bytes[self.matched]);
    }

    fn is_complete(&self) -> bool {
        self.matched == self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: the first end of a match, then the earliest beginning.
    fn cut(text: &str, stops: &[String], include: bool) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let matches =
                stops.iter().filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some(stop) = matches.max_by_key(|stop| stop.len()) {
                let keep = if include { end } else { end - stop.len() };
                return (text[..keep].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    fn stream(pieces: &[String], stops: &[String], include: bool) -> (String, Option<String>) {
        let mut watcher = StopStrings::new(stops.to_vec(), include);
        let mut text = String::new();
        for piece in pieces {
            match watcher.push(piece) {
                StopOutcome::Continue(more) => text.push_str(&more),
                StopOutcome::Stopped { text: last, stop_string } => {
                    text.push_str(&last);
                    assert_eq!(watcher.push("more"), StopOutcome::Continue(String::new()));
                    assert_eq!(watcher.finish(), "");
                    return (text, Some(stop_string));
                }
            }
        }
        text.push_str(&watcher.finish());
        (text, None)
    }

    #[test]
    fn holds_back_only_what_may_become_a_stop_string() {
        let mut watcher = StopStrings::new(["\n\nUser:"], false);
        assert_eq!(watcher.push("a\n"), StopOutcome::Continue("a".into()));
        assert_eq!(watcher.push("\n"), StopOutcome::Continue(String::new()));
        assert_eq!(watcher.push("\n"), StopOutcome::Continue("\n".into()));
        assert_eq!(watcher.push("Use"), StopOutcome::Continue(String::new()));
        assert_eq!(watcher.push("d"), StopOutcome::Continue("\n\nUsed".into()));
        assert_eq!(watcher.push("\n\nUser"), StopOutcome::Continue(String::new()));
        let stopped = StopOutcome::Stopped { text: String::new(), stop_string: "\n\nUser:".into() };
        assert_eq!(watcher.push(": hi"), stopped);
    }

    #[test]
    fn without_stop_strings_everything_passes_at_once() {
        let mut watcher = StopStrings::new([""], true);
        assert_eq!(watcher.push("abc"), StopOutcome::Continue("abc".into()));
        assert_eq!(watcher.finish(), "");
    }

    proptest! {
        #[test]
        fn any_split_gives_what_the_whole_text_gives(
            pieces in prop::collection::vec("[abé]{0,4}", 0..8),
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            include: bool,
        ) {
            let whole = pieces.concat();
            prop_assert_eq!(stream(&pieces, &stops, include), cut(&whole, &stops, include));
        }
    }
}
