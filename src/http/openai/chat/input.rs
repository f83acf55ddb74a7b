//! A chat completion's request to the one that all protocols share.

use serde_json::{Value, json};

use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    Audio, ChatRequest, Conversation, Image, Message, Part, ReasoningKeys, ReasoningOptions, Role,
    TemplateOptions, ToolCall, Tools, parsed_arguments,
};
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::images::source::{self, ImageSource};
use crate::http::generate::sounds::source::AudioSource;
use crate::http::openai::envelope::UsageReporting;
use crate::http::openai::sampling::{
    self, SamplingBody, Spelled, effort, max_tokens, reasoning_budget, top_logprobs,
};
use crate::http::openai::stream_options::streaming;
use crate::http::openai::synonyms::rename_in_chat;
use crate::http::openai::{format, tools};
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, FieldReader, Ignored, required, text_member};
use crate::http::request::rules::{COMMON, Rules, Treatment, is_bool, is_false};
use crate::http::state::AppState;
use crate::http::wire::bounds::AUDIO_FORMATS;
use crate::http::wire::chat::{
    AudioPart, AudioUrlPart, ChatCompletionRequest, ChatMessage, ImagePart, MessageToolCall,
    TextPart,
};

/// What chat completions call the fields of all protocols.
pub(crate) const NAMES: FieldNames = FieldNames {
    prompt: "messages",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking_token_budget",
};

/// What clients copy from answers into messages, or send to other servers.
pub(crate) const CHAT_RULES: Rules = &[
    ("*.cache_control", Treatment::Ignored),
    // The last message before the answer, which only completions repeat.
    ("echo", Treatment::Unsupported(is_false)),
    ("messages[].annotations", Treatment::Ignored),
    ("messages[].refusal", Treatment::Ignored),
    ("messages[].tool_calls[].index", Treatment::Ignored),
    ("response_format.json_schema.description", Treatment::Ignored),
    // Schemas are enforced whatever it says.
    ("response_format.json_schema.strict", Treatment::Unsupported(is_bool)),
    // Padding against traffic analysis; the answer is the same.
    ("stream_options.include_obfuscation", Treatment::Ignored),
];

/// The body of `POST /v1/chat/completions`.
#[derive(Debug)]
pub(crate) struct ChatBody {
    request: ChatCompletionRequest,
    sampling: SamplingBody,
}

impl RequestBody for ChatBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        let mut request = body.take()?;
        let sampling = SamplingBody::read(body)?;
        rename_in_chat(&sampling.synonyms, &mut request)?;
        Ok(Self { request, sampling })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// A request in the words of all protocols, and what its answer is written with.
pub(super) struct Converted {
    pub(super) chat: ChatRequest,
    pub(super) model: String,
    pub(super) logprobs: bool,
    pub(super) streaming: Option<UsageReporting>,
    /// Whether to tell where tokens stand.
    pub(super) offsets: bool,
    pub(super) ignored: Ignored,
    pub(super) adapter: Option<Adapter>,
    pub(super) arrival: Arrival,
}

impl Converted {
    pub(super) fn new(state: &AppState, request: Extracted<ChatBody>) -> Result<Self, ApiError> {
        let Extracted { body, model, adapter, arrival, mut fields } = request;
        let ChatBody { request, sampling } = body;
        let streaming = {
            let options = request.stream_options.as_ref();
            streaming(request.stream, options, request.timings_per_token)?
        };
        let demand = format::response_format(sampling.own.response_format.as_ref(), &mut fields)?;
        let demand = format::demand(demand, "response_format", &sampling, &mut fields)?;
        let spelled = Spelled {
            names: &NAMES,
            demand,
            max_tokens: max_tokens(&sampling, None)?,
            best_of: None,
            logprobs: logprobs(&request, state)?,
            echoed_logprobs: None,
        };
        let chat = ChatRequest {
            options: sampling::options(&sampling, spelled, &arrival, state)?,
            reasoning: ReasoningOptions {
                separate: request.separate_reasoning != Some(false),
                hidden: request.include_reasoning == Some(false),
                budget: reasoning_budget(&sampling.own)?,
            },
            streams: streaming.is_some(),
            conversation: conversation(&request, &mut fields)?,
        };
        if request.store != Some(true) && request.metadata.is_some() {
            fields.ignore("metadata");
        }
        let ignored = fields.finish(state.config.strict)?;
        let logprobs = request.logprobs.unwrap_or(false);
        let offsets = request.return_token_offsets.unwrap_or(false);
        Ok(Self { chat, model, logprobs, streaming, offsets, ignored, adapter, arrival })
    }
}

