//! `/openapi.json`: what this server really accepts and answers, made from the wire types.
//!
//! One row per route, in [`ROUTES`]; bodies are the schemas of the structs that read and write
//! them. Fields that are known but have no struct are told apart in `types::fields`, so objects
//! stay open.

use axum::extract::State;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::state::AppState;
use super::types::chat::{ChatCompletion, ChatCompletionChunk, ChatCompletionRequest};
use super::types::completions::{Completion, CompletionRequest};
use super::types::sampling::SamplingFields;
use super::types::tokenize::{DetokenizeRequest, Detokenized, TokenizeRequest, Tokenized};

/// A route as the document tells it.
struct Route {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// Schemas that all hold for the body; none for routes without one.
    request: &'static [&'static str],
    /// Schema of the answer; empty for plain objects.
    answer: &'static str,
    /// Schema of a stream's events, where the route can stream.
    events: &'static str,
    /// Whether only a key of the server may call it, if it has any.
    guarded: bool,
}

/// The schema of a body whose fields are not told one by one.
const OBJECT: &str = "Object";

const OPEN: Route = Route {
    method: "get",
    path: "",
    summary: "",
    request: &[],
    answer: "",
    events: "",
    guarded: true,
};

const ROUTES: &[Route] = &[
    Route {
        method: "post",
        path: "/v1/chat/completions",
        summary: "Answer a conversation.",
        request: &["ChatCompletionRequest", "SamplingFields"],
        answer: "ChatCompletion",
        events: "ChatCompletionChunk",
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/chat/completions/render",
        summary: "The prompt that a chat request would run.",
        request: &["ChatCompletionRequest", "SamplingFields"],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/completions",
        summary: "Continue prompts.",
        request: &["CompletionRequest", "SamplingFields"],
        answer: "Completion",
        events: "Completion",
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/responses",
        summary: "Answer a conversation as items.",
        request: &[OBJECT],
        ..OPEN
    },
    Route {
        method: "get",
        path: "/v1/responses/{id}",
        summary: "A response that was kept.",
        request: &[],
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/responses/{id}",
        summary: "Forget a response.",
        request: &[],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/responses/{id}/cancel",
        summary: "Refused: no response runs in the background.",
        request: &[],
        ..OPEN
    },
    Route {
        method: "get",
        path: "/v1/responses/{id}/input_items",
        summary: "What a kept response was asked.",
        request: &[],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/responses/input_tokens",
        summary: "How many tokens such a prompt has.",
        request: &[OBJECT],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/messages",
        summary: "Answer a conversation in Anthropic's shape.",
        request: &[OBJECT],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/messages/count_tokens",
        summary: "How many tokens such a prompt has.",
        request: &[OBJECT],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/embeddings",
        summary: "Texts as vectors.",
        request: &[OBJECT],
        ..OPEN
    },
    Route {
        method: "post",
        path: "/tokenize",
        summary: "The token ids of a text or a conversation.",
        request: &["TokenizeRequest"],
        answer: "Tokenized",
        ..OPEN
    },
    Route {
        method: "post",
        path: "/detokenize",
        summary: "The text of token ids.",
        request: &["DetokenizeRequest"],
        answer: "Detokenized",
        ..OPEN
    },
    Route { path: "/v1/models", summary: "The names that the model answers to.", ..OPEN },
    Route { path: "/v1/models/{id}", summary: "One of these names.", ..OPEN },
    Route { path: "/version", summary: "The server's version and features.", ..OPEN },
    Route { path: "/openapi.json", summary: "This document.", ..OPEN },
    Route { path: "/metrics", summary: "Metrics as Prometheus reads them.", ..OPEN },
    Route { path: "/health", summary: "Whether requests are welcome.", guarded: false, ..OPEN },
    Route {
        path: "/health/ready",
        summary: "Whether requests are welcome.",
        guarded: false,
        ..OPEN
    },
    Route { path: "/health/live", summary: "Whether the process answers.", guarded: false, ..OPEN },
];

/// `GET /openapi.json`.
pub(crate) async fn openapi(State(state): State<AppState>) -> axum::Json<Value> {
    axum::Json(document(!state.config().api_keys.is_empty()))
}

