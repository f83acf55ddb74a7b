//! The methods of Python's `str`.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Value};

use super::formatting;
use super::limits;
use super::python;

/// Calls `method` of the string `text`.
pub(super) fn call(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(result) = predicate(text, method) {
        let (): () = from_args(args)?;
        return Ok(Value::from(result));
    }
    if let Some(result) = mapped(text, method) {
        let (): () = from_args(args)?;
        limits::charge(result.len())?;
        return Ok(Value::from(result));
    }
    match method {
        "strip" | "lstrip" | "rstrip" => strip(text, method, args),
        "split" | "rsplit" => split(text, method == "rsplit", args),
        "splitlines" => splitlines(text, args),
        "partition" | "rpartition" => partition(text, method == "rpartition", args),
        "replace" => replace_method(text, args),
        "join" => join(text, args),
        "startswith" => starts_or_ends(text, args, |text, affix| text.starts_with(affix)),
        "endswith" => starts_or_ends(text, args, |text, affix| text.ends_with(affix)),
        "removeprefix" | "removesuffix" => remove_affix(text, method == "removeprefix", args),
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, method, args),
        "center" | "ljust" | "rjust" | "zfill" => pad(text, method, args),
        "format" => {
            let text = formatting::braces(text, args)?;
            limits::charge(text.len())?;
            Ok(Value::from(text))
        }
        "encode" => Ok(Value::from_bytes(text.as_bytes().to_vec())),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn predicate(text: &str, method: &str) -> Option<bool> {
    let every = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    Some(match method {
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isspace" => every(is_space),
        "isdigit" | "isdecimal" | "isnumeric" => every(char::is_numeric),
        "isalpha" => every(char::is_alphabetic),
        "isalnum" => every(char::is_alphanumeric),
        "isascii" => text.is_ascii(),
        "isidentifier" => {
            every(|c| c == '_' || c.is_alphanumeric()) && !text.starts_with(char::is_numeric)
        }
        "istitle" => title(text) == text && text.chars().any(char::is_uppercase),
        _ => return None,
    })
}

fn mapped(text: &str, method: &str) -> Option<String> {
    Some(match method {
        "upper" => text.to_uppercase(),
        "lower" | "casefold" => text.to_lowercase(),
        "title" => title(text),
        "capitalize" => capitalize(text),
        "swapcase" => text
            .chars()
            .flat_map(|c| -> Vec<char> {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            })
            .collect(),
        _ => return None,
    })
}

/// `str.isspace` of one character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str.title`: a letter after anything but a letter is upper case.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        let cased = c.is_uppercase() || c.is_lowercase();
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        in_word = cased;
    }
    out
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase(),
        None => String::new(),
    }
}

fn strip(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (chars,): (Option<Value>,) = from_args(args)?;
    let set = match &chars {
        Some(value) if !value.is_none() => Some(text_of(value)?.to_owned()),
        _ => None,
    };
    let cut = |c: char| set.as_ref().map_or_else(|| is_space(c), |set| set.contains(c));
    let stripped = match method {
        "lstrip" => text.trim_start_matches(cut),
        "rstrip" => text.trim_end_matches(cut),
        _ => text.trim_matches(cut),
    };
    Ok(Value::from(stripped))
}

fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (mut positional, kwargs) = python::split_kwargs(args)?;
    positional.reverse();
    let mut option = |name: &str| match positional.pop() {
        Some(value) => Ok(value),
        None => kwargs.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let (separator, limit) = (option("sep")?, option("maxsplit")?);
    kwargs.assert_all_used()?;
    let limit = if limit.is_undefined() { -1 } else { i64::try_from(limit)? };
    let limit = usize::try_from(limit).ok();
    let pieces: Vec<&str> = if separator.is_undefined() || separator.is_none() {
        if from_right { rsplit_space(text, limit) } else { split_space(text, limit) }
    } else {
        let separator = text_of(&separator)?;
        if separator.is_empty() {
            return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
        }
        let count = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
        if from_right {
            let mut pieces: Vec<&str> = text.rsplitn(count, separator).collect();
            pieces.reverse();
            pieces
        } else {
            text.splitn(count, separator).collect()
        }
    };
    limits::charge(text.len())?;
    Ok(pieces.into_iter().map(Value::from).collect())
}

fn split_space(text: &str, limit: Option<usize>) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if limit.is_some_and(|limit| pieces.len() == limit) {
            pieces.push(rest);
            return pieces;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        pieces.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    pieces
}

