//! Complements: the schema of all values outside another one.
//!
//! Only where the complement is exact and has a schema: types, constants, lists of constants,
//! required properties, and what allOf, anyOf, not and properties make of these. That covers the
//! conditions that are met in practice (a property has this value, or is there at all).

use serde_json::{Value, json};

use super::document::{Document, constraints};
use super::pattern;
use super::types::Types;

const MAX_DEPTH: usize = 8;
/// Constants that a complement may list.
const MAX_CONSTANTS: usize = 200;
/// Characters of a constant; its complement nests a group for each, and regexes only so many.
const MAX_CONSTANT_CHARS: usize = 200;

/// The schema of what `schema` refuses, or `None` where none is known.
pub(super) fn negate(document: &Document<'_>, schema: &Value) -> Option<Value> {
    negate_at(document, schema, 0)
}

/// A schema of some of what `schema` refuses: at least the objects without one of the properties
/// that it requires and `other` doesn't. `None` where it requires none.
pub(super) fn negate_beside(
    document: &Document<'_>,
    schema: &Value,
    other: &Value,
) -> Option<Value> {
    let required = |schema| {
        let names = document.follow(schema).get("required").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    };
    let mut names: Vec<&str> = required(schema).collect();
    names.retain(|name| !required(other).any(|known| known == *name));
    (!names.is_empty()).then(|| json!({"anyOf": absent(&names)}))
}

fn negate_at(document: &Document<'_>, schema: &Value, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    let map = match schema {
        Value::Bool(all) => return Some(Value::Bool(!all)),
        Value::Object(map) => map,
        _ => return None,
    };
    // A value is outside when one of the keywords refuses it.
    let mut outside = Vec::new();
    for (keyword, value) in constraints(map) {
        let refused = match keyword {
            "type" => json!({"type": Types::parse(value)?.complement()?}),
            "const" => constants(std::slice::from_ref(value))?,
            "enum" => constants(value.as_array()?)?,
            "required" => {
                let names = value.as_array()?.iter().map(Value::as_str);
                json!({"anyOf": absent(&names.collect::<Option<Vec<_>>>()?)})
            }
            "properties" => properties(document, value, depth)?,
            "not" => value.clone(),
            "allOf" => json!({"anyOf": each(document, value, depth)?}),
            "anyOf" => json!({"allOf": each(document, value, depth)?}),
            "$ref" => {
                let (_, target) = document.resolve(value.as_str()?, "").ok()?;
                if document.ref_hides_siblings {
                    return negate_at(document, target, depth + 1);
                }
                negate_at(document, target, depth + 1)?
            }
            _ => return None,
        };
        outside.push(refused);
    }
    // An empty list of alternatives, as of `required: []`, refuses nothing.
    outside.retain(|refused| *refused != json!({"anyOf": []}));
    match outside.len() {
        0 => Some(Value::Bool(false)),
        1 => outside.pop(),
        _ => Some(json!({"anyOf": outside})),
    }
}

fn each(document: &Document<'_>, schemas: &Value, depth: usize) -> Option<Vec<Value>> {
    schemas.as_array()?.iter().map(|schema| negate_at(document, schema, depth + 1)).collect()
}

// Objects without one of the names.
fn absent(names: &[&str]) -> Vec<Value> {
    let without = |name: &&str| json!({"type": "object", "properties": {*name: false}});
    names.iter().map(without).collect()
}

// An object that has one of the properties, with a value outside its schema.
fn properties(document: &Document<'_>, schemas: &Value, depth: usize) -> Option<Value> {
    let mut wrong = Vec::new();
    for (name, schema) in schemas.as_object()? {
        let outside = negate_at(document, schema, depth + 1)?;
        let properties = json!({name: outside});
        wrong.push(json!({"type": "object", "required": [name], "properties": properties}));
    }
    Some(json!({"anyOf": wrong}))
}

// Anything but these values.
fn constants(values: &[Value]) -> Option<Value> {
    let is_long = |value: &Value| {
        value.as_str().is_some_and(|text| text.chars().count() > MAX_CONSTANT_CHARS)
    };
    if values.len() > MAX_CONSTANTS || values.iter().any(is_long) {
        return None;
    }
    let types = values.iter().fold(Types::NONE, |types, v| types.union(Types::of_value(v)));
    if types.intersects(Types::NUMBER.union(Types::ARRAY).union(Types::OBJECT)) {
        return None;
    }
    let mut outside = vec![json!({"type": types.complement()?})];
    if types.intersects(Types::BOOLEAN) {
        let others = [true, false].into_iter().filter(|b| !values.contains(&Value::Bool(*b)));
        outside.extend(others.map(|other| json!({"const": other})));
    }
    if types.intersects(Types::STRING) {
        let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        outside.push(json!({"type": "string", "pattern": pattern::complement(&texts)}));
    }
    Some(json!({"anyOf": outside}))
}
