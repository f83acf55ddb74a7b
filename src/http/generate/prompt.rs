//! A conversation to a prompt: what messages and their parts mean to a chat template, then to ids.
//!
//! Texts of a message are joined, and `developer` is `system` for templates that don't know it.
//! Rendering and tokenizing run off the async threads.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::call_ids;
use super::chat_request::{
    Audio, Conversation, Image, Message, Part, Role, TemplateOptions, ToolCall, omitted,
};
use super::field_names::FieldNames;
use super::images;
use super::options::PromptCut;
use super::prompt_encoder::PromptEncoder;
use super::sounds::{self, Heard};
use super::tools::{Telling, ToolSetup};
use super::tools_as_text;
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_TEMPLATE_BYTES;
use crate::pictures::picture::PlacedPicture;
use crate::pictures::place::{Spelling, expand, place};
use crate::pictures::processor::Processor;
use crate::pictures::wording::Prepared;
use crate::sounds::sound::PlacedSound;
use crate::text::chat_template::{ChatPrompt, ChatTemplate, TemplateError};
use crate::text::tokenizer::{Encoded, Tokenizer};

/// A prompt as text and as ids.
#[derive(Clone, Debug)]
pub(crate) struct RenderedPrompt {
    pub(crate) text: String,
    pub(crate) token_ids: Vec<u32>,
    /// Where in the text each token stands, if that was asked for and is known.
    pub(crate) offsets: Option<Vec<(usize, usize)>>,
    /// The pictures among the tokens.
    pub(crate) pictures: Vec<PlacedPicture>,
    /// The sounds among the tokens.
    pub(crate) sounds: Vec<PlacedSound>,
}

/// A conversation that a template can render.
#[derive(Debug)]
pub(crate) struct CheckedConversation {
    template: Arc<ChatTemplate>,
    prompt: ChatPrompt,
    add_special_tokens: bool,
    /// What is kept of the prompt, if not all.
    pub(super) cut: Option<PromptCut>,
    /// Whether to tell where tokens stand.
    pub(super) offsets: bool,
    /// The pictures in the order in which the template shows them.
    images: Vec<Image>,
    /// The sounds, in the same order.
    audios: Vec<Audio>,
    names: &'static FieldNames,
}

impl CheckedConversation {
    /// Checks what depends on the model and its template.
    pub(crate) fn new(
        state: &AppState,
        conversation: Conversation,
        tools: &ToolSetup,
    ) -> Result<Self, ApiError> {
        let Conversation { messages, template: options, names, .. } = conversation;
        let (messages, with_tools) = if tools.telling == Telling::Text {
            (tools_as_text::told(messages, &tools.definitions), false)
        } else {
            (messages, !tools.definitions.is_empty())
        };
        let template = template(state, options.source.as_deref(), with_tools)?;
        let has_developer = template.source().contains("developer");
        let messages = without_results(messages, state.sees(), state.hears());
        let images = images_of(state, &messages)?;
        let parts = messages.iter().flat_map(|message| sounds::in_parts(&message.parts));
        let audios = sounds::check(state, parts)?;
        let messages = messages.into_iter().map(|message| for_template(message, has_developer));
        let messages = call_ids::adapted(messages.collect(), template.source());
        let prompt = ChatPrompt {
            messages: template.arrange(messages),
            tools: with_tools.then(|| tools.definitions.clone()),
            documents: options.documents.clone(),
            add_generation_prompt: options.add_generation_prompt,
            continue_final_message: options.continue_final_message,
            kwargs: variables(&options, &state.config.chat_template_kwargs, template.source()),
            now: None,
        };
        let add_special_tokens = options.add_special_tokens;
        let (cut, offsets) = (None, false);
        Ok(Self { template, prompt, add_special_tokens, cut, offsets, images, audios, names })
    }

    /// The text of the prompt.
    fn rendered(&self) -> Result<String, TemplateError> {
        self.template.render(&self.prompt).or_else(|error| {
            // Some templates join a call's arguments to texts, as if they were one.
            let Some(messages) = arguments_as_text(&self.prompt.messages) else {
                return Err(error);
            };
            let prompt = ChatPrompt { messages, ..self.prompt.clone() };
            self.template.render(&prompt).map_err(|_| error)
        })
    }

