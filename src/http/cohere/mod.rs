//! `/v2/embed`: texts as vectors in Cohere's shape.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, json};

use crate::engine::Outputs;
use crate::engine::request::Wanted;
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions, tokenize};
use crate::http::generate::options::priority;
use crate::http::openai::embeddings::{Prompts, checked_inputs};
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::id::RequestId;
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::cohere::{CohereEmbedAnswer, CohereEmbedRequest, CohereInput};
use crate::http::wire::completions::Prompt;
use crate::http::wire::embeddings::InputsField;
use crate::http::wire::number::integer;
use crate::text::tokenizer::CutSide;
use numbers::Numbers;

mod numbers;

impl RequestBody for CohereEmbedRequest {
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// `POST /v2/embed`.
pub(crate) async fn embed(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    extracted: Extracted<CohereEmbedRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body: request, adapter, arrival, fields, .. } = extracted;
    let ignored = fields.finish(state.config.strict)?;
    let limits = state.engine.limits();
    if limits.outputs != Outputs::Embedding {
        return Err(ApiError::unsupported("model", "embeddings from a model that makes none"));
    }
    let types = Numbers::of(request.embedding_types.as_deref())?;
    let cutting = cutting(&request, state.longest_text())?;
    let most = i64::try_from(limits.embedding_size).unwrap_or(i64::MAX);
    let dimensions = integer("output_dimension", request.output_dimension, 1, most)?;
    let dimensions = dimensions.and_then(|count| usize::try_from(count).ok());
    let of_type = |given| state.adapters.of_task(given);
    let options = EmbeddingOptions {
        adapter: adapter.or_else(|| request.input_type.as_deref().and_then(of_type).cloned()),
        wanted: Wanted { dimensions, ..Wanted::default() },
        priority: arrival.priority(priority(request.priority)?.unwrap_or(0)),
        cache_salt: None,
        arrival: arrival.at,
        deadline: arrival.deadline(None)?,
    };
    let texts = texts(request.texts, request.inputs)?;
    let prompt = prompt_name(request.input_type.as_deref(), &state)?;
    let inputs = InputsField(texts.iter().cloned().map(Prompt::Text).collect());
    let inputs = checked_inputs(Some(&inputs), Prompts::named(prompt), &state)?;
    let permit = state.admit(inputs.len())?;
    let tokens = tokenize(&state, inputs, cutting).await?;
    let input_tokens: usize = tokens.iter().map(Vec::len).sum();
    let vectors = options.run(&state, permit, tokens).await?;
    let mut embeddings = Map::new();
    for numbers in types {
        let written = vectors.iter().map(|vector| numbers.write(vector));
        embeddings.insert(numbers.name().to_owned(), written.collect());
    }
    let answer = CohereEmbedAnswer {
        id: id.or_in_body("embd-", None),
        response_type: "embeddings_by_type",
        embeddings,
        texts,
        meta: json!({
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": input_tokens, "image_tokens": 0},
        }),
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// The texts, from whichever field has them.
fn texts(
    texts: Option<Vec<String>>,
    inputs: Option<Vec<CohereInput>>,
) -> Result<Vec<String>, ApiError> {
    let texts = match (texts, inputs) {
        (Some(texts), None) => texts,
        (None, Some(inputs)) => {
            let inputs = inputs.into_iter().enumerate();
            inputs.map(|(at, input)| joined(at, input)).collect::<Result<_, _>>()?
        }
        _ => return Err(ApiError::field("texts", "one of texts and inputs is required")),
    };
    if texts.is_empty() || texts.len() > MAX_INPUTS {
        let message = format!("texts must have 1 to {MAX_INPUTS} texts, got {}", texts.len());
        return Err(ApiError::field("texts", message));
    }
    Ok(texts)
}

fn joined(at: usize, input: CohereInput) -> Result<String, ApiError> {
    let parts = input.content.into_iter().enumerate().map(|(part, content)| match content.text {
        Some(text) if content.kind == "text" => Ok(text),
        _ => {
            let field = format!("inputs[{at}].content[{part}]");
            let message = format!("{field} must be a text, got the type {:?}", content.kind);
            Err(ApiError::field(field, message))
        }
    });
    Ok(parts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// The model's prompt for what texts are for, if it has one.
fn prompt_name<'a>(
    input_type: Option<&'a str>,
    state: &AppState,
) -> Result<Option<&'a str>, ApiError> {
    let Some(given) = input_type else { return Ok(None) };
    let names: &[&str] = match given {
        "search_query" => &["search_query", "query"],
        "search_document" => &["search_document", "document", "passage"],
        "classification" => &["classification", "Classification"],
        "clustering" => &["clustering", "Clustering"],
        // A task that has an adapter needs no prompt.
        other if state.adapters.of_task(other).is_some() => &[],
        other => {
            state
                .embedding_prompts
                .get(Some(other))
                .map_err(|error| ApiError::field("input_type", format!("input_type: {error}")))?;
            return Ok(Some(other));
        }
    };
    let found = names.iter().find(|name| state.embedding_prompts.get(Some(name)).is_ok());
    Ok(found.copied())
}

fn cutting(request: &CohereEmbedRequest, longest: usize) -> Result<Cutting, ApiError> {
    let side = match request.truncate.as_deref() {
        None | Some("END") => Some(CutSide::Right),
        Some("START") => Some(CutSide::Left),
        Some("NONE") => None,
        Some(other) => {
            let message = format!("truncate must be NONE, START or END, got {other:?}");
            return Err(ApiError::field("truncate", message));
        }
    };
    let most = integer("max_tokens", request.max_tokens, 1, i64::MAX)?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(longest).min(longest);
    Ok(Cutting {
        truncate: side.map(|_| most),
        side: side.unwrap_or(CutSide::Right),
        longest: most,
        add_special_tokens: true,
        field: "texts",
        cut_by: "truncate",
    })
}
