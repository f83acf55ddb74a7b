//! The `input` of a request to items: which kinds there are, and what each has to have.
//!
//! Errors name the place: `input[2].content[0].type`. Knows nothing of what the items mean to a
//! model.

use serde_json::Value;

use super::references::References;
use crate::http::answer::carried_text;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::omitted;
use crate::http::generate::images::source;
use crate::http::openai::envelope::{item_id, tool_call_id};
use crate::http::request::fields::{FieldReader, required, text_member};
use crate::http::state::response_store::History;
use crate::http::wire::response_input::{
    CompactionInput, CustomToolCallInput, FunctionCallInput, FunctionOutputInput, ImagePart,
    MessageInput, ReasoningInput, ReferenceInput, RefusalPart, TextPart,
};
use crate::http::wire::responses::{
    CompactionItem, CustomToolCallItem, FunctionCallItem, FunctionCallOutputItem, FunctionOutput,
    Item, ItemStatus, MessageItem, Part, ReasoningItem, Role,
};

const KINDS: &str = "message, function_call, function_call_output, custom_tool_call, \
                     custom_tool_call_output, reasoning, compaction, item_reference";

/// Parts of a tool's output that a text stands for.
const OMITTED: [&str; 2] = ["input_image", "input_file"];

/// Reads the items of one request.
pub(crate) struct ItemReader<'a> {
    pub(crate) references: &'a References,
    /// Whether the model sees pictures.
    pub(crate) sees: bool,
    pub(crate) fields: &'a mut FieldReader,
}

