//! `/openapi.json`: what this server really accepts and answers, made from the wire types.
//!
//! `routes` has one row per route; `components` has the schemas of bodies, which are those of the
//! structs that read and write them, or stand in `types::schema` beside them. Fields that are known
//! but have no struct are told apart in `types::fields`, so objects stay open.

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::http::state::{AppState, may_name};
use crate::http::wire::schema::builders::{any_of, reference};
use crate::http::{anthropic, ollama, tei};
use audio::AUDIO_ROUTES;
use components::Facts;
use routes::{Answer, Events, ROUTES, Route};
use sglang_routes::SGLANG_ROUTES;
use stored::STORED;
use vector_routes::VECTOR_ROUTES;

mod audio;
mod components;
mod parameters;
mod routes;
mod sglang_routes;
mod stored;
mod vector_routes;

const DESCRIPTION: &str = "An OpenAI-compatible inference server. A path that is not here is \
answered with 404, a method that a path does not have with 405, both with the error object. \
Fields that are null are the same as absent.";

/// `GET /openapi.json`.
pub(crate) async fn openapi(State(state): State<AppState>) -> axum::Json<Value> {
    let mut models = state.config.served_model_names.clone();
    models.extend(state.adapters.all().iter().map(|served| served.adapter.name().to_owned()));
    models.retain(|name| may_name(name));
    axum::Json(document(&Facts {
        keys: state.config.needs_keys(),
        models: &models,
        limits: state.engine.limits(),
    }))
}

fn document(facts: &Facts<'_>) -> Value {
    let keys = facts.keys;
    let mut paths: Map<String, Value> = Map::new();
    let rows = [ROUTES, STORED, VECTOR_ROUTES, AUDIO_ROUTES, SGLANG_ROUTES];
    for route in rows.into_iter().flatten() {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method] = operation(route, keys);
    }
    let mut components = json!({"schemas": components::schemas(facts), "headers": headers()});
    if keys {
        components["securitySchemes"] = json!({
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        });
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sconce",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": components,
    })
}

