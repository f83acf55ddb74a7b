//! The grammar of arguments in tags: the parameters that a schema names, in its order.
//!
//! Texts are free up to the closing tag; a schema's limits on them (patterns, lengths) are not
//! enforced. A value that may be a text or something else is written as a text.

use serde_json::{Map, Value, json};

use super::lark::{Lark, string};
use super::parameter_types::Types;
use super::rules::TextArgument;
use super::tagged::{CDATA, Says, Tags};

/// Parameters and the closing tag of a call.
pub(super) fn parameters(lark: &mut Lark, tags: &Tags, schema: &Value) -> String {
    let line = "/\\n?/";
    let close = lark.literal(tags.close);
    // Some templates write the lines of no parameters.
    let mut parts = vec!["/\\n{0,2}/".to_owned()];
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return format!("{} {close}", parts.concat());
    };
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
    let head = head(lark, tags, &text.name, Types::TEXT);
    let value = if tags.cdata_close.is_empty() {
        format!("{} {}", text.plain, lark.literal(&value_end(tags)))
    } else {
        let close = lark.literal(tags.cdata_close);
        format!("{} {} {close}", lark.literal(CDATA), text.plain)
    };
    format!("{line} {head} {value} {line} {}", lark.literal(tags.close))
}

pub(super) fn is_required(schema: &Value, key: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|keys| keys.iter().any(|name| name == key))
}

fn parameter(lark: &mut Lark, tags: &Tags, root: &Value, key: &str, schema: &Value) -> String {
    let types = Types::of(Some(root), key);
    let end = value_end(tags);
    let as_text = |lark: &mut Lark| {
        let head = head(lark, tags, key, Types::TEXT);
        let Some(texts) = texts(schema) else {
            return format!("{head} {}", any_text(lark, tags));
        };
        let texts: Vec<String> = texts.iter().map(|text| string(text)).collect();
        format!("{head} ({}) {}", texts.join(" | "), lark.literal(&end))
    };
    let as_value = |lark: &mut Lark| {
        let head = head(lark, tags, key, types);
        let value = Lark::json(&with_definitions(schema, root));
        let words = if tags.says == Says::Nothing { python_words(types, schema) } else { "" };
        format!("{head} ({value}{words}) {}", lark.literal(&end))
    };
    if types.is_text() || (tags.says == Says::Nothing && types.may_be_text()) {
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

/// Templates that write values as they are write Python's words for some.
fn python_words(types: Types, schema: &Value) -> &'static str {
    let is_free = ["enum", "const"].iter().all(|key| schema.get(*key).is_none());
    let is_boolean = types.names().any(|name| name == "boolean");
    if is_free && is_boolean { " | \"True\" | \"False\"" } else { "" }
}

/// A text, and what ends it.
fn any_text(lark: &mut Lark, tags: &Tags) -> String {
    if tags.cdata_close.is_empty() {
        // The line end before the tag is the model's to write: the tag alone ends the text.
        return lark.text_until(tags.value_close);
    }
    let (open, close) = (lark.literal(CDATA), lark.literal(tags.value_close));
    format!("(/[^<&\\n]*/ {close} | {open} {})", lark.text_until(tags.cdata_close))
}

/// What opens the value of a parameter of these types.
fn head(lark: &Lark, tags: &Tags, key: &str, types: Types) -> String {
    let said: Vec<String> = match tags.says {
        Says::Nothing => vec![key.to_owned()],
        Says::IsText => vec![format!("{key}\" string=\"{}\"", types.is_text())],
        Says::Type if types.is_text() => vec![format!("{key}\" type=\"string\"")],
        Says::Type => {
            let others = types.names().filter(|name| *name != "string");
            others.map(|name| format!("{key}\" type=\"{name}\"")).collect()
        }
    };
    let open = |said: &String| lark.literal(&format!("{}{said}{}", tags.key_open, tags.key_end));
    let opened = format!("({})", said.iter().map(open).collect::<Vec<_>>().join(" | "));
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
