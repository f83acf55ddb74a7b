//! Requests for chats and for prompts to the one that all protocols share, under Ollama's field
//! names.

use serde_json::Map;

use super::conversation::{images, messages, saying};
use super::options::{OLLAMA_RULES, Shared, Thinking};
use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    ChatRequest, Conversation, Message, ReasoningOptions, Role, TemplateOptions, Tools,
};
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::options::GenerationOptions;
use crate::http::openai::tools;
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, Ignored};
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::wire::number::token_ids;
use crate::http::wire::ollama::{OllamaChatRequest, OllamaFields, OllamaGenerateRequest};

/// What `/api/chat` calls the fields of all protocols.
const CHAT_NAMES: FieldNames = FieldNames {
    prompt: "messages",
    tools: "tools",
    tool_choice: "tools",
    max_tokens: "options.num_predict",
    reasoning_budget: "think",
};

/// The same for `/api/generate`.
pub(super) const GENERATE_NAMES: FieldNames = FieldNames { prompt: "prompt", ..CHAT_NAMES };

/// What clients put behind names that have no tag.
const LATEST: &str = ":latest";

/// The body of `POST /api/chat`.
#[derive(Debug)]
pub(crate) struct ChatBody {
    request: OllamaChatRequest,
    shared: OllamaFields,
}

impl RequestBody for ChatBody {
    const RULES: &'static [Rules] = &[OLLAMA_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, shared: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }

    fn check_model(state: &AppState, named: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        check_model(state, named)
    }
}

/// The body of `POST /api/generate`.
#[derive(Debug)]
pub(crate) struct GenerateBody {
    request: OllamaGenerateRequest,
    shared: OllamaFields,
}

impl RequestBody for GenerateBody {
    const RULES: &'static [Rules] = &[OLLAMA_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, shared: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }

    fn check_model(state: &AppState, named: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        check_model(state, named)
    }
}

/// Checks that a model is served, whose name may have the tag that every model has.
pub(super) fn check_model(
    state: &AppState,
    named: Option<&str>,
) -> Result<Option<Adapter>, ApiError> {
    let found = state.check_model(named);
    match named.and_then(|named| named.strip_suffix(LATEST)) {
        Some(plain) if matches!(found, Err(ApiError::ModelNotFound(_))) => {
            let untagged = state.check_model(Some(plain));
            // What does not exist is told as it was asked for.
            if matches!(untagged, Err(ApiError::ModelNotFound(_))) { found } else { untagged }
        }
        _ => found,
    }
}

/// A request in the words of all protocols, and what its answer is written with.
pub(super) struct Converted<T> {
    pub(super) asked: T,
    pub(super) model: String,
    pub(super) logprobs: bool,
    pub(super) ignored: Ignored,
    pub(super) adapter: Option<Adapter>,
    pub(super) arrival: Arrival,
}

/// What a prompt becomes.
pub(super) enum Prompted {
    /// Only the model is to be there.
    Nothing,
    /// A conversation, behind the tokens of what was said before it.
    Chat(Box<ChatRequest>, Vec<u32>),
    /// It stays as it is.
    Raw(Box<Raw>),
}

/// A prompt without a template.
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) options: GenerationOptions,
    pub(super) streams: bool,
}

impl Converted<ChatRequest> {
    /// A chat.
    pub(super) fn of_chat(
        state: &AppState,
        extracted: Extracted<ChatBody>,
    ) -> Result<Self, ApiError> {
        let Extracted { body, model, adapter, arrival, mut fields } = extracted;
        let ChatBody { request, shared } = body;
        let list = request.tools.as_deref().unwrap_or_default();
        let list = tools::tools(list, &mut fields)?;
        let reasons = state.families(!list.is_empty()).reasoning.is_some();
        let about = (model.as_str(), reasons);
        let shared = Shared::new(&shared, about, &CHAT_NAMES, &arrival, state, &mut fields)?;
        let (messages, continues) = messages(request.messages.as_deref().unwrap_or_default())?;
        let tools = Tools { list, choice: None, single_call: false };
        let logprobs = shared.logprobs;
        let asked = chat(messages, continues, tools, shared, &CHAT_NAMES);
        let ignored = fields.finish(state.config.strict)?;
        Ok(Self { asked, model, logprobs, ignored, adapter, arrival })
    }
}

impl Converted<Prompted> {
    /// A prompt, which becomes a message where the model has a template.
    pub(super) fn of_prompt(
        state: &AppState,
        extracted: Extracted<GenerateBody>,
    ) -> Result<Self, ApiError> {
        let Extracted { body, model, adapter, arrival, mut fields } = extracted;
        let GenerateBody { request, shared } = body;
        let reasons = state.families(false).reasoning.is_some();
        let about = (model.as_str(), reasons);
        let shared = Shared::new(&shared, about, &GENERATE_NAMES, &arrival, state, &mut fields)?;
        let logprobs = shared.logprobs;
        let asked = prompted(request, shared, state)?;
        let ignored = fields.finish(state.config.strict)?;
        Ok(Self { asked, model, logprobs, ignored, adapter, arrival })
    }
}

fn prompted(
    request: OllamaGenerateRequest,
    shared: Shared,
    state: &AppState,
) -> Result<Prompted, ApiError> {
    let OllamaGenerateRequest { prompt, system, raw, context, images: pictures, .. } = request;
    let text = prompt.unwrap_or_default();
    let system = system.filter(|system| !system.is_empty());
    let context = context.unwrap_or_default();
    let context = token_ids("context", &context, state.engine.limits().vocab_size)?;
    let raw = raw == Some(true);
    if raw && (system.is_some() || !context.is_empty()) {
        let message = "raw: such a prompt goes with neither system nor context";
        return Err(ApiError::field("raw", message));
    }
    let pictures = images(pictures.as_deref(), "images")?;
    if text.is_empty() && pictures.is_empty() {
        return Ok(Prompted::Nothing);
    }
    let plain = system.is_none() && context.is_empty() && state.chat_template(false).is_none();
    if (raw || plain) && pictures.is_empty() {
        let Shared { options, streams, .. } = shared;
        return Ok(Prompted::Raw(Box::new(Raw { text, options, streams })));
    }
    let mut said = saying(Role::User, &text);
    said.parts.splice(0..0, pictures);
    let mut messages: Vec<Message> = system.iter().map(|text| saying(Role::System, text)).collect();
    messages.push(said);
    let chat = chat(messages, false, Tools::default(), shared, &GENERATE_NAMES);
    Ok(Prompted::Chat(Box::new(chat), context))
}

fn chat(
    messages: Vec<Message>,
    continues: bool,
    tools: Tools,
    shared: Shared,
    names: &'static FieldNames,
) -> ChatRequest {
    let Shared { options, thinking: Thinking { enabled, effort }, streams, .. } = shared;
    ChatRequest {
        conversation: Conversation {
            messages,
            tools,
            template: TemplateOptions {
                source: None,
                variables: Map::new(),
                documents: None,
                effort,
                thinking: enabled,
                add_generation_prompt: !continues,
                continue_final_message: continues,
                add_special_tokens: false,
            },
            names,
        },
        reasoning: ReasoningOptions { separate: true, hidden: false, budget: None },
        options,
        streams,
    }
}
