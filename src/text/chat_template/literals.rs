//! String literals: read as Python reads them, written as minijinja reads them.

/// Writes a literal so that minijinja reads from it what Python would.
pub(super) fn write(literal: &str, out: &mut String) {
    let inner = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    let Some(value) = inner.contains('\\').then(|| unescape(inner)).flatten() else {
        out.push_str(literal);
        return;
    };
    write_text(&value, out);
}

/// Writes `text` as a literal on one line.
pub(super) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Python's `unicode_escape`; `None` where Python refuses the literal (the parser then does too).
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let escape = chars.next()?;
        match escape {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(escape),
            'a' => out.push('\x07'),
            'b' => out.push('\x08'),
            'f' => out.push('\x0c'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\x0b'),
            'x' => out.push(hex_character(&mut chars, 2)?),
            'u' => out.push(hex_character(&mut chars, 4)?),
            'U' => out.push(hex_character(&mut chars, 8)?),
            '0'..='7' => {
                let mut code = escape.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    chars.next();
                }
                out.push(char::from_u32(code)?);
            }
            _ => out.extend(['\\', escape]),
        }
    }
    Some(out)
}

fn hex_character(chars: &mut impl Iterator<Item = char>, digits: usize) -> Option<char> {
    let text: String = chars.take(digits).collect();
    if text.chars().count() != digits {
        return None;
    }
    char::from_u32(u32::from_str_radix(&text, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(literal: &str, expected: &str) {
        let mut out = String::new();
        write(literal, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn escapes_read_as_in_python() {
        check(r"'\d\x41\u00e9\n\/'", r#""\\dAé\n\\/""#);
        check(r#""it\'s""#, r#""it's""#);
        check(r"'\101\U0001F600\0'", "\"A😀\0\"");
        check("'a\\\nb'", "\"ab\"");
    }

    #[test]
    fn what_python_refuses_is_left_to_the_parser() {
        check(r"'\u12'", r"'\u12'");
        check("'plain\"'", "'plain\"'");
    }
}