    /// The text of a prompt with pictures or sounds. Templates that know no parts get texts, with what stands
    /// for pictures and sounds in them.
    fn rendered_with(&self, media: &Media, tokenizer: &Tokenizer) -> Result<String, TemplateError> {
        let rendered = self.rendered();
        let token = |id| tokenizer.token(id).unwrap_or_default();
        let seen = media.seen.as_ref().map(|seen| &seen.processor);
        let shown = seen.map(|processor| (processor.placeholder(token), processor.wording.around));
        let heard = media.heard.as_ref().map(|heard| heard.placeholder(tokenizer));
        let there = |text: &String| {
            let mut known = shown.iter().chain(&heard);
            known.all(|(placeholder, _)| text.contains(placeholder))
        };
        if shown.iter().chain(&heard).any(|(placeholder, _)| placeholder.is_empty())
            || rendered.as_ref().is_ok_and(there)
        {
            return rendered;
        }
        let [shown, heard] = [shown, heard].map(|one| {
            one.map(|(placeholder, [before, behind])| format!("{before}{placeholder}{behind}"))
        });
        let texts = [shown.unwrap_or_default(), heard.unwrap_or_default()];
        let messages = self.prompt.messages.iter().map(|message| as_text(message, &texts));
        let messages = messages.collect();
        self.template.render(&ChatPrompt { messages, ..self.prompt.clone() }).or(rendered)
    }

    /// Renders and tokenizes.
    pub(crate) async fn render(mut self, state: &AppState) -> Result<RenderedPrompt, ApiError> {
        let encoder = PromptEncoder::new(state, self.cut, self.names);
        let encoder = encoder.telling_offsets(self.offsets);
        let media = self.media(state).await?;
        off_thread(move || {
            let Some(media) = media else {
                let text = self.rendered().map_err(|error| self.unrendered(&error))?;
                let Encoded { ids, offsets } = encoder.encode(&text, self.add_special_tokens)?;
                let (pictures, sounds) = (Vec::new(), Vec::new());
                return Ok(RenderedPrompt { text, token_ids: ids, offsets, pictures, sounds });
            };
            let text = self.rendered_with(&media, &encoder.tokenizer);
            let text = text.map_err(|error| self.unrendered(&error))?;
            let mut expanded = text.clone();
            if let Some(seen) = &media.seen {
                let misplaced = |places| self.misplaced(places, seen.pictures.len(), "pictures");
                expanded = seen.expand(&expanded, &encoder.tokenizer).map_err(misplaced)?;
            }
            if let Some(heard) = &media.heard {
                let misplaced = |places| self.misplaced(places, heard.count(), "sounds");
                expanded = heard.expand(&expanded, &encoder.tokenizer).map_err(misplaced)?;
            }
            let Encoded { ids, .. } = encoder.encode(&expanded, self.add_special_tokens)?;
            let pictures = media.seen.as_ref().map(|seen| {
                let tokenizer = &encoder.tokenizer;
                let image_token = seen.processor.image_token_id(|text| tokenizer.token_id(text));
                let placed = image_token.and_then(|token| place(&ids, token, &seen.pictures));
                placed.ok_or_else(|| self.misplaced_tokens("pictures"))
            });
            let sounds = media
                .heard
                .as_ref()
                .map(|heard| heard.place(&ids).ok_or_else(|| self.misplaced_tokens("sounds")));
            let (pictures, sounds) = (pictures.transpose()?, sounds.transpose()?);
            let (pictures, sounds) = (pictures.unwrap_or_default(), sounds.unwrap_or_default());
            Ok(RenderedPrompt { text, token_ids: ids, offsets: None, pictures, sounds })
        })
        .await
    }

    /// Gets and prepares pictures and sounds, if there are any.
    async fn media(&mut self, state: &AppState) -> Result<Option<Media>, ApiError> {
        let (images, audios) = (std::mem::take(&mut self.images), std::mem::take(&mut self.audios));
        if images.is_empty() && audios.is_empty() {
            return Ok(None);
        }
        self.check_whole()?;
        let seen = match state.image_processor.as_ref().filter(|_| !images.is_empty()) {
            Some(processor) => {
                let pictures = images::read(state, processor, images).await?;
                Some(Seen { processor: Arc::clone(processor), pictures })
            }
            None => None,
        };
        Ok(Some(Media { seen, heard: sounds::read(state, audios).await? }))
    }

    fn unrendered(&self, error: &TemplateError) -> ApiError {
        ApiError::field(self.names.prompt, error.to_string())
    }

    /// Refuses to cut a prompt with pictures or sounds, which has a meaning only as a whole.
    fn check_whole(&self) -> Result<(), ApiError> {
        if self.cut.is_none() {
            return Ok(());
        }
        let message = "a prompt with pictures or sounds can't be truncated";
        Err(ApiError::field(self.names.prompt, message))
    }

