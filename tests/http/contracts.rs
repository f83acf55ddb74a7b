//! What answers must look like: OpenAI's schemas, and what the server's own document says.

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::client::Client;

const OPENAI: &str = include_str!("../fixtures/openai/schemas.json");

/// Schemas that name each other.
pub struct Contract {
    whose: &'static str,
    schemas: Map<String, Value>,
}

impl Contract {
    pub fn openai() -> Self {
        let fixture: Value = serde_json::from_str(OPENAI).unwrap();
        Self { whose: "OpenAI's", schemas: fixture["schemas"].as_object().unwrap().clone() }
    }

    /// The server's own. Objects that are not written by the server's structs may be open, all
    /// others say everything that is in them.
    pub async fn own(client: &Client) -> Self {
        let document = client.get("/openapi.json").await.json();
        let mut schemas = document["components"]["schemas"].as_object().unwrap().clone();
        close(&mut schemas);
        Self { whose: "our", schemas }
    }

    /// Panics unless the value keeps to the schema.
    pub fn check(&self, value: &Value, name: &str) {
        let schema = json!({
            "$ref": format!("#/components/schemas/{name}"),
            "components": {"schemas": self.schemas},
        });
        let validator: Validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{} {name}: {}\n{value:#}", self.whose, errors.join("\n"));
    }

    /// The same for an event, whose `type` says which of the schemas in the union it is.
    pub fn check_event(&self, event: &Value, union: &str) {
        let kind = &event["type"];
        let names = self.schemas[union]["anyOf"].as_array().unwrap().iter();
        let names = names.map(|one| one["$ref"].as_str().unwrap().rsplit('/').next().unwrap());
        let is_one = |name: &&str| {
            let kinds = &self.schemas[*name]["properties"]["type"]["enum"];
            kinds.as_array().is_some_and(|kinds| kinds.contains(kind))
        };
        let names: Vec<&str> = names.filter(is_one).collect();
        let [name] = names[..] else { panic!("{} {union} has {names:?} for {kind}", self.whose) };
        self.check(event, name);
    }
}

/// Lets objects have no fields that are not told. Parts of an `allOf` see only their own fields, so
/// these stay open, and what is around them is closed.
fn close(schemas: &mut Map<String, Value>) {
    let mut parts = Vec::new();
    schemas.values().for_each(|schema| find_parts(schema, &mut parts));
    for (name, schema) in schemas.iter_mut() {
        let tells = ["properties", "allOf", "oneOf"].iter().any(|key| schema.get(key).is_some());
        if tells && !parts.contains(name) {
            schema["unevaluatedProperties"] = json!(false);
        }
    }
}

/// The names of all schemas that are part of an `allOf`.
fn find_parts(schema: &Value, found: &mut Vec<String>) {
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let reference = part["$ref"].as_str();
        found.extend(reference.map(|name| name.rsplit('/').next().unwrap().to_owned()));
    }
    match schema {
        Value::Object(object) => object.values().for_each(|inner| find_parts(inner, found)),
        Value::Array(list) => list.iter().for_each(|inner| find_parts(inner, found)),
        _ => {}
    }
}