/// What shapes the prompt.
pub(crate) fn conversation(
    request: &ChatCompletionRequest,
    fields: &mut FieldReader,
) -> Result<Conversation, ApiError> {
    let messages = request.messages.as_deref().unwrap_or_default();
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages must have at least one message"));
    }
    let numbered = messages.iter().enumerate();
    let messages: Result<Vec<Message>, ApiError> =
        numbered.map(|(at, said)| message(said, &format!("messages[{at}]"), fields)).collect();
    let list = request.tools.as_ref().map(|list| tools::tools(list, fields)).transpose()?;
    // An empty list is no tools, among which there is nothing to choose.
    let chooses =
        |choice: &&Value| **choice != "auto" || list.as_ref().is_none_or(|l| !l.is_empty());
    let choice = request.tool_choice.as_ref().filter(chooses);
    Ok(Conversation {
        messages: messages?,
        tools: Tools {
            choice: tools::tool_choice(choice, fields)?,
            single_call: request.parallel_tool_calls == Some(false),
            list: list.unwrap_or_default(),
        },
        template: template_options(request)?,
        names: &NAMES,
    })
}

fn template_options(request: &ChatCompletionRequest) -> Result<TemplateOptions, ApiError> {
    let continues = request.continue_final_message.unwrap_or(false);
    if continues && request.add_generation_prompt == Some(true) {
        let message = "continue_final_message and add_generation_prompt can't both be true";
        return Err(ApiError::field("continue_final_message", message));
    }
    Ok(TemplateOptions {
        source: request.chat_template.clone(),
        variables: request.chat_template_kwargs.clone().unwrap_or_default(),
        documents: request.documents.clone(),
        effort: effort("reasoning_effort", request.reasoning_effort.as_ref())?,
        thinking: request.enable_thinking,
        add_generation_prompt: !continues && request.add_generation_prompt.unwrap_or(true),
        continue_final_message: continues,
        add_special_tokens: request.add_special_tokens.unwrap_or(false),
    })
}

fn logprobs(request: &ChatCompletionRequest, state: &AppState) -> Result<Option<u32>, ApiError> {
    let top = top_logprobs("top_logprobs", request.top_logprobs, state)?;
    match (request.logprobs.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true"))
        }
    }
}

fn message(
    message: &ChatMessage,
    path: &str,
    fields: &mut FieldReader,
) -> Result<Message, ApiError> {
    // What a role means is for the model's template to say.
    let name = message.role.as_deref().filter(|name| !name.is_empty());
    let role = Role::named(required(name, path, "role")?);
    let reasoning = [
        (&message.reasoning_content, ReasoningKeys::ReasoningContent),
        (&message.reasoning, ReasoningKeys::Reasoning),
    ];
    let reasoning = reasoning.into_iter().filter_map(|(text, keys)| {
        text.as_ref().map(|text| Part::Reasoning { text: text.clone(), keys })
    });
    let mut parts: Vec<Part> = reasoning.collect();
    parts.extend(content(message, &role, &format!("{path}.content"), fields)?);
    let calls = message.tool_calls.as_deref().unwrap_or_default();
    if !calls.is_empty() && role != Role::Assistant {
        let message = format!("{path}.tool_calls: only assistant messages have tool calls");
        return Err(ApiError::field(format!("{path}.tool_calls"), message));
    }
    for (at, call) in calls.iter().enumerate() {
        parts.push(Part::ToolCall(tool_call(call, &format!("{path}.tool_calls[{at}]"))?));
    }
    Ok(Message { role, parts, name: message.name.clone(), answers: message.tool_call_id.clone() })
}

