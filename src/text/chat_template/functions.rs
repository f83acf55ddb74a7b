//! The functions that templates may call, and how a value is printed.

use std::fmt;

use chrono::NaiveDateTime;
use minijinja::value::{Kwargs, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};

use super::clock;
use super::limits;
use super::operators;
use super::python;

/// What `raise_exception` says; travels as the source of the engine's error.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Installs Jinja2's global functions.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_function("raise_exception", raise_exception);
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("namespace", namespace);
    env.add_function("dict", dict);
}

fn raise_exception(message: Option<&Value>) -> Result<Value, Error> {
    let message = message.map(python::str_of).unwrap_or_default();
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

/// `namespace(mapping, **attributes)`.
fn namespace(mapping: Option<Value>, attributes: Kwargs) -> Result<Value, Error> {
    minijinja::functions::namespace(Some(ValueOrKwargs::from(dict(mapping, attributes)?)))
}

/// `dict(mapping_or_pairs, **items)`.
#[expect(clippy::needless_pass_by_value, reason = "the engine passes arguments by value")]
fn dict(mapping: Option<Value>, items: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    let mapping = mapping.unwrap_or_default();
    for entry in mapping.try_iter()? {
        if mapping.kind() == ValueKind::Map {
            let value = mapping.get_item(&entry)?;
            pairs.push((entry, value));
        } else {
            pairs.push((entry.get_item_by_index(0)?, entry.get_item_by_index(1)?));
        }
    }
    for name in items.args() {
        pairs.push((Value::from(name), items.get(name)?));
    }
    Ok(Value::from_pairs(pairs))
}

/// The function `strftime_now`, which tells `now` or, without, the local time.
pub(super) fn strftime_now(now: Option<NaiveDateTime>) -> Value {
    Value::from_function(move |format: &str| {
        let now = now.unwrap_or_else(|| chrono::Local::now().naive_local());
        clock::strftime(now, format)
    })
}

/// Prints a value as Python does; installed as the environment's formatter.
pub(super) fn format(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    let write = |out: &mut Output<'_>, text: &str| {
        limits::charge(text.len())?;
        out.write_str(text).map_err(Error::from)
    };
    if *state.auto_escape() != AutoEscape::None && !value.is_safe() {
        return write(out, &operators::escape(&python::str_of(value)));
    }
    match value.as_str() {
        Some(text) => write(out, text),
        None => write(out, &python::str_of(value)),
    }
}
