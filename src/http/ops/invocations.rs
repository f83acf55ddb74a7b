//! `/invocations`: one route for all requests, as SageMaker wants it. The body and the model say which
//! it is.

use axum::Extension;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap};
use axum::response::Response;
use serde_json::Value;

use crate::engine::Outputs;
use crate::http::error::ApiError;
use crate::http::openai::{chat, completions, embeddings};
use crate::http::ranking;
use crate::http::request::arrival::Arrival;
use crate::http::request::body::JsonBody;
use crate::http::request::extract::{Extracted, Whole};
use crate::http::request::id::RequestId;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;

/// Fields of which each is a side of pairs to score.
const SIDES: [&str; 3] = ["queries", "text_1", "data_1"];

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Chat,
    Completion,
    Rerank,
    Score,
    /// Whatever the model makes of texts or of a conversation.
    Vectors(Outputs),
}

impl Asked {
    /// What a body asks of a model that makes `outputs` and, perhaps, `generates`.
    fn of(json: &Value, outputs: Outputs, generates: bool) -> Result<Self, ApiError> {
        let has = |field: &str| json.get(field).is_some_and(|value| !value.is_null());
        if has("messages") && generates {
            Ok(Self::Chat)
        } else if has("prompt") && generates {
            Ok(Self::Completion)
        } else if has("prompt") {
            Err(ApiError::unsupported("model", "generating text with a model that embeds"))
        } else if has("query") {
            Ok(Self::Rerank)
        } else if SIDES.into_iter().any(has) {
            Ok(Self::Score)
        } else if has("input") || has("messages") {
            Ok(Self::Vectors(outputs))
        } else {
            let message =
                "one of messages, prompt, input, query and queries says what is asked for";
            Err(ApiError::field("messages", message))
        }
    }
}

/// `POST /invocations`: a chat completion, a completion, embeddings, classes, documents to rerank or
/// pairs to score.
pub(crate) async fn invocations(
    State(state): State<AppState>,
    id: Extension<RequestId>,
    owner: Owner,
    headers: HeaderMap,
    JsonBody(json): JsonBody,
) -> Result<Response, ApiError> {
    let arrival = Arrival::now(&headers, &Extensions::new())?;
    let limits = state.engine.limits();
    let asked = Asked::of(&json, limits.outputs, limits.generates)?;
    let shared = State(state.clone());
    match asked {
        Asked::Chat => {
            let request = Extracted::read(&json, arrival, &state)?;
            chat::chat_completions(shared, owner, Whole { json, request }).await
        }
        Asked::Completion => {
            completions::completions(shared, Extracted::read(&json, arrival, &state)?).await
        }
        Asked::Rerank => {
            ranking::rerank(shared, id, headers, Extensions::new(), JsonBody(json)).await
        }
        Asked::Score => ranking::score(shared, id, Extracted::read(&json, arrival, &state)?).await,
        Asked::Vectors(Outputs::Embedding | Outputs::Lexical) => {
            embeddings::embeddings(shared, Extracted::read(&json, arrival, &state)?).await
        }
        Asked::Vectors(Outputs::Classes) => {
            ranking::classify(shared, id, Extracted::read(&json, arrival, &state)?).await
        }
        Asked::Vectors(_) => {
            ranking::pooling(shared, id, Extracted::read(&json, arrival, &state)?).await
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_body_and_the_model_say_what_is_asked_for() {
        let of = |body: Value, outputs| Asked::of(&body, outputs, false).ok();
        let embeds = Outputs::Embedding;
        assert_eq!(of(json!({"query": "a", "documents": ["b"]}), embeds), Some(Asked::Rerank));
        assert_eq!(of(json!({"text_1": "a", "text_2": "b"}), embeds), Some(Asked::Score));
        let classes = Outputs::Classes;
        assert_eq!(of(json!({"input": "a"}), classes), Some(Asked::Vectors(classes)));
        assert_eq!(of(json!({"messages": []}), embeds), Some(Asked::Vectors(embeds)));
        assert_eq!(of(json!({"prompt": "a"}), embeds), None);
        assert_eq!(of(json!({"input": null}), embeds), None);
        let generates = |body: Value| Asked::of(&body, embeds, true).ok();
        assert_eq!(generates(json!({"messages": [], "prompt": "a"})), Some(Asked::Chat));
        assert_eq!(generates(json!({"prompt": "a", "input": "b"})), Some(Asked::Completion));
    }
}
