//! `/v1/embeddings`: texts to vectors.
//!
//! Checks the request, has every input embedded and writes the vectors in the order of the inputs.

use axum::extract::State;
use axum::response::Response;

use crate::engine::adapter::Adapter;
use crate::engine::request::Wanted;
use crate::engine::{EngineLimits, Outputs};
use crate::http::error::ApiError;
use crate::http::generate::chat_request::Conversation;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions, Input, name, tokenize};
use crate::http::generate::options::{cache_salt, priority};
use crate::http::generate::prompt;
use crate::http::generate::task::Task;
use crate::http::openai::chat::input::CHAT_RULES;
use crate::http::openai::sampling::cut_side;
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::rules::{COMMON, Rules, Treatment, is_false, never};
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::completions::Prompt;
use crate::http::wire::embeddings::{
    ConversationFields, EmbeddingUsage, EmbeddingsRequest, InputsField,
};
use crate::http::wire::number::{integer, token_ids};
use crate::text::tokenizer::CutSide;
use encoding::Encoding;

pub(crate) mod conversation;
pub(crate) mod encoding;

/// Would change the vectors.
const EMBEDDING_RULES: Rules = &[
    ("late_chunking", Treatment::Unsupported(is_false)),
    ("late_chunking_params", Treatment::Unsupported(never)),
    ("padding", Treatment::Unsupported(|padding| padding == "do_not_pad")),
];

/// The body of a request for embeddings.
#[derive(Debug)]
pub(crate) struct EmbeddingsBody {
    request: EmbeddingsRequest,
    conversation: ConversationFields,
}

impl RequestBody for EmbeddingsBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES, EMBEDDING_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, conversation: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /v1/embeddings`.
pub(crate) async fn embeddings(
    State(state): State<AppState>,
    extracted: Extracted<EmbeddingsBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, mut fields } = extracted;
    let EmbeddingsBody { request, conversation } = body;
    let conversation = conversation::read(&conversation, request.input.is_some(), &mut fields)?;
    let chats = conversation.is_some();
    if chats && request.prompt_name.is_some() {
        return Err(ApiError::field("prompt_name", "prompt_name goes with texts, not messages"));
    }
    let ignored = fields.finish(state.config.strict)?;
    let encoding = Encoding::new(
        request.encoding_format.as_deref().or(request.embedding_type.as_deref()),
        request.embed_dtype.as_deref(),
        request.endianness.as_deref(),
    )?;
    if !matches!(state.engine.limits().outputs, Outputs::Embedding | Outputs::Lexical) {
        let what = "embeddings from a model that makes none of texts; /pooling gives what it makes";
        return Err(ApiError::unsupported("model", what));
    }
    let cutting = cutting(&request, chats, state.longest_text())?;
    let task = Task::find(request.task.as_deref(), adapter.as_ref(), &state)?;
    let options = options(&request, task.adapter, &arrival, state.engine.limits())?;
    let prompts =
        Prompts { named: request.prompt_name.as_deref(), of_task: task.prompt_name.as_deref() };
    let inputs = inputs(conversation, request.input.as_ref(), prompts, &state).await?;
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
            activation: request.normalize.or(request.normalized).or(request.use_activation),
        },
        priority: arrival.priority(priority(request.priority)?.unwrap_or(0)),
        cache_salt: cache_salt(request.cache_salt.as_deref())?,
        arrival: arrival.at,
        deadline: arrival.deadline(request.deadline_ms)?,
    })
}

/// What is done with texts of more than `longest` tokens, or with a conversation.
fn cutting(request: &EmbeddingsRequest, chats: bool, longest: usize) -> Result<Cutting, ApiError> {
    let side = cut_side(request.truncation_side.as_deref(), CutSide::Right)?;
    // A chat template writes the special tokens itself.
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
        None => Ok(request.truncate.unwrap_or(false).then_some(longest)),
        Some(-1) => Ok(Some(longest)),
        Some(0) => {
            let message = format!("{TRUNCATE} must be -1 or in [1, {longest}], got 0");
            Err(ApiError::field(TRUNCATE, message))
        }
        Some(count) => Ok(usize::try_from(count).ok()),
    }
}

/// Which of the model's prompts is put before texts: that of texts that ask for none, if neither is given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prompts<'a> {
    /// The name that the request has.
    pub(crate) named: Option<&'a str>,
    /// The name of that of the request's task.
    pub(crate) of_task: Option<&'a str>,
}

impl<'a> Prompts<'a> {
    /// The prompt that a request names, if it does.
    pub(crate) fn named(named: Option<&'a str>) -> Self {
        Self { named, of_task: None }
    }
}

/// What is read: a conversation, rendered, or else the checked inputs of `field`.
pub(crate) async fn inputs(
    conversation: Option<Conversation>,
    field: Option<&InputsField>,
    prompts: Prompts<'_>,
    state: &AppState,
) -> Result<Vec<Input>, ApiError> {
    match conversation {
        Some(conversation) => Ok(vec![Input::Text(prompt::text(state, conversation).await?)]),
        None => checked_inputs(field, prompts, state),
    }
}

/// The texts of the field `input` with a prompt before each, or token ids.
pub(crate) fn checked_inputs(
    field: Option<&InputsField>,
    prompts: Prompts<'_>,
    state: &AppState,
) -> Result<Vec<Input>, ApiError> {
    let vocab_size = state.engine.limits().vocab_size;
    let Prompts { named, of_task } = prompts;
    let prompt = state.embedding_prompts.get(named.or(of_task));
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
