//! Bytes of a `text/event-stream` body -> events.
//!
//! Knows lines, fields and blank lines and nothing of JSON or of the network. Frames may be split
//! anywhere (inside a UTF-8 character or between `\r` and `\n`), lines may end in `\n`, `\r\n` or
//! `\r`, comments are dropped. Reference: the WHATWG HTML standard, section "Server-sent events".

use std::collections::VecDeque;

/// Longest event that is accepted, in bytes; a server that never ends its line can't fill memory.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The `event:` field; empty when the server did not send one.
    pub(crate) name: String,
    /// The `data:` lines, joined by `\n`.
    pub(crate) data: String,
}

/// The event that is being received has grown beyond [`MAX_EVENT_BYTES`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event is longer than {MAX_EVENT_BYTES} bytes")]
pub(crate) struct EventTooLong;

/// Collects bytes and hands out events.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    /// The last byte was `\r`: a `\n` that follows belongs to the same line end.
    after_cr: bool,
    first_line_read: bool,
    ready: VecDeque<SseEvent>,
}

impl SseParser {
    /// Takes the next bytes of the body; events that became complete wait in [`Self::next_event`].
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        for &byte in bytes {
            let continues_crlf = std::mem::take(&mut self.after_cr) && byte == b'\n';
            match byte {
                b'\n' if continues_crlf => {}
                b'\n' => self.end_line(),
                b'\r' => {
                    self.after_cr = true;
                    self.end_line();
                }
                _ => self.line.push(byte),
            }
        }
        if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
            return Err(EventTooLong);
        }
        Ok(())
    }

    /// The oldest complete event that was not taken yet.
    pub(crate) fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    /// The body has ended. The standard drops an event without its blank line, but servers exist
    /// that end so after an error frame, and the frame is worth more than the rule.
    pub(crate) fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.dispatch();
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let mut text = text.as_ref();
        if !std::mem::replace(&mut self.first_line_read, true) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            self.dispatch();
        } else {
            self.take_field(text);
        }
    }

    fn take_field(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.name),
            // A comment has an empty field name; `id`, `retry` and unknown fields mean nothing here.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            self.ready.push_back(SseEvent { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_in_pieces(body: &[u8], piece: usize) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for bytes in body.chunks(piece) {
            parser.push(bytes).unwrap();
            events.extend(std::iter::from_fn(|| parser.next_event()));
        }
        parser.finish();
        events.extend(std::iter::from_fn(|| parser.next_event()));
        events
    }

    fn data(events: &[SseEvent]) -> Vec<&str> {
        events.iter().map(|event| event.data.as_str()).collect()
    }

    #[test]
    fn reads_the_same_events_wherever_the_body_is_split() {
        let body = "\u{feff}: hello\r\ndata: {\"a\":\"é\u{1f56f}\"}\r\n\r\n:ping\n\nevent: x\ndata:1\n\
                    data: 2\n\ndata: [DONE]\r\rdata: unfinished";
        let whole = parse_in_pieces(body.as_bytes(), body.len());
        assert_eq!(data(&whole), ["{\"a\":\"é\u{1f56f}\"}", "1\n2", "[DONE]", "unfinished"]);
        assert_eq!(whole[1].name, "x");
        assert_eq!(whole[2].name, "");
        for piece in 1..body.len() {
            assert_eq!(parse_in_pieces(body.as_bytes(), piece), whole, "pieces of {piece} bytes");
        }
    }

    #[test]
    fn drops_comments_unknown_fields_and_events_without_data() {
        let body = b": keep-alive\n\nid: 7\nretry: 10\nwhatever\n\nevent: lonely\n\ndata: kept\n\n";
        let events = parse_in_pieces(body, 5);
        assert_eq!(events, [SseEvent { name: String::new(), data: "kept".to_owned() }]);
    }

    #[test]
    fn takes_one_space_off_a_value_and_keeps_the_others() {
        let events = parse_in_pieces(b"data:  two\n\ndata:none\n\ndata\n\n", 100);
        assert_eq!(data(&events), [" two", "none", ""]);
    }

    #[test]
    fn replaces_bytes_that_are_not_utf8() {
        let events = parse_in_pieces(b"data: a\xffb\n\n", 3);
        assert_eq!(data(&events), ["a\u{fffd}b"]);
    }

    #[test]
    fn refuses_an_event_without_end() {
        let mut parser = SseParser::default();
        let mebibyte = vec![b'x'; 1 << 20];
        let refused = (0..=64).find(|_| parser.push(&mebibyte).is_err());
        assert_eq!(refused, Some(64));
    }
}
