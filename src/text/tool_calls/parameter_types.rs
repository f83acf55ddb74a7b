//! What a parameter may hold by its schema, and the JSON of a value that was written as plain text.
//!
//! Formats with tags write strings as they are and everything else as JSON, so `12` is a number or a
//! text: only the schema tells. Where it allows both, or says nothing, what can be read as one of the
//! other types is.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::python_literal;

/// References are followed this far.
const MAX_DEPTH: usize = 16;

/// The JSON types that a schema allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

const NULL: Types = Types(1);
const BOOLEAN: Types = Types(2);
const NUMBER: Types = Types(4);
const STRING: Types = Types(8);
const ARRAY: Types = Types(16);
const OBJECT: Types = Types(32);
const ANY: Types = Types(63);

impl Types {
    /// The type of a parameter that is text.
    pub(super) const TEXT: Self = STRING;
    /// The types of a parameter that is not text.
    pub(super) const NO_TEXT: Self = Self(ANY.0 & !STRING.0);

    /// The types of a parameter of a function whose parameters have this schema.
    pub(super) fn of(parameters: Option<&Value>, name: &str) -> Self {
        let Some(root) = parameters else { return ANY };
        let member = |schema: &Value| Some(schema.get("properties")?.get(name)?.clone());
        let schema = member(root).or_else(|| resolve(root, root).and_then(member)).or_else(|| {
            root.get("additionalProperties").filter(|other| other.is_object()).cloned()
        });
        schema.map_or(ANY, |schema| Self::of_schema(&schema, root, 0))
    }

    /// Whether only text is allowed.
    pub(super) fn is_text(self) -> bool {
        self == STRING
    }

    /// Whether text is allowed.
    pub(super) fn may_be_text(self) -> bool {
        self.contains(STRING)
    }

    /// What JSON schemas call the types.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (NULL, "null"),
            (BOOLEAN, "boolean"),
            (NUMBER, "number"),
            (STRING, "string"),
            (ARRAY, "array"),
            (OBJECT, "object"),
        ];
        names.into_iter().filter(move |(kind, _)| self.contains(*kind)).map(|(_, name)| name)
    }

    /// The types that a schema allows which is a part of `root`; all of them where there is none.
    pub(super) fn of_part(schema: Option<&Value>, root: &Value) -> Self {
        schema.map_or(ANY, |schema| Self::of_schema(schema, root, 0))
    }

    /// Whether lists are allowed, and whether objects are.
    pub(super) fn containers(self) -> (bool, bool) {
        (self.contains(ARRAY), self.contains(OBJECT))
    }

    fn of_schema(schema: &Value, root: &Value, depth: usize) -> Self {
        if depth > MAX_DEPTH {
            return ANY;
        }
        if let Some(target) = resolve(schema, root) {
            return Self::of_schema(target, root, depth + 1);
        }
        let nullable = schema.get("nullable") == Some(&Value::Bool(true));
        let extra = if nullable { NULL } else { Self::default() };
        let named = match schema.get("type") {
            Some(Value::String(name)) => Some(Self::named(name)),
            Some(Value::Array(names)) => {
                Some(names.iter().filter_map(Value::as_str).map(Self::named).collect())
            }
            _ => None,
        };
        let values = || match (schema.get("enum"), schema.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.iter().map(Self::of_value).collect()),
            (_, Some(value)) => Some(Self::of_value(value)),
            _ => None,
        };
        let variants = || {
            let variants = ["anyOf", "oneOf", "allOf"]
                .into_iter()
                .find_map(|key| schema.get(key)?.as_array())?;
            Some(variants.iter().map(|schema| Self::of_schema(schema, root, depth + 1)).collect())
        };
        let types: Self = named.or_else(values).or_else(variants).unwrap_or(ANY);
        [types, extra].into_iter().collect()
    }

    fn named(name: &str) -> Self {
        match name {
            "null" => NULL,
            "boolean" => BOOLEAN,
            "number" | "integer" => NUMBER,
            "string" => STRING,
            "array" => ARRAY,
            "object" => OBJECT,
            _ => ANY,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => NULL,
            Value::Bool(_) => BOOLEAN,
            Value::Number(_) => NUMBER,
            Value::String(_) => STRING,
            Value::Array(_) => ARRAY,
            Value::Object(_) => OBJECT,
        }
    }

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl FromIterator<Types> for Types {
    fn from_iter<I: IntoIterator<Item = Self>>(types: I) -> Self {
        types.into_iter().fold(Self::default(), |all, types| Self(all.0 | types.0))
    }
}