fn operation(route: &Route, keys: bool) -> Value {
    let mut operation = json!({
        "operationId": route.name, "summary": route.summary, "responses": responses(route, keys),
    });
    if !route.parameters.is_empty() {
        let parameters = route.parameters.iter().map(|parameter| parameter.describe());
        operation["parameters"] = parameters.collect();
    }
    let all: Vec<Value> = route.request.iter().map(|name| reference(name)).collect();
    let body = match &all[..] {
        [] => None,
        [one] => Some(one.clone()),
        all => Some(json!({"allOf": all})),
    };
    if let Some(schema) = body {
        let kind = if route.uploads() { "multipart/form-data" } else { "application/json" };
        let content = json!({kind: {"schema": schema}});
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    if keys && route.guarded {
        operation["security"] = json!([{"bearer": []}, {"key": []}]);
    }
    operation
}

fn responses(route: &Route, keys: bool) -> Value {
    let mut responses = json!({});
    let body = match route.answer {
        Answer::Json(name) => Some(json!({"application/json": {"schema": reference(name)}})),
        Answer::JsonOrBytes(name) => Some(json!({
            "application/json": {"schema": reference(name)},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        })),
        Answer::Metrics | Answer::Changed => {
            Some(json!({"text/plain": {"schema": {"type": "string"}}}))
        }
        Answer::JsonOrText(name) => Some(json!({
            "application/json": {"schema": reference(name)},
            "text/plain": {"schema": {"type": "string"}},
            "application/x-subrip": {"schema": {"type": "string"}},
            "text/vtt": {"schema": {"type": "string"}},
        })),
        Answer::Bytes => Some(json!({
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        })),
        Answer::Never => None,
    };
    if let Some(mut content) = body {
        if let Some(events) = route.events {
            let lines = matches!(events, Events::Lines(_));
            let kind = if lines { "application/x-ndjson" } else { "text/event-stream" };
            content[kind] = json!({"schema": event(events)});
        }
        let mut told = vec!["x-request-id"];
        if !route.request.is_empty() {
            told.push("x-sconce-ignored");
        }
        responses["200"] =
            json!({"description": "the answer", "headers": named(&told), "content": content});
        if route.name == "createResponse" {
            responses["200"]["links"] = links();
        }
    }
    let error = match route.path {
        path if anthropic::error::covers(path) => "MessageError",
        path if ollama::error::covers(path) => "OllamaError",
        path if tei::error::covers(path) => "TeiErrorObject",
        _ => "Error",
    };
    for (status, description) in route.errors(keys) {
        let told: &[&str] = match status {
            "429" | "503" => &["x-request-id", "retry-after"],
            "401" => &["x-request-id", "www-authenticate"],
            _ => &["x-request-id"],
        };
        // Bodies of one of its shapes are answered in that one's words.
        let schema = match status {
            _ if !tei::error::shares(route.path) => reference(error),
            "422" | "424" => reference("TeiErrorObject"),
            _ => any_of(&[reference(error), reference("TeiErrorObject")]),
        };
        let content = json!({"application/json": {"schema": schema}});
        responses[status] =
            json!({"description": description, "headers": named(told), "content": content});
    }
    responses
}

/// One event of a stream, as its lines are read.
fn event(events: Events) -> Value {
    let holding = |schemas: &[&str]| {
        let all: Vec<Value> = schemas.iter().map(|name| reference(name)).collect();
        let schema = if let [one] = &all[..] { one.clone() } else { json!({"anyOf": all}) };
        json!({"type": "string", "contentMediaType": "application/json", "contentSchema": schema})
    };
    let (required, name, data) = match events {
        Events::Lines(line) => return any_of(&[reference(line), reference("OllamaError")]),
        Events::Chunks(chunk) => {
            let end = json!({"type": "string", "enum": ["[DONE]"]});
            (vec!["data"], None, json!({"anyOf": [end, holding(&[chunk, "Error"])]}))
        }
        Events::Named(event) => {
            (vec!["event", "data"], Some(json!({"type": "string"})), holding(&[event]))
        }
    };
    let mut properties = json!({"data": data});
    if let Some(name) = name {
        properties["event"] = name;
    }
    json!({
        "type": "object",
        "description": "One of the events that the stream is made of.",
        "required": required,
        "properties": properties,
    })
}

/// What can be done with a response that was kept.
fn links() -> Value {
    let mut links = json!({});
    for name in ["retrieveResponse", "deleteResponse", "cancelResponse", "listInputItems"] {
        let parameters = json!({"id": "$response.body#/id"});
        links[name] = json!({"operationId": name, "parameters": parameters});
    }
    links
}

fn headers() -> Value {
    let header = |description: &str, kind: &str| json!({"description": description, "schema": {"type": kind}});
    json!({
        "x-request-id": header("The request's own id, or a new one.", "string"),
        "x-sconce-ignored": header("Fields that had no effect, if there are any.", "string"),
        "retry-after": header("Seconds after which to try again.", "integer"),
        "www-authenticate": header("How to authenticate.", "string"),
    })
}

fn named(headers: &[&str]) -> Value {
    let header =
        |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
    Value::Object(headers.iter().map(header).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pooling;
    use crate::engine::{EngineLimits, Outputs};

    static LIMITS: EngineLimits = EngineLimits {
        max_model_len: 512,
        max_text_len: 512,
        vocab_size: 256,
        max_batch_tokens: 64,
        max_num_seqs: 8,
        block_size: 32,
        num_blocks: 64,
        embedding_size: 4,
        hidden_size: 1,
        outputs: Outputs::Embedding,
        further: Vec::new(),
        pooling: Pooling::Last,
        normalizes: true,
        generates: true,
        prefix_lm: false,
        sees: false,
        hears: false,
    };

    fn facts(keys: bool) -> Facts<'static> {
        Facts { keys, models: &[], limits: &LIMITS }
    }

    /// Every `$ref` of a document.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document(&facts(true));
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 40);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn bodies_are_described_field_by_field() {
        let document = document(&facts(false));
        let fields = &document["components"]["schemas"]["SamplingFields"]["properties"];
        for name in ["temperature", "stop", "response_format", "deadline_ms"] {
            assert!(fields.get(name).is_some(), "{name}");
        }
        let chat = &document["paths"]["/v1/chat/completions"]["post"];
        assert_eq!(chat["requestBody"]["required"], true);
        assert!(chat["responses"].get("401").is_none());
    }
}
