//! The operators of Python that templates use, with limits on what they build.
//!
//! `Markup` is Jinja2's string that counts as HTML (what `|safe` gives): adding a plain string to
//! one escapes it, in chat templates as anywhere.

use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use super::formatting;
use super::limits;
use super::python;

/// Name of the function behind `+`.
pub(super) const ADD: &str = "_sconce_add";
/// Name of the function behind `~`.
pub(super) const CONCAT: &str = "_sconce_concat";
/// Name of the function behind `*`.
pub(super) const MULTIPLY: &str = "_sconce_multiply";
/// Name of the function behind `%`.
pub(super) const MODULO: &str = "_sconce_modulo";
/// Name of the function behind `value[start:stop:step]`.
pub(super) const SLICE: &str = "_sconce_slice";
/// Name of the function around the sequence of a `for`.
pub(super) const ITERATE: &str = "_sconce_iterate";

/// Installs the functions that stand for Python's operators.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_function(ADD, add);
    env.add_function(CONCAT, concat);
    env.add_function(MULTIPLY, multiply);
    env.add_function(MODULO, modulo);
    env.add_function(SLICE, slice);
    env.add_function(ITERATE, iterate);
}

fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Seq | ValueKind::Iterable if value.is_tuple() => "tuple",
        ValueKind::Seq | ValueKind::Iterable => "list",
        ValueKind::Map => "dict",
        _ => "object",
    }
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    let (left, right) = (type_name(left), type_name(right));
    let message = format!("unsupported operand types for {operator}: '{left}' and '{right}'");
    Error::new(ErrorKind::InvalidOperation, message)
}

fn out_of_range(operator: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the result of {operator} is out of range"))
}

#[derive(Clone, Copy)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        match value.kind() {
            ValueKind::Bool => Some(Self::Integer(i128::from(value.is_true()))),
            ValueKind::Number if value.is_integer() => {
                i128::try_from(value.clone()).ok().map(Self::Integer)
            }
            ValueKind::Number => f64::try_from(value.clone()).ok().map(Self::Float),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "Python converts integers to floats too")]
    fn float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

fn integer_value(operator: &str, result: Option<i128>) -> Result<Value, Error> {
    let result = result.ok_or_else(|| out_of_range(operator))?;
    Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        limits::charge(a.len() + b.len())?;
        if left.is_safe() || right.is_safe() {
            return Ok(Value::from_safe_string(escaped(left, a) + &escaped(right, b)));
        }
        return Ok(Value::from([a, b].concat()));
    }
    match (Number::of(left), Number::of(right)) {
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => {
            integer_value("+", a.checked_add(b))
        }
        (Some(a), Some(b)) => Ok(Value::from(a.float() + b.float())),
        _ if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() => {
            let length = left.len().unwrap_or(0).saturating_add(right.len().unwrap_or(0));
            limits::charge(length.saturating_mul(size_of::<Value>()))?;
            let items: Vec<Value> = left.try_iter()?.chain(right.try_iter()?).collect();
            Ok(sequence(items, left.is_tuple()))
        }
        _ => Err(unsupported("+", left, right)),
    }
}

fn sequence(items: Vec<Value>, tuple: bool) -> Value {
    if tuple { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

/// The text of one side of a sum with `Markup` in it.
fn escaped(value: &Value, text: &str) -> String {
    if value.is_safe() { text.to_owned() } else { escape(text) }
}

/// markupsafe's escapes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(c),
        }
    }
    out
}

fn concat(parts: Rest<Value>) -> Result<String, Error> {
    let mut out = String::new();
    for part in parts.0 {
        python::write_str(&part, &mut out);
        limits::check_length(out.len())?;
    }
    limits::charge(out.len())?;
    Ok(out)
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    match (Number::of(left), Number::of(right)) {
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => {
            integer_value("*", a.checked_mul(b))
        }
        (Some(a), Some(b)) => Ok(Value::from(a.float() * b.float())),
        (None, Some(Number::Integer(times))) => repeat(left, times),
        (Some(Number::Integer(times)), None) => repeat(right, times),
        _ => Err(unsupported("*", left, right)),
    }
}

