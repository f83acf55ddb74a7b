//! JSON as Python writes it, which has words for numbers that are not finite.
//!
//! They become `{"__float__": "Infinity"}`, as newer versions of the transformers library write them.

use serde_json::{Error, Value};

/// Longest first.
const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Parses a file; its words for numbers are looked at only if it isn't JSON otherwise.
///
/// # Errors
///
/// What is not JSON even then: the error says where in the file.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Error> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let spelled = std::str::from_utf8(bytes).ok().map(spelled_out);
    spelled.and_then(|text| serde_json::from_str(&text).ok()).ok_or(error)
}

/// The text with objects for words that stand outside of strings.
fn spelled_out(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 64);
    let mut rest = text;
    let (mut in_string, mut escaped) = (false, false);
    while let Some(next) = rest.chars().next() {
        let word = WORDS.iter().find(|word| rest.starts_with(**word)).filter(|_| !in_string);
        if let Some(word) = word {
            result.extend(["{\"__float__\": \"", word, "\"}"]);
            rest = &rest[word.len()..];
            continue;
        }
        in_string ^= next == '"' && !escaped;
        escaped = in_string && next == '\\' && !escaped;
        result.push(next);
        rest = &rest[next.len_utf8()..];
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_for_numbers_that_are_not_finite_are_read() {
        let text =
            r#"{"limit": [0.0, Infinity], "NaN": "a \" Infinity", "b": -Infinity, "c": NaN}"#;
        let expected = json!({
            "limit": [0.0, {"__float__": "Infinity"}],
            "NaN": "a \" Infinity",
            "b": {"__float__": "-Infinity"},
            "c": {"__float__": "NaN"},
        });
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        assert_eq!(parse(b"[1, \"NaN\"]").unwrap(), json!([1, "NaN"]));
    }

    #[test]
    fn errors_say_where_the_file_is_broken() {
        let error = parse(b"{\"a\": Infinite}").unwrap_err();
        assert_eq!((error.line(), error.column()), (1, 7));
        assert!(parse(b"\xff").is_err());
    }
}
