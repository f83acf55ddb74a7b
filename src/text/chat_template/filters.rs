//! The filters of Jinja2 that minijinja lacks or reads differently.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use super::json;
use super::limits;
use super::methods;
use super::python::{self, str_of};
use super::source;
use super::string_methods;

/// Installs the filters.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_filter(source::BOUNDED, limits::bounded);
    env.add_filter(source::PERCENT, percent);
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| str_of(value));
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("items", items);
    env.add_filter("join", join);
    env.add_filter("replace", replace);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("first", first);
    env.add_filter("last", last);
    env.add_filter("indent", indent);
    env.add_filter("trim", trim);
    env.add_filter("upper", |value: &Value| str_of(value).to_uppercase());
    env.add_filter("lower", |value: &Value| str_of(value).to_lowercase());
    env.add_filter("capitalize", |value: &Value| string_methods::capitalize(&str_of(value)));
    env.add_filter("wordcount", |value: &Value| word_count(&str_of(value)));
    env.add_filter("center", center);
    env.add_filter("truncate", truncate);
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let text = json::tojson(value, args.0, &kwargs)?;
    limits::charge(text.len())?;
    Ok(text)
}

/// `"..." % value`: a tuple is the list of arguments, a mapping may be used by name.
fn percent(format_string: &str, value: &Value) -> Result<String, Error> {
    let args: Vec<Value> =
        if value.is_tuple() { value.try_iter()?.collect() } else { vec![value.clone()] };
    let text = format(FormatStyle::Printf, format_string, &args)?;
    limits::charge(text.len())?;
    Ok(text)
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| invalid(format!("object of type {} has no length", value.kind())))
}

/// `default(value, default_value='', boolean=False)`.
fn default(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut args = args.0.into_iter();
    let other = match args.next() {
        Some(other) => Some(other),
        None => kwargs.get::<Option<Value>>("default_value")?,
    };
    let boolean = match args.next() {
        Some(flag) => flag.is_true(),
        None => kwargs.get::<Option<Value>>("boolean")?.is_some_and(|flag| flag.is_true()),
    };
    kwargs.assert_all_used()?;
    if value.is_undefined() || boolean && !value.is_true() {
        Ok(other.unwrap_or_else(|| Value::from("")))
    } else {
        Ok(value.clone())
    }
}

fn items(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => methods::items(value),
        _ => Err(invalid("can only get item pairs from a mapping")),
    }
}

/// `join(d='', attribute=None)`.
fn join(
    value: &Value,
    separator: Option<Value>,
    attribute: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let separator = match separator {
        Some(separator) => separator,
        None => kwargs.get::<Option<Value>>("d")?.unwrap_or_default(),
    };
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => kwargs.get::<Option<Value>>("attribute")?,
    };
    kwargs.assert_all_used()?;
    let separator = str_of(&separator);
    let mut out = String::new();
    for (index, item) in iterate(value)?.enumerate() {
        if index > 0 {
            out.push_str(&separator);
        }
        let item = match &attribute {
            Some(path) => attribute_of(&item, path)?,
            None => item,
        };
        python::write_str(&item, &mut out);
        limits::check_length(out.len())?;
    }
    limits::charge(out.len())?;
    Ok(out)
}

fn iterate(value: &Value) -> Result<impl Iterator<Item = Value> + use<>, Error> {
    if value.is_none() {
        return Err(invalid("None is not iterable"));
    }
    value.try_iter()
}

/// A dotted path; parts that are numbers are indices.
fn attribute_of(item: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return item.get_item(path) };
    let mut value = item.clone();
    for part in path.split('.') {
        value = match part.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index)?,
            Err(_) => value.get_attr(part)?,
        };
    }
    Ok(value)
}

