//! `/v1/embeddings`: texts to vectors.
//!
//! Checks the request, tokenizes, has the engine embed every input and writes the vectors in the
//! order of the inputs. Knows nothing of how a model makes them.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use tokio::sync::watch;

use crate::engine::EngineLimits;
use crate::engine::adapter::Adapter;
use crate::engine::output::{EngineOutput, OutputStream};
use crate::engine::request::{EmbeddingRequest, RequestId};
use crate::http::answer::generation::{cut, passed};
use crate::http::answer::meter::Meter;
use crate::http::error::ApiError;
use crate::http::generate::options::{cache_salt, priority};
use crate::http::generate::prompt;
use crate::http::openai::chat::input::CHAT_RULES;
use crate::http::openai::sampling::cut_side;
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::rules::{COMMON, Rules, Treatment, never};
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::completions::Prompt;
use crate::http::wire::embeddings::{EmbeddingUsage, EmbeddingsRequest};
use crate::http::wire::number::{integer, token_ids};
use crate::text::tokenizer::{CutSide, TokenizerError};
use encoding::Encoding;

mod conversation;
mod encoding;

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
    let plan = EmbeddingPlan::new(&request, adapter, &arrival, state.engine.limits())?;
    let inputs = match conversation {
        Some(conversation) => vec![Input::Text(prompt::text(&state, conversation).await?)],
        None => inputs(&request, &state)?,
    };
    // Held until the answer is there.
    let _permit = state.admit(inputs.len())?;
    let texts = tokenize(&state, inputs, plan.cutting).await?;
    let prompt_tokens = texts.iter().map(Vec::len).sum();
    let vectors = plan.run(&state, texts).await?;
    let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
    Ok(ignored.tell(plan.encoding.answer(vectors, &model, usage)))
}

/// What a request asks for beside its inputs, checked.
#[derive(Clone, Debug)]
struct EmbeddingPlan {
    adapter: Option<Adapter>,
    encoding: Encoding,
    dimensions: Option<usize>,
    normalize: Option<bool>,
    cutting: Cutting,
    priority: i32,
    cache_salt: Option<String>,
    arrival: Instant,
    deadline: Option<Duration>,
}

/// What is done with long texts.
#[derive(Clone, Copy, Debug)]
struct Cutting {
    /// Cut to so many tokens; `None` refuses what is too long.
    truncate: Option<usize>,
    side: CutSide,
    longest: usize,
    add_special_tokens: bool,
    /// The field that holds the texts.
    field: &'static str,
}

impl EmbeddingPlan {
    fn new(
        request: &EmbeddingsRequest,
        adapter: Option<Adapter>,
        arrival: &Arrival,
        limits: &EngineLimits,
    ) -> Result<Self, ApiError> {
        let most = i64::try_from(limits.embedding_size).unwrap_or(i64::MAX);
        let dimensions = integer("dimensions", request.dimensions, 1, most)?;
        Ok(Self {
            adapter,
            encoding: Encoding::new(request)?,
            dimensions: dimensions.and_then(|dimensions| usize::try_from(dimensions).ok()),
            normalize: request.normalize.or(request.use_activation),
            cutting: Cutting::new(request, limits.max_text_len)?,
            priority: priority(request.priority)?.unwrap_or(0),
            cache_salt: cache_salt(request.cache_salt.as_deref())?,
            arrival: arrival.at,
            deadline: arrival.deadline(request.deadline_ms)?,
        })
    }