fn rsplit_space(text: &str, limit: Option<usize>) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if limit.is_some_and(|limit| pieces.len() == limit) {
            pieces.push(rest);
            break;
        }
        let last_space = rest.char_indices().rev().find(|(_, c)| is_space(*c));
        let start = last_space.map_or(0, |(at, c)| at + c.len_utf8());
        pieces.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    pieces.reverse();
    pieces
}

fn splitlines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (positional, kwargs) = python::split_kwargs(args)?;
    let keep = match positional.first() {
        Some(value) => value.is_true(),
        None => kwargs.get::<Option<bool>>("keepends")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    Ok(split_lines(text, keep).into_iter().map(Value::from).collect())
}

/// `str.splitlines`, with the line ends where `keep` says so.
pub(super) fn split_lines(text: &str, keep: bool) -> Vec<&str> {
    let ends = |c: char| {
        let separator = matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}');
        matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e') || separator
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(ends).unwrap_or(rest.len());
        let length = match &rest[end..] {
            tail if tail.starts_with("\r\n") => 2,
            tail => tail.chars().next().map_or(0, char::len_utf8),
        };
        lines.push(&rest[..if keep { end + length } else { end }]);
        rest = &rest[end + length..];
    }
    lines
}

fn partition(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let found = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from).to_vec())))
}

fn replace_method(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
    replace(text, old, new, count).map(Value::from)
}

/// `str.replace`; a negative count replaces all.
pub(super) fn replace(
    text: &str,
    old: &str,
    new: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let matches = text.matches(old).count();
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(matches);
    limits::charge(text.len().saturating_add(matches.min(count).saturating_mul(new.len())))?;
    Ok(text.replacen(old, new, count))
}

fn join(separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut out = String::new();
    for (index, item) in items.try_iter()?.enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(text_of(&item)?);
        limits::check_length(out.len())?;
    }
    limits::charge(out.len())?;
    Ok(Value::from(out))
}

fn starts_or_ends(
    text: &str,
    args: &[Value],
    matches: fn(&str, &str) -> bool,
) -> Result<Value, Error> {
    let (affix, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let Some((_, window)) = window(text, start, end) else { return Ok(Value::from(false)) };
    if affix.kind() == ValueKind::String {
        return Ok(Value::from(matches(window, text_of(affix)?)));
    }
    for one in affix.try_iter()? {
        if matches(window, text_of(&one)?) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn remove_affix(text: &str, prefix: bool, args: &[Value]) -> Result<Value, Error> {
    let (affix,): (&str,) = from_args(args)?;
    let rest = if prefix { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
    Ok(Value::from(rest.unwrap_or(text)))
}

fn search(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (wanted, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let window = window(text, start, end);
    if method == "count" {
        return Ok(Value::from(window.map_or(0, |(_, window)| window.matches(wanted).count())));
    }
    let from_right = method.starts_with('r');
    let found = window.and_then(|(skipped, window)| {
        let at = if from_right { window.rfind(wanted) } else { window.find(wanted) }?;
        Some(skipped + window[..at].chars().count())
    });
    match found {
        Some(position) => Ok(Value::from(position)),
        None if method.ends_with("index") => {
            Err(Error::new(ErrorKind::InvalidOperation, "substring not found"))
        }
        None => Ok(Value::from(-1)),
    }
}

/// The part of `text` between two positions in characters, negative ones counted from the end, and
/// how many characters lie before it.
fn window(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, &str)> {
    if start.is_none() && end.is_none() {
        return Some((0, text));
    }
    let length = text.chars().count();
    let position = |index: i64| match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => length.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(length)),
    };
    let start = position(start.unwrap_or(0));
    let end = end.map_or(length, position).min(length);
    if start > end {
        return None;
    }
    let byte = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    Some((start, &text[byte(start)..byte(end)]))
}

fn pad(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let length = text.chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(length);
    limits::charge(missing)?;
    let fill = fill.unwrap_or(" ");
    let left = match method {
        "ljust" => 0,
        // Python puts the odd character left when the width is odd too.
        "center" => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
        _ => missing,
    };
    if method == "zfill" {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let sign = &text[..text.len() - digits.len()];
        return Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))));
    }
    Ok(Value::from(format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn text_of(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| {
        let mut shown = String::new();
        python::write_repr(value, &mut shown);
        Error::new(ErrorKind::InvalidOperation, format!("expected a string, found {shown}"))
    })
}
