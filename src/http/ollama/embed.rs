//! `/api/embed` and `/api/embeddings`: texts to vectors.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::input::check_model;
use super::options::{context, is_forever};
use super::writer::nanoseconds_since;
use crate::engine::adapter::Adapter;
use crate::engine::request::Wanted;
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions, Input, name, tokenize};
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, FieldReader};
use crate::http::request::rules::{COMMON, Rules, Treatment};
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::number::integer;
use crate::http::wire::ollama::{
    EmbedOptionFields, OllamaEmbedAnswer, OllamaEmbedRequest, OllamaEmbeddingsAnswer,
    OllamaEmbeddingsRequest,
};
use crate::text::tokenizer::CutSide;

/// Clients send the options of chats here, which say nothing of vectors.
const EMBED_RULES: Rules = &[
    ("keep_alive", Treatment::IgnoredUnless(is_forever)),
    ("options.frequency_penalty", Treatment::Ignored),
    ("options.min_p", Treatment::Ignored),
    ("options.mirostat", Treatment::Ignored),
    ("options.mirostat_eta", Treatment::Ignored),
    ("options.mirostat_tau", Treatment::Ignored),
    ("options.num_batch", Treatment::Ignored),
    ("options.num_gpu", Treatment::Ignored),
    ("options.num_keep", Treatment::Ignored),
    ("options.num_predict", Treatment::Ignored),
    ("options.num_thread", Treatment::Ignored),
    ("options.presence_penalty", Treatment::Ignored),
    ("options.repeat_last_n", Treatment::Ignored),
    ("options.repeat_penalty", Treatment::Ignored),
    ("options.seed", Treatment::Ignored),
    ("options.stop", Treatment::Ignored),
    ("options.temperature", Treatment::Ignored),
    ("options.tfs_z", Treatment::Ignored),
    ("options.top_k", Treatment::Ignored),
    ("options.top_p", Treatment::Ignored),
    ("options.typical_p", Treatment::Ignored),
    ("options.use_mmap", Treatment::Ignored),
];

impl RequestBody for OllamaEmbedRequest {
    const RULES: &'static [Rules] = &[EMBED_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn check_model(state: &AppState, named: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        check_model(state, named)
    }
}

impl RequestBody for OllamaEmbeddingsRequest {
    const RULES: &'static [Rules] = &[EMBED_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn check_model(state: &AppState, named: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        check_model(state, named)
    }
}

/// `POST /api/embed`.
pub(crate) async fn embed(
    State(state): State<AppState>,
    request: Extracted<OllamaEmbedRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, mut fields } = request;
    let longest = longest(body.options.as_ref(), &state, &mut fields)?;
    let cutting = cutting("input", body.truncate != Some(false), longest);
    let most = i64::try_from(state.engine.limits().embedding_size).unwrap_or(i64::MAX);
    let dimensions = integer("dimensions", body.dimensions, 0, most)?.filter(|count| *count > 0);
    let ignored = fields.finish(state.config.strict)?;
    let options = EmbeddingOptions {
        wanted: Wanted {
            outputs: None,
            dimensions: dimensions.and_then(|count| usize::try_from(count).ok()),
            activation: Some(true),
        },
        ..options(adapter, &arrival)?
    };
    let texts = texts(body.input)?;
    let (embeddings, prompt_eval_count) = vectors(&state, texts, cutting, &options).await?;
    let answer = OllamaEmbedAnswer {
        model: &model,
        embeddings,
        total_duration: nanoseconds_since(arrival.at),
        load_duration: 0,
        prompt_eval_count,
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// `POST /api/embeddings`: one text, whose vector is as long as the model makes it.
pub(crate) async fn embeddings(
    State(state): State<AppState>,
    request: Extracted<OllamaEmbeddingsRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, adapter, arrival, mut fields, .. } = request;
    let longest = longest(body.options.as_ref(), &state, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let options = options(adapter, &arrival)?;
    let texts = body.prompt.into_iter().filter(|prompt| !prompt.is_empty()).collect();
    let cutting = cutting("prompt", false, longest);
    let (vectors, _) = vectors(&state, texts, cutting, &options).await?;
    let embedding = vectors.into_iter().next().unwrap_or_default();
    let answer = OllamaEmbeddingsAnswer { embedding };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// The texts of a request; an empty one alone asks for nothing.
fn texts(input: Option<Value>) -> Result<Vec<String>, ApiError> {
    let text = |(index, input): (usize, Value)| match input {
        Value::String(text) => Ok(text),
        other => {
            let shown: String = other.to_string().chars().take(80).collect();
            let message = format!("input[{index}] must be a string, got {shown}");
            Err(ApiError::field("input", message))
        }
    };
    match input {
        None => Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(list)) => list.into_iter().enumerate().map(text).collect(),
        Some(_) => Err(ApiError::field("input", "input must be a string or a list of strings")),
    }
}

/// Most tokens of a text: `num_ctx`, if the model takes more.
fn longest(
    options: Option<&Value>,
    state: &AppState,
    fields: &mut FieldReader,
) -> Result<usize, ApiError> {
    let most = state.longest_text();
    let Some(options) = options else { return Ok(most) };
    let mut reader = BodyReader::at(options, "options");
    let EmbedOptionFields { num_ctx } = reader.take()?;
    reader.finish(fields)?;
    Ok(context(num_ctx, most, fields)?.unwrap_or(most))
}

fn cutting(field: &'static str, cuts: bool, longest: usize) -> Cutting {
    Cutting {
        truncate: cuts.then_some(longest),
        side: CutSide::Right,
        longest,
        add_special_tokens: true,
        field,
        cut_by: "truncate of /api/embed",
    }
}

fn options(adapter: Option<Adapter>, arrival: &Arrival) -> Result<EmbeddingOptions, ApiError> {
    Ok(EmbeddingOptions {
        adapter,
        wanted: Wanted::default(),
        priority: 0,
        cache_salt: None,
        arrival: arrival.at,
        deadline: arrival.deadline(None)?,
    })
}

/// The vectors of the texts and how many tokens these have.
async fn vectors(
    state: &AppState,
    texts: Vec<String>,
    cutting: Cutting,
    options: &EmbeddingOptions,
) -> Result<(Vec<Vec<f32>>, usize), ApiError> {
    let (field, count) = (cutting.field, texts.len());
    if count > MAX_INPUTS {
        let message = format!("{field} must have at most {MAX_INPUTS} texts, got {count}");
        return Err(ApiError::field(field, message));
    }
    if let Some(empty) = texts.iter().position(String::is_empty) {
        let message = format!("{} must not be an empty string", name(field, empty, count));
        return Err(ApiError::field(field, message));
    }
    let permit = state.admit(count)?;
    let prompt = state.embedding_prompts.get(None);
    let prompt = prompt.map_err(|error| ApiError::field(field, error.to_string()))?;
    let inputs = texts.into_iter().map(|text| Input::Text(format!("{prompt}{text}"))).collect();
    let texts = tokenize(state, inputs, cutting).await?;
    let tokens = texts.iter().map(Vec::len).sum();
    Ok((options.run(state, permit, texts).await?, tokens))
}