fn repeat(value: &Value, times: i128) -> Result<Value, Error> {
    let times = usize::try_from(times.max(0)).map_err(|_| out_of_range("*"))?;
    if let Some(text) = value.as_str() {
        limits::charge(text.len().saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    if !is_list(value) {
        return Err(unsupported("*", value, &Value::from(times)));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    limits::charge(items.len().saturating_mul(times).saturating_mul(size_of::<Value>()))?;
    let length = items.len() * times;
    Ok(sequence(items.into_iter().cycle().take(length).collect(), value.is_tuple()))
}

/// A remainder with the sign of the divisor, or the formatting of a string.
fn modulo(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(text) = left.as_str() {
        let text = formatting::percent(text, right)?;
        limits::charge(text.len())?;
        return Ok(Value::from(text));
    }
    let zero = || Error::new(ErrorKind::InvalidOperation, "modulo by zero");
    match (Number::of(left), Number::of(right)) {
        (Some(Number::Integer(_)), Some(Number::Integer(0))) => Err(zero()),
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => {
            let remainder = a.checked_rem(b).unwrap_or(0);
            let other_sign = remainder != 0 && (remainder < 0) != (b < 0);
            integer_value("%", Some(if other_sign { remainder + b } else { remainder }))
        }
        (Some(a), Some(b)) => {
            let (a, b) = (a.float(), b.float());
            if b == 0.0 {
                return Err(zero());
            }
            let remainder = a % b;
            let other_sign = remainder != 0.0 && (remainder < 0.0) != (b < 0.0);
            Ok(Value::from(if other_sign { remainder + b } else { remainder.copysign(b) }))
        }
        _ => Err(unsupported("%", left, right)),
    }
}

/// A slice; of what has none Jinja2 makes an undefined value.
fn slice(
    value: &Value,
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
) -> Result<Value, Error> {
    if step == Some(0) {
        return Err(Error::new(ErrorKind::InvalidOperation, "slice step cannot be zero"));
    }
    let step = step.unwrap_or(1);
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        let sliced: String = positions(chars.len(), start, end, step).map(|at| chars[at]).collect();
        limits::charge(sliced.len())?;
        return Ok(if value.is_safe() {
            Value::from_safe_string(sliced)
        } else {
            Value::from(sliced)
        });
    }
    if is_list(value) {
        let items: Vec<Value> = value.try_iter()?.collect();
        limits::charge(items.len().saturating_mul(size_of::<Value>()))?;
        let sliced = positions(items.len(), start, end, step).map(|at| items[at].clone());
        return Ok(sequence(sliced.collect(), value.is_tuple()));
    }
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "an undefined value has no slices"));
    }
    Ok(Value::UNDEFINED)
}

/// The indices of Python's `slice(start, end, step).indices(length)`, for a step that is not zero.
fn positions(
    length: usize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> impl Iterator<Item = usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |index: i64| {
        let index = if index < 0 { index.saturating_add(length) } else { index };
        index.clamp(lowest, highest)
    };
    let start = start.map_or(if step > 0 { lowest } else { highest }, bound);
    let end = end.map_or(if step > 0 { highest } else { lowest }, bound);
    let mut next = Some(start);
    std::iter::from_fn(move || {
        let at = next.filter(|&at| if step > 0 { at < end } else { at > end })?;
        next = at.checked_add(step);
        usize::try_from(at).ok()
    })
}

/// The items that a `for` goes through: those of a list, the keys of a mapping, the characters of a
/// string, none of an undefined value.
fn iterate(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => Ok(value),
        ValueKind::String => Ok(Value::from(value.try_iter()?.collect::<Vec<_>>())),
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        _ => {
            let message = format!("'{}' object is not iterable", type_name(&value));
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}
