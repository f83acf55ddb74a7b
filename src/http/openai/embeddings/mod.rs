//! `/v1/embeddings`: texts to vectors.
//!
//! Checks the request, has every input embedded and writes the vectors in the order of the inputs.

use axum::extract::State;
use axum::response::Response;

use crate::engine::adapter::Adapter;
use crate::engine::request::Wanted;
use crate::engine::{EngineLimits, Outputs};
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions, Input, name, tokenize};
use crate::http::generate::options::{cache_salt, priority};
use crate::http::generate::prompt;
use crate::http::openai::chat::input::CHAT_RULES;
use crate::http::openai::sampling::cut_side;
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::rules::{COMMON, Rules, Treatment, never};
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::completions::Prompt;
use crate::http::wire::embeddings::{EmbeddingUsage, EmbeddingsRequest, InputsField};
use crate::http::wire::number::{integer, token_ids};
use crate::text::tokenizer::CutSide;
use encoding::Encoding;

mod conversation;
pub(crate) mod encoding;

/// Would change the vectors.
const EMBEDDING_RULES: Rules = &[
    ("late_chunking_params", Treatment::Unsupported(never)),
    ("padding", Treatment::Unsupported(|padding| padding == "do_not_pad")),
];

impl RequestBody for EmbeddingsRequest {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES, EMBEDDING_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// `POST /v1/embeddings`.
pub(crate) async fn embeddings(
    State(state): State<AppState>,
    extracted: Extracted<EmbeddingsRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body: request, model, adapter, arrival, mut fields } = extracted;
    let conversation = conversation::read(&request, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let encoding = Encoding::new(
        request.encoding_format.as_deref(),
        request.embed_dtype.as_deref(),
        request.endianness.as_deref(),
    )?;
    if !matches!(state.engine.limits().outputs, Outputs::Embedding | Outputs::Lexical) {
        let what = "embeddings from a model that makes none of texts; /pooling gives what it makes";
        return Err(ApiError::unsupported("model", what));
    }
    let cutting = cutting(&request, state.longest_text())?;
    let options = options(&request, adapter, &arrival, state.engine.limits())?;
    let inputs = match conversation {
        Some(conversation) => vec![Input::Text(prompt::text(&state, conversation).await?)],
        None => checked_inputs(request.input.as_ref(), request.prompt_name.as_deref(), &state)?,
    };
    let permit = state.admit(inputs.len())?;
    let texts = tokenize(&state, inputs, cutting).await?;
    let prompt_tokens = texts.iter().map(Vec::len).sum();
    let vectors = options.run(&state, permit, texts).await?;
    let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
    Ok(ignored.tell(encoding.answer(vectors, &model, usage)))
}

/// What a request asks for beside its inputs.
fn options(
    request: &EmbeddingsRequest,
    adapter: Option<Adapter>,
    arrival: &Arrival,
    limits: &EngineLimits,
) -> Result<EmbeddingOptions, ApiError> {
    let most = i64::try_from(limits.embedding_size).unwrap_or(i64::MAX);
    let dimensions = integer("dimensions", request.dimensions, 1, most)?;
    Ok(EmbeddingOptions {
        adapter,
        wanted: Wanted {
            outputs: None,
            dimensions: dimensions.and_then(|dimensions| usize::try_from(dimensions).ok()),
            activation: request.normalize.or(request.use_activation),
        },
        priority: arrival.priority(priority(request.priority)?.unwrap_or(0)),
        cache_salt: cache_salt(request.cache_salt.as_deref())?,
        arrival: arrival.at,
        deadline: arrival.deadline(request.deadline_ms)?,
    })
}

/// What is done with texts of more than `longest` tokens.
fn cutting(request: &EmbeddingsRequest, longest: usize) -> Result<Cutting, ApiError> {
    let side = cut_side(request.truncation_side.as_deref(), CutSide::Right)?;
    // A chat template writes the special tokens itself.
    let chats = request.messages.is_some();
    Ok(Cutting {
        truncate: truncate(request, longest)?,
        side,
        longest,
        add_special_tokens: request.add_special_tokens.unwrap_or(!chats),
        field: if chats { "messages" } else { "input" },
        cut_by: TRUNCATE,
    })
}

const TRUNCATE: &str = "truncate_prompt_tokens";

fn truncate(request: &EmbeddingsRequest, longest: usize) -> Result<Option<usize>, ApiError> {
    let most = i64::try_from(longest).unwrap_or(i64::MAX);
    match integer(TRUNCATE, request.truncate_prompt_tokens, -1, most)? {
        None => Ok(None),
        Some(-1) => Ok(Some(longest)),
        Some(0) => {
            let message = format!("{TRUNCATE} must be -1 or in [1, {longest}], got 0");
            Err(ApiError::field(TRUNCATE, message))
        }
        Some(count) => Ok(usize::try_from(count).ok()),
    }
}

/// The texts of the field `input` with the prompt of this name before each, or token ids.
pub(crate) fn checked_inputs(
    field: Option<&InputsField>,
    named: Option<&str>,
    state: &AppState,
) -> Result<Vec<Input>, ApiError> {
    let vocab_size = state.engine.limits().vocab_size;
    let prompt = state.embedding_prompts.get(named);
    let prompt = prompt.map_err(|error| ApiError::field("prompt_name", error.to_string()))?;
    let inputs = &field.ok_or_else(|| ApiError::field("input", "input is required"))?.0;
    if inputs.is_empty() || inputs.len() > MAX_INPUTS {
        let message =
            format!("input must have 1 to {MAX_INPUTS} texts or token lists, got {}", inputs.len());
        return Err(ApiError::field("input", message));
    }
    let empty = |index: usize, what: &str| {
        let message = format!("{} must not be an empty {what}", name("input", index, inputs.len()));
        ApiError::field("input", message)
    };
    let checked = inputs.iter().enumerate().map(|(index, input)| match input {
        Prompt::Text(text) if text.is_empty() => Err(empty(index, "string")),
        Prompt::Text(text) => Ok(Input::Text(format!("{prompt}{text}"))),
        Prompt::Tokens(ids) if ids.is_empty() => Err(empty(index, "list of tokens")),
        Prompt::Tokens(_) if named.is_some() => {
            let message = "prompt_name goes with texts, input holds token ids";
            Err(ApiError::field("prompt_name", message))
        }
        Prompt::Tokens(ids) => token_ids("input", ids, vocab_size).map(Input::Ids),
    });
    checked.collect()
}
