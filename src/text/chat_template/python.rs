//! Values as Python has them: made from JSON, printed as `str()` and `repr()` print them, passed to
//! functions by position and by name.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, Value};

/// The value of a JSON document; keys keep their order.
pub(super) fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => {
            Value::from(items.iter().map(value_of).collect::<Vec<_>>())
        }
        serde_json::Value::Object(map) => {
            Value::from_pairs(map.iter().map(|(key, item)| (key.as_str(), value_of(item))))
        }
    }
}

/// `str(value)`; an undefined value prints as nothing, as in Jinja2.
pub(super) fn str_of(value: &Value) -> String {
    let mut out = String::new();
    write_str(value, &mut out);
    out
}

/// Appends `str(value)`.
pub(super) fn write_str(value: &Value, out: &mut String) {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write_repr(value, out),
    }
}

/// Appends `repr(value)`.
pub(super) fn write_repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, out),
        ValueKind::String => write_repr_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => write_sequence(value, out),
        ValueKind::Map => write_map(value, out),
        _ => out.push_str(&value.to_string()),
    }
}

/// Appends a number as Python prints it.
pub(super) fn write_number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => out.push_str(&float_repr(float)),
        _ => out.push_str(&value.to_string()),
    }
}

fn write_sequence(value: &Value, out: &mut String) {
    let tuple = value.is_tuple();
    out.push(if tuple { '(' } else { '[' });
    let mut count = 0usize;
    for item in value.try_iter().into_iter().flatten() {
        if count > 0 {
            out.push_str(", ");
        }
        write_repr(&item, out);
        count += 1;
    }
    if tuple && count == 1 {
        out.push(',');
    }
    out.push(if tuple { ')' } else { ']' });
}

fn write_map(value: &Value, out: &mut String) {
    out.push('{');
    for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_repr(&key, out);
        out.push_str(": ");
        write_repr(&value.get_item(&key).unwrap_or_default(), out);
    }
    out.push('}');
}

/// `repr` of a string: single quotes unless only they occur in it, unprintable characters escaped.
fn write_repr_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            _ => write_escape(u32::from(c), out),
        }
    }
    out.push(quote);
}

fn write_escape(code: u32, out: &mut String) {
    let written = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("writing to a string does not fail");
}

/// Python's `isprintable`, for the ranges that occur: no controls, formats, separators but the
/// space, surrogates or private characters.
fn is_printable(c: char) -> bool {
    let code = u32::from(c);
    let control = matches!(code, 0..=0x1f | 0x7f..=0x9f);
    let separator = matches!(code, 0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028..=0x2029 | 0x202f | 0x205f | 0x3000);
    let format = matches!(code, 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891 | 0x8e2
        | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff0..=0xfffb);
    let private =
        matches!(code, 0xe000..=0xf8ff | 0xfffe..=0xffff | 0xe0000..=0xe00ff | 0xe01f0..=0x10_ffff);
    !(control || separator || format || private)
}

/// `repr` of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// Splits the arguments of a method or filter into positional ones and keywords.
pub(super) fn split_kwargs(args: &[Value]) -> Result<(Vec<Value>, Kwargs), Error> {
    let (Rest(positional), kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
    Ok((positional, kwargs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (3.0, "3.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (-0.0, "-0.0"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (1.23e300, "1.23e+300"),
            (123_456.75, "123456.75"),
        ];
        for (value, expected) in cases {
            assert_eq!(float_repr(value), expected);
        }
    }

    #[test]
    fn strings_in_containers_are_quoted_as_in_python() {
        let value = Value::from(vec!["a", "it's", "say \"it's\"", "a\n\u{200b}\u{1}é😀\\"]);
        let expected = r#"['a', "it's", 'say "it\'s"', 'a\n\u200b\x01é😀\\']"#;
        assert_eq!(str_of(&value), expected);
    }
}