/// What is asked of a schema: the schema of a member or of an item.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'k> {
    Member(&'k str),
    Item(usize),
}

/// The schema of a part of what a schema describes, itself a part of `root`.
pub(super) fn part<'s>(schema: &'s Value, root: &'s Value, asked: Part) -> Option<&'s Value> {
    find_part(schema, root, asked, 0)
}

fn find_part<'s>(
    schema: &'s Value,
    root: &'s Value,
    asked: Part,
    depth: usize,
) -> Option<&'s Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(target) = resolve(schema, root) {
        return find_part(target, root, asked, depth + 1);
    }
    let own = match asked {
        Part::Member(key) => schema
            .get("properties")
            .and_then(|members| members.get(key))
            .or_else(|| schema.get("additionalProperties")),
        Part::Item(at) => schema
            .get("prefixItems")
            .and_then(|items| items.get(at))
            .or_else(|| schema.get("items")),
    };
    own.filter(|own| own.is_object()).or_else(|| {
        let variants = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key));
        let mut variants = variants?.as_array()?.iter();
        variants.find_map(|variant| find_part(variant, root, asked, depth + 1))
    })
}

/// What a schema refers to, if it is a reference.
fn resolve<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    root.pointer(pointer)
}

/// The JSON document for a value written as `text`.
pub(super) fn to_json(text: &str, types: Types) -> String {
    let quoted = || Value::from(text).to_string();
    if types.is_text() {
        return quoted();
    }
    let document = text.trim();
    let allowed = |value: &Value| !types.contains(STRING) || types.contains(Types::of_value(value));
    let json = match serde_json::from_str::<Value>(document) {
        // A text in quotes was written as JSON, unless it may be a text that has quotes.
        Ok(Value::String(_)) if types.contains(STRING) => None,
        Ok(value) if allowed(&value) => Some(document.to_owned()),
        Ok(_) => None,
        // A number beyond what fits in ours.
        Err(_) if !types.contains(STRING) && is_json(document) => Some(document.to_owned()),
        Err(_) => python_literal::to_json(document).filter(|json| {
            let value: Option<Value> = serde_json::from_str(json).ok();
            value.is_some_and(|value| !value.is_string() && allowed(&value))
        }),
    };
    json.unwrap_or_else(quoted)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, text: &str, expected: &str) {
        let parameters = json!({"properties": {"p": schema}, "$defs": {"n": {"type": "integer"}}});
        assert_eq!(
            to_json(text, Types::of(Some(&parameters), "p")),
            expected,
            "{parameters} {text}"
        );
    }

    #[test]
    fn the_schema_tells_texts_from_values() {
        check(&json!({"type": "string"}), "12", "\"12\"");
        check(&json!({"type": "string"}), " a\"\n", "\" a\\\"\\n\"");
        check(&json!({"type": "integer"}), " 12\n", "12");
        check(&json!({"type": "number"}), "1e999", "1e999");
        check(&json!({"type": "integer"}), "twelve", "\"twelve\"");
        check(&json!({"type": "boolean"}), "True", "true");
        check(&json!({"type": ["string", "null"]}), "null", "null");
        check(&json!({"type": ["string", "null"]}), "12", "\"12\"");
        check(&json!({"type": "string", "nullable": true}), "None", "null");
        check(&json!({"anyOf": [{"type": "string"}, {"type": "number"}]}), "1.5", "1.5");
        check(&json!({"enum": ["1", "2"]}), "1", "\"1\"");
        check(&json!({"enum": [1, 2]}), "1", "1");
        check(&json!({"$ref": "#/$defs/n"}), "7", "7");
        check(&json!({"type": "array"}), "[1, \"a\"]", "[1, \"a\"]");
        check(&json!({"type": "array"}), "['a', None]", "[\"a\",null]");
        check(&json!({}), "{\"a\": 1}", "{\"a\": 1}");
        check(&json!({}), "a b", "\"a b\"");
        check(&json!({}), "\"a\"", "\"\\\"a\\\"\"");
        assert_eq!(Types::of(None, "p"), ANY);
    }
}
