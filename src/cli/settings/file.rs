//! `sconce.toml`: a key for each flag, by its long name.

use std::ops::Range;
use std::path::Path;

use clap::{Arg, Command};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kind::{Kind, Values, is_list};
use super::setting::{CONFIG, Judge, Origin, Setting, own_flags};

/// Reads the file's values for flags of `command`.
///
/// # Errors
/// The file can't be read or is no TOML, a key is no flag, or a value is not of the flag's type or
/// range; with the file, the line and the key.
pub(super) fn read(
    path: &Path,
    command: &Command,
    judge: &Judge<'_>,
) -> Result<Vec<Setting>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("--config {}: it can't be read: {error}", path.display()))?;
    read_text(&text, command, judge, &|line| Origin::File { path: path.to_owned(), line })
}

/// Reads the flags of a table that is a part of another file.
pub(super) fn read_table(
    text: &str,
    command: &Command,
    judge: &Judge<'_>,
) -> Result<Vec<Setting>, String> {
    read_text(text, command, judge, &|_| Origin::Found)
}

fn read_text(
    text: &str,
    command: &Command,
    judge: &Judge<'_>,
    origin: &dyn Fn(usize) -> Origin,
) -> Result<Vec<Setting>, String> {
    let place = |span: &Range<usize>| {
        origin(1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count())
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = place(&error.span().unwrap_or(0..0));
        format!("{at}: {}", error.message().replace('\n', ", "))
    })?;
    let mut settings: Vec<Setting> = Vec::new();
    for (key, value) in table.get_ref() {
        let origin = place(&key.span());
        let wrong = |error: String| match &origin {
            Origin::Found => format!("`{}`: {error}", key.get_ref()),
            _ => format!("{origin}: `{}`: {error}", key.get_ref()),
        };
        let flag = flag(command, key.get_ref()).map_err(&wrong)?;
        let name = flag.get_long().unwrap_or_default().to_owned();
        if let Some(same) = settings.iter().find(|setting| setting.name == name) {
            return Err(wrong(format!("it is the same as the key of {}", same.origin)));
        }
        let values = values(flag, value).map_err(&wrong)?;
        judge.check(&name, &values).map_err(&wrong)?;
        settings.push(Setting { name, values, origin });
    }
    Ok(settings)
}

fn flag<'a>(command: &'a Command, key: &str) -> Result<&'a Arg, String> {
    if key == CONFIG {
        return Err("a file can't name another file".to_owned());
    }
    let by_name = |key: &str| {
        own_flags(command).find(|flag| {
            let aliases = flag.get_all_aliases().unwrap_or_default();
            flag.get_long() == Some(key) || aliases.contains(&key)
        })
    };
    by_name(key).ok_or_else(|| {
        let meant = by_name(&key.to_lowercase().replace('_', "-")).and_then(Arg::get_long);
        let hint = meant.map(|name| format!("; it is written `{name}`"));
        format!("`sconce serve` has no such flag{}", hint.unwrap_or_default())
    })
}

/// The values of a key as they would be typed.
fn values(flag: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Values, String> {
    let kind = Kind::of(flag);
    match value.get_ref() {
        DeValue::Boolean(on) if kind == Kind::Switch => Ok(Values::Switch(*on)),
        DeValue::Array(items) if is_list(flag) => {
            let texts = items.iter().map(|item| one(kind, item.get_ref()));
            Ok(Values::Texts(texts.collect::<Result<_, _>>()?))
        }
        value => one(kind, value).map(|text| Values::Texts(vec![text])).map_err(|error| {
            if is_list(flag) { format!("{error}, or an array of such") } else { error }
        }),
    }
}

fn one(kind: Kind, value: &DeValue<'_>) -> Result<String, String> {
    match (kind, value) {
        (Kind::Text | Kind::Other, DeValue::String(text)) => Ok(text.clone().into_owned()),
        (Kind::Integer | Kind::Float | Kind::Other, DeValue::Integer(_))
        | (Kind::Float, DeValue::Float(_))
        | (Kind::Other, DeValue::Table(_)) => Ok(json(value)?.to_string()),
        _ => Err(format!("it must be {}, not {}", kind.expected(), described(value))),
    }
}

fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Value::from(parsed.map_err(|error| format!("{number}: {error}"))?)
        }
        DeValue::Float(number) => {
            let parsed: f64 =
                number.as_str().parse().map_err(|_| format!("{number} is no number"))?;
            let finite = serde_json::Number::from_f64(parsed);
            Value::Number(finite.ok_or_else(|| format!("{number} is not finite"))?)
        }
        DeValue::Boolean(on) => Value::from(*on),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let pair = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                Ok((String::from(AsRef::<str>::as_ref(key.get_ref())), json(value.get_ref())?))
            };
            Value::Object(table.iter().map(pair).collect::<Result<Map<_, _>, String>>()?)
        }
    })
}
