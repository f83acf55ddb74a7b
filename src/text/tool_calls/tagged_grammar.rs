//! The grammar of arguments in tags: the parameters that a schema names, in its order.
//!
//! Texts are free up to the closing tag; a schema's limits on them (patterns, lengths) are not
//! enforced. A value that may be a text or something else is written as a text.

use serde_json::{Map, Value, json};

use super::lark::{Lark, string};
use super::parameter_types::Types;
use super::rules::TextArgument;
use super::tagged::Tags;

/// Parameters and the closing tag of a call.
pub(super) fn parameters(lark: &mut Lark, tags: &Tags, schema: &Value) -> String {
    let line = "/\\n?/";
    let close = lark.literal(tags.close);
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return format!("{line} {close}");
    };
    let mut parts = vec![line.to_owned()];
    for (key, property) in properties {
        let parameter = parameter(lark, tags, schema, key, property);
        let parameter = lark.rule(&format!("{parameter} {line}"));
        parts.push(if is_required(schema, key) { parameter } else { format!("{parameter}?") });
    }
    format!("{} {close}", parts.join(" "))
}

/// The one argument of a grammar, and the closing tag of a call.
pub(super) fn text(lark: &mut Lark, tags: &Tags, text: &TextArgument) -> String {
    let line = "/\\n?/";
    let head = head(lark, tags, &text.name, true);
    let end = lark.literal(&value_end(tags));
    format!("{line} {head} {} {end} {line} {}", text.plain, lark.literal(tags.close))
}

pub(super) fn is_required(schema: &Value, key: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|keys| keys.iter().any(|name| name == key))
}

fn parameter(lark: &mut Lark, tags: &Tags, root: &Value, key: &str, schema: &Value) -> String {
    let types = Types::of(Some(root), key);
    let end = value_end(tags);
    let as_text = |lark: &mut Lark| {
        let head = head(lark, tags, key, true);
        let Some(texts) = texts(schema) else {
            // The line end before the tag is the model's to write: the tag alone ends the text.
            return format!("{head} {}", lark.text_until(tags.value_close));
        };
        let texts: Vec<String> = texts.iter().map(|text| string(text)).collect();
        format!("{head} ({}) {}", texts.join(" | "), lark.literal(&end))
    };
    let as_value = |lark: &mut Lark| {
        let head = head(lark, tags, key, false);
        let value = Lark::json(&with_definitions(schema, root));
        format!("{head} {value} {}", lark.literal(&end))
    };
    if types.is_text() || (!tags.says_text && types.may_be_text()) {
        as_text(lark)
    } else if types.may_be_text() {
        format!("({} | {})", as_text(lark), as_value(lark))
    } else {
        as_value(lark)
    }
}

/// What closes a parameter's value.
fn value_end(tags: &Tags) -> String {
    let line = if tags.lines { "\n" } else { "" };
    format!("{line}{}", tags.value_close)
}

/// What opens a parameter's value.
fn head(lark: &Lark, tags: &Tags, key: &str, is_text: bool) -> String {
    let says = if tags.says_text { format!("\" string=\"{is_text}\"") } else { String::new() };
    let opened = lark.literal(&format!("{}{key}{says}{}", tags.key_open, tags.key_end));
    let value = if tags.value_open.is_empty() {
        String::new()
    } else {
        format!("/\\n?/ {}", lark.literal(tags.value_open))
    };
    let line = if tags.lines { "\"\\n\"" } else { "" };
    format!("{opened} {value} {line}")
}

/// The texts that a schema allows, where it counts them all.
fn texts(schema: &Value) -> Option<Vec<&str>> {
    let one = schema.get("const").map(std::slice::from_ref);
    let values = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one)?;
    let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    (texts.len() == values.len() && !texts.is_empty()).then_some(texts)
}

/// A part of a schema, with what it may refer to.
fn with_definitions(schema: &Value, root: &Value) -> Value {
    let mut members: Map<String, Value> = match schema {
        Value::Object(members) => members.clone(),
        _ => return json!({}),
    };
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = root.get(key) {
            members.insert(key.to_owned(), definitions.clone());
        }
    }
    Value::Object(members)
}
