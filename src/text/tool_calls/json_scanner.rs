//! Checks one JSON object character by character (RFC 8259) and tells where its members are.
//!
//! Nothing is built: who wants a key or a value takes the text between the places it is told.
//! Control characters within strings are let through, since models write them; the caller escapes
//! them.

use serde::de::IgnoredAny;

/// What a character meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A character inside of the document, nothing of note.
    Inside,
    /// Completed a key of the object itself.
    KeyEnd,
    /// First character of the value of a member of the object itself.
    ValueStart,
    /// Last character of such a value.
    ValueEnd,
    /// Stands directly behind such a value (one without an end of its own: a number or a word), and
    /// closes the object where `closes`.
    BehindValue {
        /// Whether the character ended the object.
        closes: bool,
    },
    /// Closed the object.
    ObjectEnd,
}

/// The character cannot stand where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// A value; in a fresh array also its end.
    Value {
        or_end: bool,
    },
    /// A key; in a fresh object also its end.
    Key {
        or_end: bool,
    },
    Colon,
    /// A comma or the end of the container.
    More,
    Text {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    /// Hexadecimal digits of `\u` still to come.
    Hex {
        left: u8,
        is_key: bool,
    },
    /// Within a number or a word.
    Scalar,
    /// The object is complete.
    Nothing,
}

/// The state of a scan. Starts before the opening brace.
#[derive(Debug)]
pub(super) struct JsonScanner {
    /// Open containers: whether they are objects.
    stack: Vec<bool>,
    expect: Expect,
    scalar: String,
}

/// Deepest nesting; deeper is called malformed.
const MAX_DEPTH: usize = 128;

impl Default for JsonScanner {
    fn default() -> Self {
        Self { stack: Vec::new(), expect: Expect::Value { or_end: false }, scalar: String::new() }
    }
}

impl JsonScanner {
    /// Whether the next character is one of a string.
    pub(super) fn in_string(&self) -> bool {
        matches!(self.expect, Expect::Text { .. })
    }

    /// Takes the next character.
    pub(super) fn feed(&mut self, c: char) -> Result<Step, Malformed> {
        match self.expect {
            Expect::Text { is_key } => Ok(self.text(c, is_key)),
            Expect::Escape { is_key } => {
                self.expect = match c {
                    'u' => Expect::Hex { left: 4, is_key },
                    '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => Expect::Text { is_key },
                    _ => return Err(Malformed),
                };
                Ok(Step::Inside)
            }
            Expect::Hex { left, is_key } if c.is_ascii_hexdigit() => {
                self.expect = match left {
                    1 => Expect::Text { is_key },
                    _ => Expect::Hex { left: left - 1, is_key },
                };
                Ok(Step::Inside)
            }
            Expect::Hex { .. } | Expect::Nothing => Err(Malformed),
            Expect::Scalar => self.scalar(c),
            _ if matches!(c, ' ' | '\t' | '\n' | '\r') => Ok(Step::Inside),
            Expect::Value { or_end } => self.value(c, or_end),
            Expect::Key { .. } if c == '"' => {
                self.expect = Expect::Text { is_key: true };
                Ok(Step::Inside)
            }
            Expect::Key { or_end: true } if c == '}' => Ok(self.close()),
            Expect::Colon if c == ':' => {
                self.expect = Expect::Value { or_end: false };
                Ok(Step::Inside)
            }
            Expect::More => self.more(c),
            Expect::Key { .. } | Expect::Colon => Err(Malformed),
        }
    }

    fn text(&mut self, c: char, is_key: bool) -> Step {
        match c {
            '\\' => self.expect = Expect::Escape { is_key },
            '"' if is_key => {
                self.expect = Expect::Colon;
                if self.stack.len() == 1 {
                    return Step::KeyEnd;
                }
            }
            '"' => {
                self.expect = Expect::More;
                if self.stack.len() == 1 {
                    return Step::ValueEnd;
                }
            }
            _ => {}
        }
        Step::Inside
    }

