//! A schema as a whole: where its references lead and which draft's rules it follows.

use serde_json::{Map, Value};

use super::super::error::GrammarError;

/// References that are followed in one chain.
const MAX_HOPS: usize = 32;

/// The schema that came with the request.
pub(super) struct Document<'a> {
    pub root: &'a Value,
    root_id: Option<&'a str>,
    /// Whatever stands beside `$ref` is ignored (up to draft 7).
    pub ref_hides_siblings: bool,
    /// `prefixItems` means nothing yet (up to draft 2019-09).
    pub tuples_are_items: bool,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let text = |keyword| root.get(keyword).and_then(Value::as_str);
        let dialect = text("$schema").unwrap_or_default();
        let early = ["draft-03", "draft-04", "draft-05", "draft-06", "draft-07"];
        let ref_hides_siblings = early.iter().any(|draft| dialect.contains(draft));
        Self {
            root,
            root_id: text("$id").or_else(|| text("id")),
            ref_hides_siblings,
            tuples_are_items: ref_hides_siblings || dialect.contains("2019-09"),
        }
    }

    /// The JSON pointer and the schema that `reference`, used at `at`, leads to.
    pub(super) fn resolve(
        &self,
        reference: &str,
        at: &str,
    ) -> Result<(String, &'a Value), GrammarError> {
        let refuse = |reason: String| GrammarError::unsupported("$ref", at, reason);
        let local = self
            .root_id
            .and_then(|id| reference.strip_prefix(id.trim_end_matches('#')))
            .unwrap_or(reference);
        let fragment = match local.strip_prefix('#') {
            Some(fragment) => percent_decode(fragment),
            None if local.is_empty() => String::new(),
            None => return Err(refuse(format!("{reference:?} is outside the schema"))),
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let found = find_anchor(self.root, &fragment, String::new());
            return found.ok_or_else(|| refuse(format!("{reference:?} names no anchor")));
        }
        match self.root.pointer(&fragment) {
            Some(target) => Ok((fragment, target)),
            None => Err(refuse(format!("{reference:?} leads nowhere"))),
        }
    }

    /// `schema`, or what it refers to when it is nothing but a reference.
    pub(super) fn follow(&self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..MAX_HOPS {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { break };
            let alone = schema.as_object().is_some_and(|map| constraints(map).count() == 1);
            match self.resolve(reference, "") {
                Ok((_, target)) if alone || self.ref_hides_siblings => schema = target,
                _ => break,
            }
        }
        schema
    }
}

/// The keywords of `schema` that constrain values.
pub(super) fn constraints(
    schema: &Map<String, Value>,
) -> impl Iterator<Item = (&str, &Value)> + '_ {
    let entries = schema.iter().map(|(keyword, value)| (keyword.as_str(), value));
    entries.filter(|(keyword, _)| CONSTRAINTS.contains(keyword))
}

/// Every keyword of any draft that constrains values.
const CONSTRAINTS: [&str; 47] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "type",
    "const",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "divisibleBy",
    "extends",
    "disallow",
    "$vocabulary",
];

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) if bytes[at] == b'%' => {
                out.push(code);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn find_anchor<'a>(value: &'a Value, name: &str, at: String) -> Option<(String, &'a Value)> {
    let text = |keyword| value.get(keyword).and_then(Value::as_str);
    let named = text("$anchor") == Some(name)
        || [text("$id"), text("id")].iter().flatten().any(|id| id.strip_prefix('#') == Some(name));
    if named {
        return Some((at, value));
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(key, child)| {
            find_anchor(child, name, format!("{at}/{}", escape_token(key)))
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, child)| find_anchor(child, name, format!("{at}/{index}"))),
        _ => None,
    }
}

/// `key` as one token of a JSON pointer.
pub(super) fn escape_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
