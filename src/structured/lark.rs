//! Spelling things in llguidance's dialect of Lark, and reading just enough of it to find the
//! schemas inside.

use std::fmt::Write as _;

use serde_json::Value;

use super::error::GrammarError;
use super::schema;

/// `text` as a string literal.
pub(super) fn quote(text: &str) -> String {
    // The dialect reads string literals as JSON does.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// `regex`, in the syntax of the `regex` crate, as a regex literal; the empty one as a string.
pub(super) fn regex(regex: &str) -> String {
    if regex.is_empty() {
        return "\"\"".to_owned();
    }
    format!("/{}/", llguidance::regex_to_lark(regex, ""))
}

/// `text` inside a regex literal.
pub(super) fn regex_quote(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            out.push(c);
        } else {
            let _ = write!(out, "\\x{:02X}", u32::from(c));
        }
    }
    out
}

/// The grammar with every `%json` schema in it made ready: what a schema can't enforce is refused
/// there as it is elsewhere.
pub(super) fn prepare_schemas(grammar: &str) -> Result<String, GrammarError> {
    let mut out = String::with_capacity(grammar.len());
    let mut rest = grammar;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '"' | '/' if !rest.starts_with("//") => literal_len(rest, c),
            '/' | '#' => rest.find('\n').unwrap_or(rest.len()),
            '%' if rest.starts_with("%json") => {
                let after = &rest["%json".len()..];
                let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
                let schema = values.next().and_then(Result::ok).ok_or_else(|| {
                    GrammarError::syntax("Lark grammar", "`%json` is not followed by a schema")
                })?;
                let _ = write!(out, "%json {}", schema::prepare(&schema)?);
                rest = &after[values.byte_offset()..];
                continue;
            }
            _ => c.len_utf8(),
        };
        out.push_str(&rest[..skipped]);
        rest = &rest[skipped..];
    }
    Ok(out)
}

// The length of the literal that `text` starts with, up to the end of its line at most.
pub(super) fn literal_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_schemas_outside_literals_and_comments() {
        let grammar = "start: \"%json {\" /%json {/ a // %json {\n# %json {\na: %json {\"type\": \"null\", \"title\": \"x\"} \"b\"";
        let prepared = prepare_schemas(grammar).unwrap();
        assert!(prepared.starts_with(
            "start: \"%json {\" /%json {/ a // %json {\n# %json {\na: %json {\"type\":\"null\""
        ));
        assert!(prepared.ends_with("} \"b\"") && !prepared.contains("title"));
        assert!(prepare_schemas("start: %json {\"uniqueItems\": true}").is_err());
        assert!(prepare_schemas("start: %json nothing").is_err());
    }
}
