//! The tests (`is ...`) of Jinja2 that minijinja lacks or reads differently.

use minijinja::value::ValueKind;
use minijinja::{Environment, Value};

/// Installs Jinja2's tests.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    env.add_test("callable", is_callable);
    env.add_test("mapping", is_mapping);
}

/// What has a length and items: strings and mappings too, and Jinja2's undefined.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), String | Seq | Iterable | Map | Undefined)
}

fn is_iterable(value: &Value) -> bool {
    is_sequence(value)
}

fn is_mapping(value: &Value) -> bool {
    value.kind() == ValueKind::Map && !is_macro(value)
}

/// Jinja2's undefined counts: calling it is an error of its own.
fn is_callable(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined) || is_macro(value)
}

/// Macros look like mappings to minijinja.
fn is_macro(value: &Value) -> bool {
    value.kind() == ValueKind::Map && value.to_string().starts_with("<macro ")
}