impl ItemReader<'_> {
    /// A string is one message of the user.
    pub(crate) fn read(&mut self, input: &Value) -> Result<Vec<Item>, ApiError> {
        match input {
            Value::String(text) => {
                let content = vec![Part::InputText { text: text.clone() }];
                let (id, status) = (item_id("msg"), ItemStatus::Completed);
                Ok(vec![Item::Message(MessageItem { id, status, role: Role::User, content })])
            }
            Value::Array(items) => self.list(items, "input"),
            _ => Err(ApiError::field("input", "input must be a string or a list of items")),
        }
    }

    /// The items of a list that stands at `path`.
    pub(crate) fn list(&mut self, items: &[Value], path: &str) -> Result<Vec<Item>, ApiError> {
        let items = items.iter().enumerate();
        items.map(|(at, item)| self.item(item, &format!("{path}[{at}]"))).collect()
    }

    fn item(&mut self, item: &Value, path: &str) -> Result<Item, ApiError> {
        match kind(item, path)? {
            "message" => self.message(item, path).map(Item::Message),
            "function_call" => self.function_call(item, path).map(Item::FunctionCall),
            "function_call_output" => self.output(item, path).map(Item::FunctionCallOutput),
            "custom_tool_call" => self.custom_tool_call(item, path).map(Item::CustomToolCall),
            "custom_tool_call_output" => self.output(item, path).map(Item::CustomToolCallOutput),
            "reasoning" => self.reasoning(item, path).map(Item::Reasoning),
            "compaction" => self.compaction(item, path).map(Item::Compaction),
            "item_reference" => self.reference(item, path),
            kind => {
                let what = format!("items of the type {kind:?} are not supported, only {KINDS}");
                Err(invalid(path, "type", &what))
            }
        }
    }

    fn message(&mut self, item: &Value, path: &str) -> Result<MessageItem, ApiError> {
        let MessageInput { id, status, role, content } = self.fields.variant(item, path)?;
        let role = match required(role.as_deref(), path, "role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            "developer" => Role::Developer,
            role => {
                let what = "must be one of user, assistant, system, developer";
                return Err(invalid(path, "role", &format!("{what}, got {role:?}")));
            }
        };
        let part = |text: String| match role {
            Role::Assistant => Part::output(text, Vec::new()),
            _ => Part::InputText { text },
        };
        let content = match content {
            Some(Value::String(text)) => vec![part(text)],
            Some(Value::Array(parts)) => {
                let path = format!("{path}.content");
                let kinds = ["input_text", "output_text"];
                self.parts(&parts, &path, &kinds, self.sees && role == Role::User, part)?
            }
            _ => return Err(invalid(path, "content", "must be a string or a list of parts")),
        };
        let status = item_status(status.as_deref(), path)?;
        Ok(MessageItem { id: given_or_new(id, "msg"), status, role, content })
    }

    fn function_call(&mut self, item: &Value, path: &str) -> Result<FunctionCallItem, ApiError> {
        let FunctionCallInput { id, status, call_id, namespace, name, arguments } =
            self.fields.variant(item, path)?;
        Ok(FunctionCallItem {
            id: given_or_new(id, "fc"),
            call_id: call_id.unwrap_or_else(tool_call_id),
            namespace,
            name: required(name, path, "name")?,
            arguments: required(arguments, path, "arguments")?,
            status: item_status(status.as_deref(), path)?,
        })
    }

    fn custom_tool_call(
        &mut self,
        item: &Value,
        path: &str,
    ) -> Result<CustomToolCallItem, ApiError> {
        let CustomToolCallInput { id, status, call_id, name, input } =
            self.fields.variant(item, path)?;
        Ok(CustomToolCallItem {
            id: given_or_new(id, "ctc"),
            call_id: call_id.unwrap_or_else(tool_call_id),
            name: required(name, path, "name")?,
            input: required(input, path, "input")?,
            status: item_status(status.as_deref(), path)?,
        })
    }

    /// What a tool gave.
    fn output(&mut self, item: &Value, path: &str) -> Result<FunctionCallOutputItem, ApiError> {
        let FunctionOutputInput { id, status, call_id, output } =
            self.fields.variant(item, path)?;
        let output = match output {
            Some(Value::String(text)) => FunctionOutput::Text(text),
            Some(Value::Array(parts)) => {
                let path = format!("{path}.output");
                let kinds = ["input_text", "input_image", "input_file"];
                let part = |text| Part::InputText { text };
                FunctionOutput::Parts(self.parts(&parts, &path, &kinds, self.sees, part)?)
            }
            _ => return Err(invalid(path, "output", "must be a string or a list of parts")),
        };
        Ok(FunctionCallOutputItem {
            id: given_or_new(id, "fco"),
            call_id: required(call_id, path, "call_id")?,
            output,
            status: item_status(status.as_deref(), path)?,
        })
    }

    fn reasoning(&mut self, item: &Value, path: &str) -> Result<ReasoningItem, ApiError> {
        let ReasoningInput { id, status, summary, content, encrypted_content } =
            self.fields.variant(item, path)?;
        let summary = summary.unwrap_or_default();
        let summary = self.texts(&summary, &format!("{path}.summary"), &["summary_text"])?;
        let content = content.unwrap_or_default();
        let kinds = ["reasoning_text", "text"];
        let mut content = self.texts(&content, &format!("{path}.content"), &kinds)?;
        let opaque = encrypted_content.filter(|opaque| !opaque.is_empty());
        let carried = opaque.as_deref().and_then(carried_text::carried);
        if opaque.is_some() && carried.is_none() {
            // Another server's; nobody else can read it.
            self.fields.ignore(format!("{path}.encrypted_content"));
        }
        if content.is_empty() {
            content.extend(carried.filter(|text| !text.is_empty()));
        }
        Ok(ReasoningItem {
            id: given_or_new(id, "rs"),
            status: item_status(status.as_deref(), path)?,
            summary: summary.into_iter().map(|text| Part::SummaryText { text }).collect(),
            content: content.into_iter().map(|text| Part::ReasoningText { text }).collect(),
            encrypted_content: None,
        })
    }

    /// A summary in place of what went before, without which the conversation makes no sense.
    fn compaction(&mut self, item: &Value, path: &str) -> Result<CompactionItem, ApiError> {
        let CompactionInput { id, encrypted_content } = self.fields.variant(item, path)?;
        let encrypted_content = required(encrypted_content, path, "encrypted_content")?;
        if carried_text::carried(&encrypted_content).is_none() {
            let what = "is not a summary that this program has made, and nobody else can read it";
            return Err(invalid(path, "encrypted_content", what));
        }
        Ok(CompactionItem { id: given_or_new(id, "cmp"), encrypted_content })
    }

    fn reference(&mut self, item: &Value, path: &str) -> Result<Item, ApiError> {
        let ReferenceInput { id } = self.fields.variant(item, path)?;
        let id = required(id, path, "id")?;
        self.references.item(&id).cloned().ok_or_else(|| ApiError::Invalid {
            message: format!("{path}.id: no item {id:?} is stored"),
            param: Some(format!("{path}.id")),
            code: Some("item_not_found"),
        })
    }

    /// Parts of the given kinds, of whose texts `part` makes parts, and pictures if they are `seen`.
    fn parts(
        &mut self,
        parts: &[Value],
        path: &str,
        kinds: &[&str],
        seen: bool,
        part: impl Fn(String) -> Part,
    ) -> Result<Vec<Part>, ApiError> {
        let mut read = Vec::with_capacity(parts.len());
        for (at, value) in parts.iter().enumerate() {
            if seen && text_member(value, "type") == Some("input_image") {
                read.push(self.image(value, &format!("{path}[{at}]"))?);
            } else {
                let one = std::slice::from_ref(value);
                read.extend(self.texts_from(one, path, at, kinds)?.into_iter().map(&part));
            }
        }
        Ok(read)
    }

    fn image(&mut self, value: &Value, path: &str) -> Result<Part, ApiError> {
        let ImagePart { image_url, detail, file_id } = self.fields.variant(value, path)?;
        source::detail(detail.as_deref(), &format!("{path}.detail"))?;
        let image_url = match (image_url, &file_id) {
            (None, Some(id)) => {
                let picture = self.references.picture(id).cloned();
                picture
                    .ok_or_else(|| invalid(path, "file_id", &format!("there is no file {id:?}")))?
            }
            (image_url, _) => required(image_url, path, "image_url")?,
        };
        Ok(Part::InputImage { image_url, detail, file_id })
    }

    /// The texts of parts of the given kinds.
    fn texts(
        &mut self,
        parts: &[Value],
        path: &str,
        kinds: &[&str],
    ) -> Result<Vec<String>, ApiError> {
        self.texts_from(parts, path, 0, kinds)
    }

    /// The same of parts that are in their list from index `first` on.
    fn texts_from(
        &mut self,
        parts: &[Value],
        path: &str,
        first: usize,
        kinds: &[&str],
    ) -> Result<Vec<String>, ApiError> {
        let mut texts = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let path = format!("{path}[{}]", first + at);
            if !part.is_object() {
                let message = format!("{path} must be an object with a type");
                return Err(ApiError::field(path, message));
            }
            let kind = required(text_member(part, "type"), &path, "type")?;
            let text = if kind == "refusal" && kinds.contains(&"output_text") {
                let RefusalPart { refusal } = self.fields.variant(part, &path)?;
                required(refusal, &path, "refusal")?
            } else if kinds.contains(&kind) && OMITTED.contains(&kind) {
                self.fields.ignore(&path);
                omitted(kind.trim_start_matches("input_"))
            } else if kinds.contains(&kind) {
                let TextPart { text } = self.fields.variant(part, &path)?;
                required(text, &path, "text")?
            } else {
                let what = format!("parts of the type {kind:?} are not supported here, only");
                return Err(invalid(&path, "type", &format!("{what} {}", kinds.join(", "))));
            };
            texts.push(text);
        }
        Ok(texts)
    }
}