fn content(
    message: &ChatMessage,
    role: &Role,
    path: &str,
    fields: &mut FieldReader,
) -> Result<Vec<Part>, ApiError> {
    match &message.content {
        Some(Value::String(text)) => Ok(vec![Part::Text(text.clone())]),
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate();
            parts.map(|(at, value)| part(value, &format!("{path}[{at}]"), fields)).collect()
        }
        Some(_) => {
            let message = format!("{path} must be a string or a list of parts");
            Err(ApiError::field(path, message))
        }
        None if *role == Role::Assistant => Ok(Vec::new()),
        None => {
            let role = role.name();
            let message = format!("{path} is required in a message of the role {role:?}");
            Err(ApiError::field(path, message))
        }
    }
}

fn part(value: &Value, path: &str, fields: &mut FieldReader) -> Result<Part, ApiError> {
    match text_member(value, "type") {
        Some("text") => {
            let TextPart { text } = fields.variant(value, path)?;
            required(text, path, "text").map(Part::Text)
        }
        Some("image_url") => {
            let ImagePart { image_url } = fields.variant(value, path)?;
            let (url, detail) = image_url.map_or((None, None), |image| (image.url, image.detail));
            let url = required(url, path, "image_url.url")?;
            Ok(Part::Image(Image {
                source: ImageSource::Url(url),
                detail: source::detail(detail.as_deref(), &format!("{path}.image_url.detail"))?,
                path: path.to_owned(),
                kind: "image_url",
            }))
        }
        Some("input_audio") => {
            let AudioPart { input_audio } = fields.variant(value, path)?;
            let (data, format) =
                input_audio.map_or((None, None), |audio| (audio.data, audio.format));
            let format = required(format, path, "input_audio.format")?;
            if !AUDIO_FORMATS.contains(&format.as_str()) {
                let (param, known) =
                    (format!("{path}.input_audio.format"), AUDIO_FORMATS.join(", "));
                let message = format!("{param} must be one of {known}, got {format:?}");
                return Err(ApiError::field(param, message));
            }
            let source = AudioSource::Base64(required(data, path, "input_audio.data")?);
            Ok(Part::Audio(Audio { path: path.to_owned(), kind: "input_audio", source }))
        }
        Some("audio_url") => {
            let AudioUrlPart { audio_url } = fields.variant(value, path)?;
            let url = required(audio_url.and_then(|audio| audio.url), path, "audio_url.url")?;
            let source = AudioSource::Url(url);
            Ok(Part::Audio(Audio { path: path.to_owned(), kind: "audio_url", source }))
        }
        Some(kind) => {
            let param = format!("{path}.type");
            let message =
                format!("{path}: parts of the type {kind:?} are not supported, only text");
            Err(ApiError::field(param, message))
        }
        None => {
            let message = format!("{path} must be an object with a type");
            Err(ApiError::field(path, message))
        }
    }
}

/// With the arguments as an object, which is what templates expect.
fn tool_call(call: &MessageToolCall, path: &str) -> Result<ToolCall, ApiError> {
    if let Some(kind) = call.kind.as_deref().filter(|kind| *kind != "function") {
        let message = format!("{path}.type must be \"function\", got {kind:?}");
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    let path = format!("{path}.function");
    let function = call.function.as_ref();
    let name = function.and_then(|function| function.name.clone());
    let name = required(name, &path, "name")?;
    let arguments = match function.and_then(|function| function.arguments.clone()) {
        None => json!({}),
        Some(Value::String(text)) => parsed_arguments(text),
        Some(object @ Value::Object(_)) => object,
        Some(_) => {
            let param = format!("{path}.arguments");
            let message = format!("{param} must be a string of JSON");
            return Err(ApiError::field(param, message));
        }
    };
    Ok(ToolCall { id: call.id.clone(), name, arguments })
}