fn replace(value: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<String, Error> {
    string_methods::replace(&str_of(value), &str_of(old), &str_of(new), count)
}

/// `int(default=0, base=10)`: what is no number becomes the default.
fn int(
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = match default {
        Some(default) => Some(default),
        None => kwargs.get::<Option<Value>>("default")?,
    };
    let base = match base {
        Some(base) => base,
        None => kwargs.get::<Option<u32>>("base")?.unwrap_or(10),
    };
    kwargs.assert_all_used()?;
    if value.is_undefined() {
        return Err(invalid("cannot convert an undefined value to an integer"));
    }
    let parsed = match value.kind() {
        ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => Some(value.clone()),
        ValueKind::Number => f64::try_from(value.clone()).ok().and_then(truncated),
        ValueKind::String => parse_int(value.as_str().unwrap_or_default(), base),
        _ => None,
    };
    Ok(parsed.or(default).unwrap_or_else(|| Value::from(0)))
}

fn parse_int(text: &str, base: u32) -> Option<Value> {
    let text = text.trim_matches(string_methods::is_space).replace('_', "");
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        3..=36 => "",
        _ => return None,
    };
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let lower = digits.to_ascii_lowercase();
    let bare =
        if prefix.is_empty() { &lower } else { lower.strip_prefix(prefix).unwrap_or(&lower) };
    match i64::from_str_radix(bare, base) {
        Ok(number) if !bare.starts_with(['-', '+']) => Some(Value::from(sign * number)),
        _ => text.parse::<f64>().ok().and_then(truncated),
    }
}

/// `int(float)`, where it fits.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn truncated(float: f64) -> Option<Value> {
    (float.is_finite() && float.abs() < 9e18).then(|| Value::from(float as i64))
}

/// `float(default=0.0)`.
fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = match default {
        Some(default) => Some(default),
        None => kwargs.get::<Option<Value>>("default")?,
    };
    kwargs.assert_all_used()?;
    let parsed = match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            text.trim_matches(string_methods::is_space).replace('_', "").parse().ok()
        }
        _ => None,
    };
    Ok(parsed.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0)))
}

fn first(value: &Value) -> Result<Value, Error> {
    Ok(iterate(value)?.next().unwrap_or_default())
}

fn last(value: &Value) -> Result<Value, Error> {
    Ok(iterate(value)?.last().unwrap_or_default())
}

/// `indent(width=4, first=False, blank=False)`; the width may be the text to indent with.
fn indent(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let mut args = args.0.into_iter();
    let mut option = |name: &str| match args.next() {
        Some(value) => Ok(value),
        None => kwargs.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let (width, first, blank) = (option("width")?, option("first")?, option("blank")?);
    kwargs.assert_all_used()?;
    let margin = match width.as_str() {
        Some(text) => text.to_owned(),
        None if width.is_undefined() => " ".repeat(4),
        None => " ".repeat(usize::try_from(i64::try_from(width)?).unwrap_or(0).min(1000)),
    };
    let text = str_of(value) + "\n";
    limits::charge(text.len().saturating_add(margin.len() * text.matches('\n').count()))?;
    let mut lines = string_methods::split_lines(&text, false);
    let mut out = if first.is_true() { margin.clone() } else { String::new() };
    if blank.is_true() {
        out.push_str(&lines.join(&format!("\n{margin}")));
        return Ok(out);
    }
    out.push_str(lines.remove(0));
    for line in lines {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn trim(value: &Value, chars: Option<Value>) -> Result<String, Error> {
    let text = str_of(value);
    let trimmed = match chars.filter(|chars| !chars.is_none() && !chars.is_undefined()) {
        Some(chars) => {
            let set = chars.as_str().ok_or_else(|| invalid("trim takes a string"))?;
            text.trim_matches(|c| set.contains(c))
        }
        None => text.trim_matches(string_methods::is_space),
    };
    Ok(trimmed.to_owned())
}

fn word_count(text: &str) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
}

fn center(value: &Value, width: Option<i64>) -> Result<Value, Error> {
    string_methods::call(&str_of(value), "center", &[Value::from(width.unwrap_or(80))])
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`.
fn truncate(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let mut args = args.0.into_iter();
    let mut option = |name: &str| match args.next() {
        Some(value) => Ok(value),
        None => kwargs.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let (length, kill) = (option("length")?, option("killwords")?);
    let (end, leeway) = (option("end")?, option("leeway")?);
    kwargs.assert_all_used()?;
    let size = |value: &Value, default: usize| value.as_usize().unwrap_or(default);
    let (length, leeway) = (size(&length, 255), size(&leeway, 5));
    let end = if end.is_undefined() { "...".to_owned() } else { str_of(&end) };
    let text = str_of(value);
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let keep =
        length.checked_sub(end.chars().count()).ok_or_else(|| invalid("length is too small"))?;
    let cut: String = text.chars().take(keep).collect();
    let words =
        if kill.is_true() { &cut } else { cut.rsplit_once(' ').map_or(cut.as_str(), |cut| cut.0) };
    Ok(format!("{words}{end}"))
}