/// The document of a server that asks for keys or doesn't.
fn document(keys: bool) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method] = operation(route, keys);
    }
    let mut components = json!({"schemas": schemas()});
    if keys {
        components["securitySchemes"] = json!({"key": {"type": "http", "scheme": "bearer"}});
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sconce",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "An OpenAI-compatible inference server.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": components,
    })
}

fn operation(route: &Route, keys: bool) -> Value {
    let mut operation = json!({"summary": route.summary, "responses": responses(route, keys)});
    if route.path.contains("{id}") {
        operation["parameters"] = json!([
            {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}
        ]);
    }
    if !route.request.is_empty() {
        let all: Vec<Value> = route.request.iter().map(|name| reference(name)).collect();
        operation["requestBody"] = json!({
            "required": true, "content": {"application/json": {"schema": {"allOf": all}}},
        });
    }
    if keys && route.guarded {
        operation["security"] = json!([{"key": []}]);
    }
    operation
}

fn responses(route: &Route, keys: bool) -> Value {
    let body = match (route.path, route.answer) {
        ("/metrics", _) => json!({"text/plain": {"schema": {"type": "string"}}}),
        (_, "") => json!({"application/json": {"schema": {"type": "object"}}}),
        (_, name) => json!({"application/json": {"schema": reference(name)}}),
    };
    let mut responses = json!({"200": {"description": "the answer", "content": body}});
    if !route.events.is_empty() {
        let events = json!({"schema": {"type": "string", "contentMediaType": "text/event-stream",
            "description": format!("events with a {} each, then [DONE]", route.events)}});
        responses["200"]["content"]["text/event-stream"] = events;
    }
    let mut errors = vec![("500", "the server's fault"), ("503", "not ready, or no longer")];
    if route.guarded && keys {
        errors.push(("401", "no key, or one that is not known"));
    }
    if route.path.contains("{id}") {
        errors.push(("400", "a value that can't be served"));
        errors.push(("404", "there is no such thing"));
    }
    if !route.request.is_empty() {
        errors.extend([
            ("400", "a value that can't be served; the message names field and bound"),
            ("404", "the model is not served"),
            ("408", "the deadline passed before the first token"),
            ("413", "the body is too large"),
            ("415", "the body is not declared as JSON"),
            ("429", "too many sequences are waiting"),
        ]);
    }
    for (status, description) in errors {
        let content = json!({"application/json": {"schema": reference("Error")}});
        responses[status] = json!({"description": description, "content": content});
    }
    responses
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// All schemas that the routes name, and those that these name.
fn schemas() -> Value {
    let mut schemas = Vec::new();
    collect::<ChatCompletionRequest>(&mut schemas);
    collect::<SamplingFields>(&mut schemas);
    collect::<ChatCompletion>(&mut schemas);
    collect::<ChatCompletionChunk>(&mut schemas);
    collect::<CompletionRequest>(&mut schemas);
    collect::<Completion>(&mut schemas);
    collect::<TokenizeRequest>(&mut schemas);
    collect::<Tokenized>(&mut schemas);
    collect::<DetokenizeRequest>(&mut schemas);
    collect::<Detokenized>(&mut schemas);
    let mut described = Map::new();
    for (name, schema) in schemas {
        let schema = serde_json::to_value(schema).expect("schemas are plain data");
        described.insert(name, schema);
    }
    described.insert(OBJECT.to_owned(), json!({"type": "object"}));
    described.insert("Error".to_owned(), error_schema());
    Value::Object(described)
}

fn collect<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

fn error_schema() -> Value {
    let text = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"},
                "param": text, "code": text},
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let document = document(true);
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
        let document = document(false);
        let fields = &document["components"]["schemas"]["SamplingFields"]["properties"];
        for name in ["temperature", "stop", "response_format", "deadline_ms"] {
            assert!(fields.get(name).is_some(), "{name}");
        }
        let chat = &document["paths"]["/v1/chat/completions"]["post"];
        assert_eq!(chat["requestBody"]["required"], true);
        assert!(chat["responses"].get("401").is_none());
    }
}
