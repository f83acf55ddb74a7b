//! The filters of Jinja2 that minijinja lacks or reads differently.

#![expect(clippy::needless_pass_by_value, reason = "the engine passes arguments by value")]

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use super::json;
use super::limits;
use super::methods;
use super::operators;
use super::python::{self, str_of};
use super::string_methods;

/// Installs Jinja2's filters.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| like(value, str_of(value)));
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
    env.add_filter("upper", |value: &Value| like(value, str_of(value).to_uppercase()));
    env.add_filter("lower", |value: &Value| like(value, str_of(value).to_lowercase()));
    env.add_filter("capitalize", |value: &Value| string_methods::capitalize(&str_of(value)));
    for name in ["escape", "e", "forceescape"] {
        env.add_filter(name, escape);
    }
    env.add_filter("wordcount", |value: &Value| word_count(&str_of(value)));
    env.add_filter("dictsort", dictsort);
    env.add_filter("sort", sort);
    env.add_filter("attr", attr);
    env.add_filter("urlencode", urlencode);
    env.add_filter("center", center);
    env.add_filter("truncate", truncate);
}

/// `text` as markup where `value` is markup.
fn like(value: &Value, text: String) -> Value {
    if value.is_safe() { Value::from_safe_string(text) } else { Value::from(text) }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let text = json::tojson(value, args.0, &kwargs)?;
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
    let given = !args.0.is_empty() || kwargs.has("default_value");
    let [other, boolean] = options(args, &kwargs, ["default_value", "boolean"])?;
    if value.is_undefined() || boolean.is_true() && !value.is_true() {
        Ok(if given { other } else { Value::from("") })
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
fn join(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let [separator, attribute] = options(args, &kwargs, ["d", "attribute"])?;
    let attribute = Some(attribute).filter(|path| !path.is_undefined() && !path.is_none());
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
fn int(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let [default, base] = options(args, &kwargs, ["default", "base"])?;
    let default = Some(default).filter(|default| !default.is_undefined());
    let base = base.as_usize().and_then(|base| u32::try_from(base).ok()).unwrap_or(10);
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
    let plain =
        if prefix.is_empty() { &lower } else { lower.strip_prefix(prefix).unwrap_or(&lower) };
    match i64::from_str_radix(plain, base) {
        Ok(number) if !plain.starts_with(['-', '+']) => Some(Value::from(sign * number)),
        _ => text.parse::<f64>().ok().and_then(truncated),
    }
}

/// `int(float)`, where it fits.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn truncated(float: f64) -> Option<Value> {
    (float.is_finite() && float.abs() < 9e18).then(|| Value::from(float as i64))
}

/// `float(default=0.0)`.
fn float(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let [default] = options(args, &kwargs, ["default"])?;
    let default = Some(default).filter(|default| !default.is_undefined());
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
    let [width, first, blank] = options(args, &kwargs, ["width", "first", "blank"])?;
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

fn trim(value: &Value, chars: Option<Value>) -> Result<Value, Error> {
    let text = str_of(value);
    let trimmed = match chars.filter(|chars| !chars.is_none() && !chars.is_undefined()) {
        Some(chars) => {
            let set = chars.as_str().ok_or_else(|| invalid("trim takes a string"))?;
            text.trim_matches(|c| set.contains(c))
        }
        None => text.trim_matches(string_methods::is_space),
    };
    Ok(like(value, trimmed.to_owned()))
}

fn escape(value: &Value) -> Value {
    let text = str_of(value);
    Value::from_safe_string(if value.is_safe() { text } else { operators::escape(&text) })
}

fn word_count(text: &str) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
}

fn center(value: &Value, width: Option<i64>) -> Result<Value, Error> {
    string_methods::call(&str_of(value), "center", &[Value::from(width.unwrap_or(80))])
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`.
fn truncate(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let [length, kill, end, leeway] =
        options(args, &kwargs, ["length", "killwords", "end", "leeway"])?;
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

/// An attribute only: what a mapping holds are items.
fn attr(value: &Value, name: &str) -> Result<Value, Error> {
    if value.kind() == ValueKind::Map { Ok(Value::UNDEFINED) } else { value.get_attr(name) }
}

/// Percent-encodes all but letters, digits and `_.-~/`.
fn urlencode(value: &Value) -> String {
    let mut out = String::new();
    for byte in str_of(value).bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'.' | b'-' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    out
}

/// Arguments that may come by position or by name.
fn options<const N: usize>(
    args: Rest<Value>,
    kwargs: &Kwargs,
    names: [&str; N],
) -> Result<[Value; N], Error> {
    let mut args = args.0.into_iter();
    let mut values = [const { Value::UNDEFINED }; N];
    for (slot, name) in values.iter_mut().zip(names) {
        *slot = match args.next() {
            Some(value) => value,
            None => kwargs.get::<Option<Value>>(name)?.unwrap_or_default(),
        };
    }
    if args.next().is_some() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    kwargs.assert_all_used()?;
    Ok(values)
}

/// `dictsort(case_sensitive=False, by='key', reverse=False)`.
fn dictsort(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let [case, by, reverse] = options(args, &kwargs, ["case_sensitive", "by", "reverse"])?;
    let column = usize::from(by.as_str() == Some("value"));
    let pairs: Vec<Value> = items(value)?.try_iter()?.collect();
    let key = |pair: &Value| Ok(vec![fold_case(pair.get_item_by_index(column)?, case.is_true())]);
    sorted(pairs, key, reverse.is_true())
}

/// `sort(reverse=False, case_sensitive=False, attribute=None)`.
fn sort(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let [reverse, case, attribute] =
        options(args, &kwargs, ["reverse", "case_sensitive", "attribute"])?;
    let paths: Vec<Value> = match attribute.as_str() {
        Some(paths) => paths.split(',').map(|path| Value::from(path.trim())).collect(),
        None if attribute.is_undefined() || attribute.is_none() => Vec::new(),
        None => vec![attribute],
    };
    let key = |item: &Value| {
        if paths.is_empty() {
            return Ok(vec![fold_case(item.clone(), case.is_true())]);
        }
        let parts =
            paths.iter().map(|path| Ok(fold_case(attribute_of(item, path)?, case.is_true())));
        parts.collect()
    };
    sorted(iterate(value)?.collect(), key, reverse.is_true())
}

fn fold_case(value: Value, case_sensitive: bool) -> Value {
    match value.as_str() {
        Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
        _ => value,
    }
}

/// Python's stable sort; reversed, equal items stay in their order.
fn sorted(
    items: Vec<Value>,
    key: impl Fn(&Value) -> Result<Vec<Value>, Error>,
    reverse: bool,
) -> Result<Value, Error> {
    let keyed: Result<Vec<_>, Error> =
        items.into_iter().map(|item| Ok((key(&item)?, item))).collect();
    let mut keyed = keyed?;
    keyed.sort_by(|(a, _), (b, _)| if reverse { b.cmp(a) } else { a.cmp(b) });
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}