/// Checks that every output in `items` answers a call before it.
pub(crate) fn check_outputs(history: &History, items: &[Item]) -> Result<(), ApiError> {
    let call_id = |item: &Item| match item {
        Item::FunctionCall(call) => Some(call.call_id.clone()),
        Item::CustomToolCall(call) => Some(call.call_id.clone()),
        _ => None,
    };
    let mut calls: Vec<String> = history.items().filter_map(call_id).collect();
    for (at, item) in items.iter().enumerate() {
        calls.extend(call_id(item));
        if let Item::FunctionCallOutput(output) | Item::CustomToolCallOutput(output) = item
            && !calls.contains(&output.call_id)
        {
            let param = format!("input[{at}].call_id");
            let message = format!("{param}: there is no call {:?} before it", output.call_id);
            return Err(ApiError::field(param, message));
        }
    }
    Ok(())
}

/// The type of an item. Messages and references may leave it out.
fn kind<'a>(item: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    let Some(object) = item.as_object() else {
        let message = format!("{path} must be an object with a type");
        return Err(ApiError::field(path, message));
    };
    match object.get("type") {
        Some(Value::String(kind)) => Ok(kind),
        None | Some(Value::Null) if object.contains_key("role") => Ok("message"),
        None | Some(Value::Null) if object.contains_key("id") => Ok("item_reference"),
        None | Some(Value::Null) => Err(invalid(path, "type", "is required")),
        Some(_) => Err(invalid(path, "type", "must be a string")),
    }
}

fn invalid(path: &str, name: &str, what: &str) -> ApiError {
    let param = format!("{path}.{name}");
    ApiError::field(param.clone(), format!("{param}: {what}"))
}

fn given_or_new(id: Option<String>, prefix: &str) -> String {
    id.unwrap_or_else(|| item_id(prefix))
}

fn item_status(status: Option<&str>, path: &str) -> Result<ItemStatus, ApiError> {
    match status {
        None | Some("completed") => Ok(ItemStatus::Completed),
        Some("in_progress") => Ok(ItemStatus::InProgress),
        Some("incomplete") => Ok(ItemStatus::Incomplete),
        Some(status) => {
            let what = "must be one of in_progress, completed, incomplete";
            Err(invalid(path, "status", &format!("{what}, got {status:?}")))
        }
    }
}
