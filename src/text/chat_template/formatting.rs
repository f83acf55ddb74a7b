//! Python's two ways to format a string: `"%s" % value` and `"{}".format(value)`.
//!
//! Conversions to text (`%s`, `%r`, `{}`, `{!r}`) are Python's `str` and `repr`; numbers are left to
//! minijinja's formatter, one directive at a time.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::python::{self, str_of};

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}

fn repr_of(value: &Value) -> String {
    let mut out = String::new();
    python::write_repr(value, &mut out);
    out
}

/// `template % value`: a tuple is the list of arguments, a mapping may be used by name.
pub(super) fn percent(template: &str, value: &Value) -> Result<String, Error> {
    let args: Vec<Value> =
        if value.is_tuple() { value.try_iter()?.collect() } else { vec![value.clone()] };
    let mut args = args.into_iter();
    let mut named = false;
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut argument = None;
        if let Some(after) = rest.strip_prefix('(') {
            let (key, after) =
                after.split_once(')').ok_or_else(|| invalid("incomplete format key"))?;
            argument = Some(value.get_item(&Value::from(key))?);
            named = true;
            rest = after;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic());
        let end = end.ok_or_else(|| invalid("incomplete format"))?;
        let (flags, conversion) = (&rest[..end], &rest[end..=end]);
        let next = || invalid("not enough arguments for format string");
        let argument = match argument {
            Some(argument) => argument,
            None => args.next().ok_or_else(next)?,
        };
        out.push_str(&percent_directive(flags, conversion, &argument)?);
        rest = &rest[end + 1..];
    }
    // Whatever could be subscripted by a key may be left over, but a tuple may not.
    let keyed = matches!(value.kind(), ValueKind::Map | ValueKind::Seq) && !value.is_tuple();
    if !named && !keyed && args.next().is_some() {
        return Err(invalid("not all arguments converted during string formatting"));
    }
    out.push_str(rest);
    Ok(out)
}

fn percent_directive(flags: &str, conversion: &str, value: &Value) -> Result<String, Error> {
    let (conversion, value) = match conversion {
        "s" => ("s", Value::from(str_of(value))),
        "r" | "a" => ("s", Value::from(repr_of(value))),
        "i" | "u" => ("d", value.clone()),
        other => (other, value.clone()),
    };
    format(FormatStyle::Printf, &format!("%{flags}{conversion}"), &[value])
}

/// `template.format(*args, **kwargs)`.
pub(super) fn braces(template: &str, args: &[Value]) -> Result<String, Error> {
    let (positional, kwargs) = python::split_kwargs(args)?;
    let mut automatic = 0usize;
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err(invalid("single '}' encountered in format string"));
        }
        let (field, after) =
            rest.split_once('}').ok_or_else(|| invalid("expected '}' before end of string"))?;
        rest = after;
        let (field, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = field.split_once('!').unwrap_or((field, ""));
        let (name, path) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
        let value = match name.parse::<usize>() {
            Ok(index) => positional.get(index).cloned(),
            Err(_) if name.is_empty() => {
                automatic += 1;
                positional.get(automatic - 1).cloned()
            }
            Err(_) => kwargs.get::<Option<Value>>(name)?,
        };
        let value = value.ok_or_else(|| invalid("replacement index out of range"))?;
        out.push_str(&braces_field(&follow(value, path)?, conversion, spec)?);
    }
    out.push_str(rest);
    Ok(out)
}

/// Goes along `.name` and `[index]`.
fn follow(mut value: Value, path: &str) -> Result<Value, Error> {
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        let key = step.strip_suffix(']').unwrap_or(step);
        value = match key.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index)?,
            Err(_) => value.get_attr(key)?,
        };
    }
    Ok(value)
}

fn braces_field(value: &Value, conversion: &str, spec: &str) -> Result<String, Error> {
    let value = match conversion {
        "" if spec.is_empty() => Value::from(str_of(value)),
        "" => value.clone(),
        "s" => Value::from(str_of(value)),
        "r" | "a" => Value::from(repr_of(value)),
        _ => return Err(invalid("unknown conversion in format string")),
    };
    if spec.is_empty() {
        return Ok(str_of(&value));
    }
    format(FormatStyle::StrFormat, &format!("{{:{spec}}}"), &[value])
}
