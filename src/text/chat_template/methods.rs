//! The methods of Python's containers and numbers, and where those of strings are found.
//!
//! What would change a value is refused: templates render in an immutable sandbox.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::python;
use super::string_methods;

/// Calls `method` on `value`; installed as minijinja's unknown-method callback.
pub(super) fn call(
    _state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            let result = string_methods::call(value.as_str().unwrap_or_default(), method, args)?;
            Ok(if value.is_safe() { as_markup(result) } else { result })
        }
        ValueKind::Map => map_method(value, method, args),
        ValueKind::Seq | ValueKind::Iterable => sequence_method(value, method, args),
        ValueKind::Number => number_method(value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// The methods of Jinja2's `Markup` give markup.
fn as_markup(result: Value) -> Value {
    match result.kind() {
        ValueKind::String => Value::from_safe_string(python::str_of(&result)),
        ValueKind::Seq if !result.is_tuple() => match result.try_iter() {
            Ok(items) => Value::from(items.map(as_markup).collect::<Vec<_>>()),
            Err(_) => result,
        },
        _ => result,
    }
}

fn immutable(kind: &str, method: &str) -> Error {
    let message = format!("'{method}' would change a {kind}; templates may not change values");
    Error::new(ErrorKind::InvalidOperation, message)
}

fn map_method(map: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let item = |key: &Value| map.as_object().and_then(|object| object.get_value(key));
    match method {
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            Ok(item(key).unwrap_or_else(|| default.unwrap_or_else(|| Value::from(()))))
        }
        "keys" => {
            let () = from_args(args)?;
            Ok(Value::from(map.try_iter()?.collect::<Vec<_>>()))
        }
        "values" => {
            let () = from_args(args)?;
            let values = map.try_iter()?.map(|key| item(&key).unwrap_or_default());
            Ok(Value::from(values.collect::<Vec<_>>()))
        }
        "items" => {
            let () = from_args(args)?;
            items(map)
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(map.clone())
        }
        "update" | "pop" | "popitem" | "setdefault" | "clear" => {
            Err(item_or(map, method, immutable("dict", method)))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// A callable stored under the method's name wins over the refusal.
fn item_or(map: &Value, method: &str, refusal: Error) -> Error {
    let stored = map.as_object().and_then(|object| object.get_value(&Value::from(method)));
    match stored {
        Some(value) if value.kind() == ValueKind::Plain => Error::from(ErrorKind::UnknownMethod),
        _ => refusal,
    }
}

/// The pairs of a mapping.
pub(super) fn items(map: &Value) -> Result<Value, Error> {
    let mut pairs = Vec::with_capacity(map.len().unwrap_or(0));
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        pairs.push(Value::from(Tuple::from(vec![key, value])));
    }
    Ok(Value::from(pairs))
}

fn sequence_method(list: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "count" => {
            let (wanted,): (&Value,) = from_args(args)?;
            Ok(Value::from(list.try_iter()?.filter(|item| item == wanted).count()))
        }
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let position = list.try_iter()?.position(|item| item == *wanted);
            position.map(Value::from).ok_or_else(|| {
                Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in the list"))
            })
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(list.clone())
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "sort" | "reverse" | "clear" => {
            Err(immutable("list", method))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn number_method(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (): () = from_args(args)?;
    match method {
        "is_integer" => {
            let float = f64::try_from(value.clone()).unwrap_or(f64::NAN);
            Ok(Value::from(value.is_integer() || float.fract() == 0.0))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}
