//! Python literals as JSON: strings, numbers, `True`, `False`, `None`, lists, tuples and dicts, by the
//! Python language reference ("Literals"). JSON's own words `true`, `false` and `null` are taken too,
//! since models mix the two. No names, no operators, no calls.
//!
//! Templates put texts between quotes as they are, so models learned not to escape: a quote ends a string
//! only where something follows that may stand behind one.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

/// Deepest nesting of a literal.
const MAX_DEPTH: usize = 64;

/// The JSON document for a literal, if it is one.
pub(super) fn to_json(text: &str) -> Option<String> {
    let mut literal = Literal { chars: text.chars().peekable(), json: String::new() };
    literal.value(0)?;
    literal.space();
    literal.chars.next().is_none().then_some(literal.json)
}

/// Whether a string may end where this is the next character that is no whitespace.
pub(super) fn may_follow_string(c: char) -> bool {
    matches!(c, ',' | ')' | ']' | '}' | ':' | '"' | '\'')
}

struct Literal<'a> {
    chars: Peekable<Chars<'a>>,
    json: String,
}

impl Literal<'_> {
    fn space(&mut self) {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        self.space();
        match *self.chars.peek()? {
            _ if depth > MAX_DEPTH => None,
            '"' | '\'' => {
                let text = self.strings()?;
                self.json.push_str(&Value::from(text).to_string());
                Some(())
            }
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => self.dict(depth),
            '-' | '+' | '.' | '0'..='9' => self.number(),
            _ => self.word(),
        }
    }

    /// Strings that stand side by side are one.
    fn strings(&mut self) -> Option<String> {
        let mut text = String::new();
        while let Some(quote) = self.chars.next_if(|c| matches!(c, '"' | '\'')) {
            self.string(quote, &mut text)?;
            self.space();
        }
        Some(text)
    }

    fn string(&mut self, quote: char, text: &mut String) -> Option<()> {
        loop {
            match self.chars.next()? {
                '\\' => self.escape(text)?,
                c if c == quote && self.may_follow_string() => return Some(()),
                c => text.push(c),
            }
        }
    }

    fn may_follow_string(&self) -> bool {
        let mut rest = self.chars.clone().skip_while(|c| c.is_whitespace());
        rest.next().is_none_or(may_follow_string)
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let c = match self.chars.next()? {
            '\n' => return Some(()),
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0' => '\0',
            'x' => self.code_point(2)?,
            'u' => self.code_point(4)?,
            'U' => self.code_point(8)?,
            c @ ('\\' | '\'' | '"') => c,
            // Python keeps a backslash that escapes nothing.
            c => {
                text.push('\\');
                c
            }
        };
        text.push(c);
        Some(())
    }

    /// A character by its number. The halves of a surrogate pair, as JSON writes them, are one.
    fn code_point(&mut self, digits: usize) -> Option<char> {
        let number = self.hex(digits)?;
        if (0xD800..0xDC00).contains(&number) {
            let low =
                (self.chars.next()? == '\\' && self.chars.next()? == 'u').then(|| self.hex(4));
            let low = low.flatten()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
            return char::from_u32(0x10000 + ((number - 0xD800) << 10) + low);
        }
        char::from_u32(number)
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        (0..digits).try_fold(0u32, |number, _| {
            number.checked_mul(16)?.checked_add(self.chars.next()?.to_digit(16)?)
        })
    }

    fn list(&mut self, close: char, depth: usize) -> Option<()> {
        self.chars.next();
        self.json.push('[');
        self.items(close, |literal| literal.value(depth + 1))?;
        self.json.push(']');
        Some(())
    }

    fn dict(&mut self, depth: usize) -> Option<()> {
        self.chars.next();
        self.json.push('{');
        self.items('}', |literal| {
            literal.key()?;
            literal.space();
            literal.chars.next_if_eq(&':')?;
            literal.json.push(':');
            literal.value(depth + 1)
        })?;
        self.json.push('}');
        Some(())
    }

    /// JSON's keys are strings; Python's numbers as keys become their digits.
    fn key(&mut self) -> Option<()> {
        let start = self.json.len();
        self.value(MAX_DEPTH)?;
        let key = self.json.split_off(start);
        let quoted = if key.starts_with('"') { key } else { Value::from(key).to_string() };
        self.json.push_str(&quoted);
        Some(())
    }

    /// Items up to the closing character, with commas between them and perhaps one behind.
    fn items(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let mut first = true;
        loop {
            self.space();
            if self.chars.next_if_eq(&close).is_some() {
                return Some(());
            }
            if !first {
                self.json.push(',');
            }
            first = false;
            item(self)?;
            self.space();
            if self.chars.next_if_eq(&',').is_none() {
                return self.chars.next_if_eq(&close).map(|_| ());
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        let mut digits = String::new();
        while let Some(c) =
            self.chars.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_'))
        {
            digits.push(c);
        }
        let digits = digits.strip_prefix('+').unwrap_or(&digits).replace('_', "");
        let digits = digits.replace(".e", ".0e").replace(".E", ".0E");
        let (sign, digits) =
            digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
        let before = if digits.starts_with('.') { "0" } else { "" };
        let behind = if digits.ends_with('.') { "0" } else { "" };
        let number = format!("{sign}{before}{digits}{behind}");
        let is_number = matches!(serde_json::from_str(&number), Ok(Value::Number(_)));
        is_number.then(|| self.json.push_str(&number))
    }

    fn word(&mut self) -> Option<()> {
        let mut word = String::new();
        while let Some(c) = self.chars.next_if(char::is_ascii_alphabetic) {
            word.push(c);
        }
        self.json.push_str(match word.as_str() {
            "True" | "true" => "true",
            "False" | "false" => "false",
            "None" | "null" => "null",
            _ => return None,
        });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        for (literal, json) in [
            ("'a\"b'", r#""a\"b""#),
            (r#""a\'b\n\x41\u00e9\q""#, r#""a'b\nAé\\q""#),
            ("\"\\ud83d\\ude00\"", "\"😀\""),
            ("'a' \"b\"", "\"ab\""),
            ("'it's 5 o'clock'", "\"it's 5 o'clock\""),
            ("['it's', \"a \"b\" c\"]", r#"["it's","a \"b\" c"]"#),
            ("\"\"\"a\"\"\"", "\"a\""),
            ("[1, -2.5, .5, 1., 1_000, +3, 1e5,]", "[1,-2.5,0.5,1.0,1000,3,1e5]"),
            ("(True, False, None, true, null)", "[true,false,null,true,null]"),
            ("{'a': {1: []}, \"b\": ()}", "{\"a\":{\"1\":[]},\"b\":[]}"),
            (" 12345678901234567890 ", "12345678901234567890"),
        ] {
            assert_eq!(to_json(literal).as_deref(), Some(json), "{literal}");
        }
    }

    #[test]
    fn what_is_no_literal_is_nothing() {
        for text in [
            "",
            "a",
            "'a",
            "[1 2]",
            "{1}",
            "{'a' 1}",
            "f(1)",
            "1 + 2",
            "[1",
            "01",
            "--1",
            "'\\ud83d'",
        ] {
            assert_eq!(to_json(text), None, "{text}");
        }
        assert_eq!(to_json(&"[".repeat(10_000)), None);
    }
}
