//! `/api/*`: Ollama's own API. Streams are lines of JSON, and errors are `{"error": text}`.
//!
//! One model is served, and it stays loaded: `keep_alive` changes nothing, a request that asks
//! nothing is told that the model is there, and the routes that fetch, make or delete models say
//! that they can't. Options are Ollama's and, beside them, all that the other protocols have.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::engine::adapter::Adapter;
use crate::http::answer::reader::ReadingPlan;
use crate::http::answer::stream;
use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::generate::grammar;
use crate::http::generate::options::GenerationOptions;
use crate::http::generate::plan::{Constraints, Plan};
use crate::http::generate::prompt_encoder::PromptEncoder;
use crate::http::generate::tools::ToolSetup;
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::request::extract::Extracted;
use crate::http::state::AppState;
use input::{ChatBody, Converted, GENERATE_NAMES, GenerateBody, Prompted, Raw};
use writer::{OllamaWriter, Shape};

mod conversation;
pub(crate) mod embed;
pub(crate) mod error;
mod input;
pub(crate) mod models;
mod options;
mod writer;

/// `POST /api/chat`.
pub(crate) async fn chat(
    State(state): State<AppState>,
    request: Extracted<ChatBody>,
) -> Result<Response, ApiError> {
    let Converted { asked: chat, model, logprobs, ignored, adapter, arrival } =
        Converted::of_chat(&state, request)?;
    if chat.conversation.messages.is_empty() {
        return Ok(ignored.tell(loaded(model, &arrival, Shape::Chat)));
    }
    let streams = chat.streams;
    let chat = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let logprobs = logprobs.then(|| chat.plan.options.logprob_spelling(&state));
    let writer = OllamaWriter::new(model, arrival.at, Shape::Chat, logprobs);
    chat.answer(&state, writer, streams, &ignored).await
}

/// `POST /api/generate`.
pub(crate) async fn generate(
    State(state): State<AppState>,
    request: Extracted<GenerateBody>,
) -> Result<Response, ApiError> {
    let Converted { asked, model, logprobs, ignored, adapter, arrival } =
        Converted::of_prompt(&state, request)?;
    let spelling = |plan: &Plan| logprobs.then(|| plan.options.logprob_spelling(&state));
    match asked {
        Prompted::Nothing => {
            Ok(ignored.tell(loaded(model, &arrival, Shape::Generate { context: None })))
        }
        Prompted::Chat(chat, context) => {
            let streams = chat.streams;
            let mut chat =
                CheckedChat::new(&state, *chat, adapter, arrival)?.prepare(&state).await?;
            let own = chat.prompt.token_ids.len();
            let prompt = behind(context, std::mem::take(&mut chat.prompt.token_ids), &state);
            for placed in &mut chat.prompt.pictures {
                placed.offset += prompt.len() - own;
            }
            let shape = Shape::Generate { context: Some(prompt.clone()) };
            chat.prompt.token_ids = prompt;
            let writer = OllamaWriter::new(model, arrival.at, shape, spelling(&chat.plan));
            chat.answer(&state, writer, streams, &ignored).await
        }
        Prompted::Raw(raw) => {
            let Raw { text, options, streams } = *raw;
            let permit = state.admit(1)?;
            let (plan, prompt) = planned(&state, text, options, adapter, arrival).await?;
            // As in Ollama, no later request goes on from what was no conversation.
            let shape = Shape::Generate { context: None };
            let writer = OllamaWriter::new(model, arrival.at, shape, spelling(&plan));
            let generation = plan.submit(&state, permit, &[prompt])?;
            stream::respond(generation, writer, streams, state.keep_alive, &ignored).await
        }
    }
}

/// A prompt that is continued as it is: what the engine is told, and its tokens.
async fn planned(
    state: &AppState,
    text: String,
    mut options: GenerationOptions,
    adapter: Option<Adapter>,
    arrival: Arrival,
) -> Result<(Plan, Vec<u32>), ApiError> {
    let encoder = PromptEncoder::new(state, None, &GENERATE_NAMES);
    let prompt = off_thread(move || encoder.encode(&text, true)).await?.ids;
    if prompt.is_empty() {
        return Err(ApiError::field("prompt", "prompt must have at least one token"));
    }
    let tools = ToolSetup::none(&GENERATE_NAMES, None);
    let grammar = grammar::compile(options.own.demand.take(), &tools, state).await?;
    let constraints = Constraints { grammar, reasoning: None };
    let reading = ReadingPlan::default();
    let plan = Plan::new(state, options, constraints, reading, adapter, arrival.at).await?;
    Ok((plan, prompt))
}

/// The answer to a request that asks nothing.
fn loaded(model: String, arrival: &Arrival, shape: Shape) -> Response {
    let answer = OllamaWriter::new(model, arrival.at, shape, None).loaded();
    axum::Json(answer).into_response()
}

/// A prompt behind what was said before it; only the first of all begins a text.
fn behind(mut context: Vec<u32>, prompt: Vec<u32>, state: &AppState) -> Vec<u32> {
    let begins = state.tokenizer.special_tokens().get("bos_token");
    let begins = begins.and_then(|text| state.tokenizer.token_id(text));
    let repeats = !context.is_empty() && prompt.first().copied() == begins;
    context.extend(prompt.into_iter().skip(usize::from(repeats)));
    context
}