    /// What is wrong where a template has left so many places for `count` pictures or sounds.
    fn misplaced(&self, places: usize, count: usize, kind: &str) -> ApiError {
        let message = format!(
            "the prompt has {places} places for {count} {kind}: the chat template shows no {kind}, \
             or a text holds the token that stands for one"
        );
        ApiError::field(self.names.prompt, message)
    }

    /// What is wrong where more or fewer tokens stand for pictures or sounds than those have.
    fn misplaced_tokens(&self, kind: &str) -> ApiError {
        let message = format!(
            "a text holds the token that stands for those of {kind}, or the tokenizer doesn't know it"
        );
        ApiError::field(self.names.prompt, message)
    }
}

/// The pictures and sounds of a prompt.
struct Media {
    seen: Option<Seen>,
    heard: Option<Heard>,
}

/// The pictures of a prompt.
struct Seen {
    processor: Arc<Processor>,
    pictures: Vec<Prepared>,
}

impl Seen {
    /// The text with what its pictures want in place of their placeholders. Fails with the number of
    /// places there are, if it is not that of the pictures.
    fn expand(&self, text: &str, tokenizer: &Tokenizer) -> Result<String, usize> {
        let token = |id| tokenizer.token(id).unwrap_or_default();
        let image_token = self.processor.image_token(token);
        let placeholder = self.processor.placeholder(token);
        let spelling =
            Spelling { placeholder: &placeholder, image_token: &image_token, token: &token };
        expand(text, &self.pictures, spelling)
    }
}

/// The prompt of a conversation that nothing is asked of.
pub(crate) async fn rendered(
    state: &AppState,
    conversation: Conversation,
) -> Result<RenderedPrompt, ApiError> {
    let tools = ToolSetup::new(state, &conversation)?;
    CheckedConversation::new(state, conversation, &tools)?.render(state).await
}

/// The text of a conversation of texts alone that nothing is asked of.
pub(crate) async fn text(state: &AppState, conversation: Conversation) -> Result<String, ApiError> {
    let tools = ToolSetup::new(state, &conversation)?;
    let checked = CheckedConversation::new(state, conversation, &tools)?;
    if !checked.images.is_empty() || !checked.audios.is_empty() {
        let message = "only texts are taken here, without pictures and sounds";
        return Err(ApiError::field(checked.names.prompt, message));
    }
    off_thread(move || checked.rendered().map_err(|error| checked.unrendered(&error))).await
}

/// The request's own template where those are trusted, else the model's.
fn template(
    state: &AppState,
    source: Option<&str>,
    with_tools: bool,
) -> Result<Arc<ChatTemplate>, ApiError> {
    const FIELD: &str = "chat_template";
    let Some(source) = source else {
        return state.chat_template(with_tools).cloned().ok_or_else(|| {
            let message = "the model has no chat template: give a text in place of messages";
            ApiError::Invalid { message: message.to_owned(), param: None, code: None }
        });
    };
    if !state.config.trust_request_chat_template {
        let what = "a template of the request's own, without --trust-request-chat-template,";
        return Err(ApiError::unsupported(FIELD, what));
    }
    if source.len() > MAX_TEMPLATE_BYTES {
        let length = source.len();
        let message = format!("{FIELD} has {length} bytes, at most {MAX_TEMPLATE_BYTES} fit");
        return Err(ApiError::field(FIELD, message));
    }
    let special_tokens = state.tokenizer.special_tokens().clone();
    let compiled = ChatTemplate::new(source, special_tokens);
    compiled.map(Arc::new).map_err(|error| ApiError::field(FIELD, error.to_string()))
}

/// The variables of a template: those of all requests, what fields of this one say, and its own.
fn variables(
    options: &TemplateOptions,
    of_all: &Map<String, Value>,
    source: &str,
) -> Map<String, Value> {
    let mut variables = today(source);
    variables.extend(of_all.clone());
    if let Some(effort) = &options.effort {
        variables.insert("reasoning_effort".to_owned(), json!(effort));
    }
    let without = options.effort.as_deref() == Some("none");
    if let Some(thinking) = options.thinking.or(without.then_some(false)) {
        variables.insert("enable_thinking".to_owned(), json!(thinking));
    }
    variables.extend(options.variables.clone());
    variables
}

