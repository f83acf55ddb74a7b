//! `tojson` as transformers defines it: Python's `json.dumps` with `ensure_ascii` off by default
//! and without HTML escapes; keys stay in their order.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::limits;
use super::python;

/// The options of `json.dumps` that templates use.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    value: &Value,
    positional: Vec<Value>,
    kwargs: &Kwargs,
) -> Result<String, Error> {
    let mut positional = positional.into_iter();
    let mut option = |name: &str| match positional.next() {
        Some(value) => Ok(value),
        None => kwargs.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let ensure_ascii = option("ensure_ascii")?.is_true();
    let indent = indent_text(&option("indent")?)?;
    let separators = option("separators")?;
    let sort_keys = option("sort_keys")?.is_true();
    kwargs.assert_all_used()?;
    let (item_separator, key_separator) = match separator_texts(&separators) {
        Some(texts) => texts,
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let style = Style { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(out)
}

fn indent_text(value: &Value) -> Result<Option<String>, Error> {
    if value.is_undefined() || value.is_none() {
        return Ok(None);
    }
    if let Some(text) = value.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let width = if value.kind() == ValueKind::Bool {
        i64::from(value.is_true())
    } else {
        value.as_i64().ok_or_else(|| invalid("indent must be an integer or a string"))?
    };
    let width = usize::try_from(width).unwrap_or(0);
    if width > 1000 {
        return Err(invalid("indent is above 1000"));
    }
    Ok(Some(" ".repeat(width)))
}

fn separator_texts(value: &Value) -> Option<(String, String)> {
    let mut items = value.try_iter().ok()?;
    let item = items.next()?.as_str()?.to_owned();
    Some((item, items.next()?.as_str()?.to_owned()))
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        limits::check_length(out.len())?;
        limits::check_depth(depth)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(value, out),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => self.write_list(value, depth, out)?,
            ValueKind::Map => self.write_map(value, depth, out)?,
            kind => {
                return Err(invalid(&format!("object of type {kind} is not JSON serializable")));
            }
        }
        Ok(())
    }

    fn write_list(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            if !empty {
                out.push_str(&self.item_separator);
            }
            empty = false;
            self.new_line(depth + 1, out);
            self.write(&item, depth + 1, out)?;
        }
        if !empty {
            self.new_line(depth, out);
        }
        out.push(']');
        Ok(())
    }

    fn write_map(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (index, key) in keys.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, out);
            self.write_key(key, out)?;
            out.push_str(&self.key_separator);
            self.write(&value.get_item(key)?, depth + 1, out)?;
        }
        if !keys.is_empty() {
            self.new_line(depth, out);
        }
        out.push('}');
        Ok(())
    }

    fn write_key(&self, key: &Value, out: &mut String) -> Result<(), Error> {
        let mut text = String::new();
        match key.kind() {
            ValueKind::String => text.push_str(key.as_str().unwrap_or_default()),
            ValueKind::None => text.push_str("null"),
            ValueKind::Bool => text.push_str(if key.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(key, &mut text),
            kind => return Err(invalid(&format!("a JSON key must be a string, not {kind}"))),
        }
        self.write_string(&text, out);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => write_escape(u32::from(c), out),
                _ if self.ensure_ascii && !matches!(c, ' '..='~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write_escape(u32::from(*unit), out);
                    }
                }
                _ => out.push(c),
            }
        }
        out.push('"');
    }
}

fn write_escape(code: u32, out: &mut String) {
    write!(out, "\\u{code:04x}").expect("writing to a string does not fail");
}

fn write_number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() && !float.is_finite() => out.push_str(if float.is_nan() {
            "NaN"
        } else if float > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }),
        _ => python::write_number(value, out),
    }
}