    /// The vectors of the texts, in their order. Dropping it aborts what still runs.
    async fn run(&self, state: &AppState, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, ApiError> {
        let running: Vec<Running> =
            texts.into_iter().map(|token_ids| self.submit(state, token_ids)).collect();
        let deadline = self.deadline.map(|after| self.arrival + after);
        let mut cut_signal: watch::Receiver<bool> = state.cut_signal();
        tokio::select! {
            biased;
            () = cut(&mut cut_signal) => Err(ApiError::Unavailable(
                "the server is shutting down and could not finish the request".to_owned(),
            )),
            () = passed(deadline) => {
                let after = self.deadline.unwrap_or_default().as_millis();
                Err(ApiError::DeadlineExceeded(u64::try_from(after).unwrap_or(u64::MAX)))
            }
            vectors = all_vectors(running) => vectors,
        }
    }

    fn submit(&self, state: &AppState, token_ids: Vec<u32>) -> Running {
        let meter = Meter::new(state.metrics.clone(), self.arrival, token_ids.len());
        let output = state.engine.embed(EmbeddingRequest {
            id: RequestId::next(),
            token_ids,
            dimensions: self.dimensions,
            normalize: self.normalize,
            priority: self.priority,
            cache_salt: self.cache_salt.clone(),
            adapter: self.adapter.clone(),
        });
        Running { output, meter }
    }
}

/// One input in the engine.
struct Running {
    output: OutputStream,
    meter: Meter,
}

impl Running {
    async fn vector(mut self) -> Result<Vec<f32>, ApiError> {
        while let Some(output) = self.output.next().await {
            match output {
                EngineOutput::Started { cached_tokens, queue } => {
                    self.meter.started(cached_tokens, queue);
                }
                EngineOutput::Embedded { embedding, stats } => {
                    self.meter.embedded(&stats);
                    return Ok(embedding);
                }
                EngineOutput::Failed(error) => {
                    self.meter.failed();
                    return Err(error.into());
                }
                EngineOutput::Token { .. }
                | EngineOutput::PromptLogprobs(_)
                | EngineOutput::Finished { .. } => break,
            }
        }
        self.meter.failed();
        Err(ApiError::Internal("the engine gave no embedding".to_owned()))
    }
}

/// The engine sends without waiting for readers, so reading in order delays nothing.
async fn all_vectors(running: Vec<Running>) -> Result<Vec<Vec<f32>>, ApiError> {
    let mut vectors = Vec::with_capacity(running.len());
    for running in running {
        vectors.push(running.vector().await?);
    }
    Ok(vectors)
}

impl Cutting {
    fn new(request: &EmbeddingsRequest, longest: usize) -> Result<Self, ApiError> {
        let side = cut_side(request.truncation_side.as_deref(), CutSide::Right)?;
        // A chat template writes the special tokens itself.
        let chats = request.messages.is_some();
        Ok(Self {
            truncate: truncate(request, longest)?,
            side,
            longest,
            add_special_tokens: request.add_special_tokens.unwrap_or(!chats),
            field: if chats { "messages" } else { "input" },
        })
    }

    /// Checks the length of an input that was cut if the request asks for it.
    fn check(self, token_ids: &[u32], name: &str) -> Result<(), ApiError> {
        if token_ids.is_empty() {
            return Err(ApiError::field(
                self.field,
                format!("{name} must have at least one token"),
            ));
        }
        if token_ids.len() > self.longest {
            return Err(self.too_long(name, &token_ids.len().to_string()));
        }
        Ok(())
    }

    fn refusal(self, error: TokenizerError, name: &str) -> ApiError {
        match error {
            TokenizerError::TooLong(tokens) => self.too_long(name, &format!("more than {tokens}")),
            error => ApiError::field(self.field, error.to_string()),
        }
    }

    fn too_long(self, name: &str, tokens: &str) -> ApiError {
        ApiError::Invalid {
            message: format!(
                "This model's maximum context length is {} tokens. However, {name} has {tokens} \
                 tokens; truncate_prompt_tokens cuts it",
                self.longest
            ),
            param: Some(self.field.to_owned()),
            code: Some("context_length_exceeded"),
        }
    }
}

fn truncate(request: &EmbeddingsRequest, longest: usize) -> Result<Option<usize>, ApiError> {
    const NAME: &str = "truncate_prompt_tokens";
    let most = i64::try_from(longest).unwrap_or(i64::MAX);
    match integer(NAME, request.truncate_prompt_tokens, -1, most)? {
        None => Ok(None),
        Some(-1) => Ok(Some(longest)),
        Some(0) => {
            let message = format!("{NAME} must be -1 or in [1, {longest}], got 0");
            Err(ApiError::field(NAME, message))
        }
        Some(count) => Ok(usize::try_from(count).ok()),
    }
}

/// Checked inputs.
enum Input {
    Text(String),
    Ids(Vec<u32>),
}

fn inputs(request: &EmbeddingsRequest, state: &AppState) -> Result<Vec<Input>, ApiError> {
    let vocab_size = state.engine.limits().vocab_size;
    let named = request.prompt_name.as_deref();
    let prompt = state.embedding_prompts.get(named);
    let prompt = prompt.map_err(|error| ApiError::field("prompt_name", error.to_string()))?;
    let field = request.input.as_ref();
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

/// What an input is called in messages.
fn name(field: &str, index: usize, count: usize) -> String {
    if count == 1 { field.to_owned() } else { format!("{field}[{index}]") }
}

async fn tokenize(
    state: &AppState,
    inputs: Vec<Input>,
    cutting: Cutting,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let tokenizer = state.tokenizer.clone();
    let Cutting { truncate, side, longest, add_special_tokens, field } = cutting;
    off_thread(move || {
        let count = inputs.len();
        let encoded = inputs.into_iter().enumerate().map(|(index, input)| {
            let most = truncate.unwrap_or(usize::MAX);
            let ids = match input {
                Input::Ids(ids) => side.keep(&ids, most).to_vec(),
                Input::Text(text) => match truncate {
                    None => tokenizer.encode_at_most(&text, add_special_tokens, longest),
                    Some(_) => tokenizer.encode_within(&text, add_special_tokens, most, side),
                }
                .map_err(|error| cutting.refusal(error, &name(field, index, count)))?,
            };
            cutting.check(&ids, &name(field, index, count))?;
            Ok(ids)
        });
        encoded.collect()
    })
    .await
}
