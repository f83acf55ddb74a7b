//! The grammar of Python's keyword arguments: the parameters that a schema names, in its order, with
//! literals by their schemas.
//!
//! Types, choices, items and members are enforced; limits on numbers, texts and counts are not.

use serde_json::Value;

use super::lark::{Lark, string};
use super::tagged_grammar::is_required;

const TEXT: &str = r#"/"([^"\\\x00-\x1f\x7f]|\\["\\nrtbf]|\\u00[0-9a-f]{2})*"/"#;
const INTEGER: &str = "/-?(0|[1-9][0-9]{0,17})/";
const NUMBER: &str = "/-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?/";
/// Schemas nest this deep; what is deeper may be anything.
const MAX_DEPTH: usize = 12;

/// The arguments of a call, between its parentheses.
pub(super) fn arguments(lark: &mut Lark, schema: &Value) -> String {
    let python = &mut Python { lark, root: schema, any: None };
    members(python, schema, 0, &|key| string(&format!("{key}="))).unwrap_or_default()
}

struct Python<'l, 'a, 's> {
    lark: &'l mut Lark<'a>,
    root: &'s Value,
    /// The rule for any literal, once there is one.
    any: Option<String>,
}

/// Members by a schema's properties with commas between them, if it has any.
fn members(
    python: &mut Python,
    schema: &Value,
    depth: usize,
    head: &dyn Fn(&str) -> String,
) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    // From the last to the first: what may follow where nothing stands before it, and else.
    let (mut first, mut later) = (String::new(), String::new());
    for (key, property) in properties.iter().rev() {
        let member = format!("{} {}", head(key), value(python, property, depth + 1));
        let member = python.lark.rule(&member);
        let required = is_required(schema, key);
        let rule = |begin: &str, other: &str| {
            let this = format!("{begin} {member} {later}");
            if required { this } else { format!("({this} | {})", non_empty(other)) }
        };
        let (at_first, at_later) = (rule("", &first), rule("\", \"", &later));
        first = python.lark.rule(&at_first);
        later = python.lark.rule(&at_later);
    }
    Some(first)
}

fn non_empty(rule: &str) -> &str {
    if rule.is_empty() { "\"\"" } else { rule }
}

/// A literal by a schema.
fn value(python: &mut Python, schema: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return any(python);
    }
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    if let Some(target) = target.and_then(|pointer| python.root.pointer(pointer)) {
        return value(python, target, depth + 1);
    }
    let one = schema.get("const").map(std::slice::from_ref);
    if let Some(values) = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one) {
        let literals: Vec<String> = values.iter().map(|value| string(&literal(value))).collect();
        return format!("({})", literals.join(" | "));
    }
    let variants = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    if let Some(variants) = variants {
        let variants: Vec<String> =
            variants.iter().map(|variant| value(python, variant, depth + 1)).collect();
        return format!("({})", variants.join(" | "));
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return any(python),
    };
    let types: Vec<String> = types.iter().map(|name| typed(python, schema, name, depth)).collect();
    format!("({})", types.join(" | "))
}

fn typed(python: &mut Python, schema: &Value, name: &str, depth: usize) -> String {
    match name {
        "string" => TEXT.to_owned(),
        "integer" => INTEGER.to_owned(),
        "number" => NUMBER.to_owned(),
        "boolean" => "(\"True\" | \"False\")".to_owned(),
        "null" => "\"None\"".to_owned(),
        "array" => {
            let item = match schema.get("items") {
                Some(items) => value(python, items, depth + 1),
                None => any(python),
            };
            format!("\"[\" ({item} (\", \" {item})*)? \"]\"")
        }
        "object" => {
            let head = |key: &str| string(&format!("{}: ", Value::from(key)));
            let members = members(python, schema, depth, &head).unwrap_or_else(|| {
                let member = format!("{TEXT} \": \" {}", any(python));
                format!("({member} (\", \" {member})*)?")
            });
            format!("\"{{\" {members} \"}}\"")
        }
        _ => any(python),
    }
}

/// The rule of any Python literal.
fn any(python: &mut Python) -> String {
    if let Some(any) = &python.any {
        return any.clone();
    }
    let scalar = format!("{TEXT} | {NUMBER} | \"True\" | \"False\" | \"None\"");
    let name = python.lark.recursive(&|name| {
        let list = format!("\"[\" ({name} (\", \" {name})*)? \"]\"");
        let member = format!("{TEXT} \": \" {name}");
        format!("{scalar} | {list} | \"{{\" ({member} (\", \" {member})*)? \"}}\"")
    });
    python.any.insert(name).clone()
}

/// A value as a literal.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), literal(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}