/// The date for templates that ask for it by a variable; others call `strftime_now`.
fn today(source: &str) -> Map<String, Value> {
    let now = chrono::Local::now();
    let formats = [("date_string", "%d %b %Y"), ("datetime", "%b %d %Y %H:%M:%S %Z")];
    let asked = formats.into_iter().filter(|(name, _)| source.contains(name));
    asked.map(|(name, format)| (name.to_owned(), json!(now.format(format).to_string()))).collect()
}

/// The messages with a text in place of what the model can't see or hear in tools' results: who sends those
/// doesn't choose them.
fn without_results(mut messages: Vec<Message>, sees: bool, hears: bool) -> Vec<Message> {
    let results = messages.iter_mut().filter(|message| message.role == Role::Tool);
    for part in results.flat_map(|message| &mut message.parts) {
        let kind = match part {
            Part::Image(_) if !sees => "image",
            Part::Audio(_) if !hears => "audio",
            _ => continue,
        };
        *part = Part::Text(omitted(kind));
    }
    messages
}

/// The pictures of all messages, if the model sees any.
fn images_of(state: &AppState, messages: &[Message]) -> Result<Vec<Image>, ApiError> {
    let images = messages.iter().flat_map(|message| images::in_parts(&message.parts));
    let images: Vec<Image> = images.cloned().collect();
    if let Some(Image { path, kind, .. }) = images.first().filter(|_| !state.sees()) {
        let message = format!("{path}: parts of the type {kind:?} are not supported, only text");
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    images::check_count(state, images.len())?;
    Ok(images)
}

/// A message as templates know it: its texts joined, or its pictures, sounds and texts in a list; its
/// reasoning and its calls beside them.
fn for_template(message: Message, has_developer: bool) -> Value {
    let Message { role, parts, name, answers } = message;
    let role = if role == Role::Developer && !has_developer { Role::System } else { role };
    let mixed =
        images::in_parts(&parts).next().is_some() || sounds::in_parts(&parts).next().is_some();
    let mut texts: Vec<String> = Vec::new();
    let mut list: Vec<Value> = Vec::new();
    let mut reasoning: Map<String, Value> = Map::new();
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) if mixed => list.push(json!({"type": "text", "text": text})),
            Part::Text(text) => texts.push(text),
            Part::Image(_) => list.push(json!({"type": "image"})),
            // Some templates look for the type, others for the name.
            Part::Audio(_) => list.push(json!({"type": "audio", "audio": ""})),
            Part::Reasoning { text, keys } => {
                for key in keys.names() {
                    let before = reasoning.get(*key).and_then(Value::as_str);
                    let joined = before.map_or(text.clone(), |before| format!("{before}\n{text}"));
                    reasoning.insert((*key).to_owned(), Value::String(joined));
                }
            }
            Part::ToolCall(call) => calls.push(call_for_template(call)),
        }
    }
    let mut converted = Map::new();
    converted.insert("role".to_owned(), json!(role.name()));
    let content = if mixed { Value::Array(list) } else { Value::String(texts.join("\n")) };
    converted.insert("content".to_owned(), content);
    let named = [("name", name), ("tool_call_id", answers)];
    let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
    converted.extend(named);
    converted.extend(reasoning);
    if !calls.is_empty() {
        converted.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(converted)
}

/// A message whose parts are one text, in which `shown` stands for a picture and `heard` for a sound.
fn as_text(message: &Value, [shown, heard]: &[String; 2]) -> Value {
    let Some(parts) = message["content"].as_array() else { return message.clone() };
    let medium = |part: &Value| if part["type"] == "audio" { heard } else { shown };
    let text = |part: &Value| part["text"].as_str().unwrap_or_else(|| medium(part)).to_owned();
    let mut message = message.clone();
    message["content"] = Value::String(parts.iter().map(text).collect());
    message
}

/// The messages with the arguments of calls as JSON in texts; `None` if there are no such objects.
fn arguments_as_text(messages: &[Value]) -> Option<Vec<Value>> {
    let mut messages = messages.to_vec();
    let mut changed = false;
    let lists = messages.iter_mut().filter_map(|message| message.get_mut("tool_calls"));
    for call in lists.filter_map(Value::as_array_mut).flatten() {
        let arguments = &mut call["function"]["arguments"];
        if arguments.is_object() {
            *arguments = Value::String(arguments.to_string());
            changed = true;
        }
    }
    changed.then_some(messages)
}

fn call_for_template(call: ToolCall) -> Value {
    let ToolCall { id, name, arguments } = call;
    let mut converted = Map::new();
    if let Some(id) = id {
        converted.insert("id".to_owned(), Value::String(id));
    }
    converted.insert("type".to_owned(), json!("function"));
    converted.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
    Value::Object(converted)
}