    fn value(&mut self, c: char, or_end: bool) -> Result<Step, Malformed> {
        let of_member = self.stack.len() == 1;
        match c {
            '{' | '[' if self.stack.len() < MAX_DEPTH => {
                let object = c == '{';
                self.stack.push(object);
                self.expect = if object {
                    Expect::Key { or_end: true }
                } else {
                    Expect::Value { or_end: true }
                };
            }
            // Outside of everything only an object may stand.
            _ if self.stack.is_empty() => return Err(Malformed),
            ']' if or_end => return Ok(self.close()),
            '"' => self.expect = Expect::Text { is_key: false },
            '-' | '0'..='9' | 't' | 'f' | 'n' => {
                self.expect = Expect::Scalar;
                self.scalar.push(c);
            }
            _ => return Err(Malformed),
        }
        if self.stack.first() == Some(&false) {
            return Err(Malformed);
        }
        Ok(if of_member { Step::ValueStart } else { Step::Inside })
    }

    fn scalar(&mut self, c: char) -> Result<Step, Malformed> {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-') {
            self.scalar.push(c);
            // Longer than any number a model means.
            return if self.scalar.len() > 400 { Err(Malformed) } else { Ok(Step::Inside) };
        }
        let text = std::mem::take(&mut self.scalar);
        // Numbers beyond what fits in ours are JSON as well.
        serde_json::from_str::<IgnoredAny>(&text).map_err(|_| Malformed)?;
        let of_member = self.stack.len() == 1;
        self.expect = Expect::More;
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        let step = if space { Step::Inside } else { self.more(c)? };
        let closes = step == Step::ObjectEnd;
        Ok(if of_member { Step::BehindValue { closes } } else { step })
    }

    fn more(&mut self, c: char) -> Result<Step, Malformed> {
        let in_object = self.stack.last() == Some(&true);
        match (c, in_object) {
            (',', true) => self.expect = Expect::Key { or_end: false },
            (',', false) => self.expect = Expect::Value { or_end: false },
            ('}', true) | (']', false) => return Ok(self.close()),
            _ => return Err(Malformed),
        }
        Ok(Step::Inside)
    }

    fn close(&mut self) -> Step {
        self.stack.pop();
        self.expect = if self.stack.is_empty() { Expect::Nothing } else { Expect::More };
        match self.stack.len() {
            0 => Step::ObjectEnd,
            1 => Step::ValueEnd,
            _ => Step::Inside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(text: &str) -> Result<Vec<(usize, Step)>, Malformed> {
        let mut scanner = JsonScanner::default();
        let steps = text.char_indices().map(|(at, c)| Ok((at, scanner.feed(c)?)));
        let steps: Result<Vec<_>, Malformed> = steps.collect();
        Ok(steps?.into_iter().filter(|(_, step)| *step != Step::Inside).collect())
    }

    #[test]
    fn members_are_told_where_they_are() {
        let steps = scan(r#"{"a": [1, {"b": "}"}], "c": 12}"#).unwrap();
        let expected = [
            (3, Step::KeyEnd),
            (6, Step::ValueStart),
            (20, Step::ValueEnd),
            (25, Step::KeyEnd),
            (28, Step::ValueStart),
            (30, Step::BehindValue { closes: true }),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn what_is_no_object_is_malformed() {
        let texts = [
            "[1]",
            "1",
            "\"a\"",
            "{a: 1}",
            "{\"a\" 1}",
            "{\"a\": tru}",
            "{\"a\": 1,}",
            "{} x",
            "{\"a\": \"\\x\"}",
            "{\"a\": [1,]}",
            "{\"a\": [}]",
            "{\"a\": 01}",
            "{,}",
            "{\"a\": ]",
        ];
        for text in texts {
            assert_eq!(scan(text), Err(Malformed), "{text}");
        }
        assert_eq!(scan(&("{\"a\":".to_owned() + &"[".repeat(200))), Err(Malformed));
    }

    proptest! {
        #[test]
        fn agrees_with_a_json_parser(text in r#"\{[\[\]\{\},:"a1 tru.e\\-]{0,24}\}"#) {
            let valid = serde_json::from_str::<IgnoredAny>(&text);
            let mut scanner = JsonScanner::default();
            let whole = text.chars().try_fold(Step::Inside, |_, c| scanner.feed(c));
            let complete = matches!(whole, Ok(Step::ObjectEnd | Step::BehindValue { closes: true }));
            prop_assert_eq!(complete, valid.is_ok());
        }
    }
}
