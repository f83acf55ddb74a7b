//! The `input` of a request to items: which kinds there are, and what each has to have.
//!
//! Errors name the place: `input[2].content[0].type`. Knows nothing of what the items mean to a
//! model.

use std::time::Instant;

use serde_json::{Map, Value};

use super::item_id;
use super::store::{History, ResponseStore};
use crate::http::answer::tool_call_id;
use crate::http::error::ApiError;
use crate::http::types::fields::IgnoredFields;
use crate::http::types::responses::{
    FunctionCallItem, FunctionCallOutputItem, FunctionOutput, Item, ItemStatus, MessageItem, Part,
    ReasoningItem, Role,
};

const KINDS: &str = "message, function_call, function_call_output, reasoning, item_reference";

/// Reads the items of one request.
pub(super) struct InputReader<'a> {
    /// Where references lead.
    pub(super) store: &'a ResponseStore,
    pub(super) now: Instant,
    pub(super) ignored: &'a mut IgnoredFields,
}

impl InputReader<'_> {
    /// A string is one message of the user.
    pub(super) fn read(&mut self, input: &Value) -> Result<Vec<Item>, ApiError> {
        match input {
            Value::String(text) => {
                let content = vec![Part::InputText { text: text.clone() }];
                let (id, status) = (item_id("msg"), ItemStatus::Completed);
                Ok(vec![Item::Message(MessageItem { id, status, role: Role::User, content })])
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.map(|(at, item)| self.item(item, format!("input[{at}]"))).collect()
            }
            _ => Err(ApiError::field("input", "input must be a string or a list of items")),
        }
    }

    fn item(&mut self, item: &Value, path: String) -> Result<Item, ApiError> {
        let Some(map) = item.as_object() else {
            let message = format!("{path} must be an object with a type");
            return Err(ApiError::field(path, message));
        };
        let fields = Fields { map, path };
        match fields.kind()? {
            "message" => self.message(&fields).map(Item::Message),
            "function_call" => self.function_call(&fields).map(Item::FunctionCall),
            "function_call_output" => {
                self.function_call_output(&fields).map(Item::FunctionCallOutput)
            }
            "reasoning" => self.reasoning(&fields).map(Item::Reasoning),
            "item_reference" => self.reference(&fields),
            kind => {
                let what = format!("items of the type {kind:?} are not supported, only {KINDS}");
                Err(fields.invalid("type", &what))
            }
        }
    }

    fn message(&mut self, fields: &Fields<'_>) -> Result<MessageItem, ApiError> {
        let role = match fields.text("role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            "developer" => Role::Developer,
            role => {
                let what = "must be one of user, assistant, system, developer";
                return Err(fields.invalid("role", &format!("{what}, got {role:?}")));
            }
        };
        let part = |text: String| match role {
            Role::Assistant => Part::output(text, Vec::new()),
            _ => Part::InputText { text },
        };
        let kinds = ["input_text", "output_text"];
        let content = match fields.map.get("content") {
            Some(Value::String(text)) => vec![part(text.clone())],
            Some(Value::Array(parts)) => {
                let texts = self.texts(parts, &fields.at("content"), &kinds)?;
                texts.into_iter().map(part).collect()
            }
            _ => return Err(fields.invalid("content", "must be a string or a list of parts")),
        };
        self.note_unused(fields, &["role", "content", "status"], &["phase"]);
        let (id, status) = (fields.id("msg")?, fields.status()?);
        Ok(MessageItem { id, status, role, content })
    }

    fn function_call(&mut self, fields: &Fields<'_>) -> Result<FunctionCallItem, ApiError> {
        let known = ["call_id", "name", "arguments", "status"];
        self.note_unused(fields, &known, &["namespace", "caller"]);
        let call_id = fields.optional_text("call_id")?.map_or_else(tool_call_id, str::to_owned);
        Ok(FunctionCallItem {
            id: fields.id("fc")?,
            call_id,
            name: fields.text("name")?.to_owned(),
            arguments: fields.text("arguments")?.to_owned(),
            status: fields.status()?,
        })
    }

    fn function_call_output(
        &mut self,
        fields: &Fields<'_>,
    ) -> Result<FunctionCallOutputItem, ApiError> {
        let output = match fields.map.get("output") {
            Some(Value::String(text)) => FunctionOutput::Text(text.clone()),
            Some(Value::Array(parts)) => {
                let texts = self.texts(parts, &fields.at("output"), &["input_text"])?;
                let parts = texts.into_iter().map(|text| Part::InputText { text });
                FunctionOutput::Parts(parts.collect())
            }
            _ => return Err(fields.invalid("output", "must be a string or a list of parts")),
        };
        let unused = ["name", "namespace", "caller", "created_by"];
        self.note_unused(fields, &["call_id", "output", "status"], &unused);
        Ok(FunctionCallOutputItem {
            id: fields.id("fco")?,
            call_id: fields.text("call_id")?.to_owned(),
            output,
            status: fields.status()?,
        })
    }

    fn reasoning(&mut self, fields: &Fields<'_>) -> Result<ReasoningItem, ApiError> {
        let mut parts = |name: &str, kinds: &[&str]| match fields.map.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(parts)) => self.texts(parts, &fields.at(name), kinds),
            Some(_) => Err(fields.invalid(name, "must be a list of parts")),
        };
        let summary = parts("summary", &["summary_text"])?;
        let content = parts("content", &["reasoning_text", "text"])?;
        self.note_unused(fields, &["summary", "content", "status"], &["encrypted_content"]);
        Ok(ReasoningItem {
            id: fields.id("rs")?,
            status: fields.status()?,
            summary: summary.into_iter().map(|text| Part::SummaryText { text }).collect(),
            content: content.into_iter().map(|text| Part::ReasoningText { text }).collect(),
        })
    }

    fn reference(&mut self, fields: &Fields<'_>) -> Result<Item, ApiError> {
        self.note_unused(fields, &[], &[]);
        let id = fields.text("id")?;
        self.store.item(self.now, id).ok_or_else(|| ApiError::Invalid {
            message: format!("{}: no item {id:?} is kept", fields.at("id")),
            param: Some(fields.at("id")),
            code: Some("item_not_found"),
        })
    }

    /// The texts of parts of the given kinds.
    fn texts(
        &mut self,
        parts: &[Value],
        path: &str,
        kinds: &[&str],
    ) -> Result<Vec<String>, ApiError> {
        let mut texts = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let path = format!("{path}[{at}]");
            let Some(map) = part.as_object() else {
                let message = format!("{path} must be an object with a type");
                return Err(ApiError::field(path, message));
            };
            let fields = Fields { map, path };
            let kind = fields.text("type")?;
            let text = match kind {
                "refusal" if kinds.contains(&"output_text") => fields.text("refusal")?,
                _ if kinds.contains(&kind) => fields.text("text")?,
                _ => {
                    let what = format!("parts of the type {kind:?} are not supported here, only");
                    return Err(fields.invalid("type", &format!("{what} {}", kinds.join(", "))));
                }
            };
            self.note_unused(&fields, &["text", "refusal"], &["annotations", "logprobs"]);
            texts.push(text.to_owned());
        }
        Ok(texts)
    }

    /// Names the fields with a value that neither say what the item is nor are among `known`;
    /// `idle` are those that the API has.
    fn note_unused(&mut self, fields: &Fields<'_>, known: &[&str], idle: &[&str]) {
        for (name, value) in fields.map {
            let name = name.as_str();
            let says_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            if says_nothing || ["type", "id"].contains(&name) || known.contains(&name) {
                continue;
            }
            if idle.contains(&name) {
                self.ignored.add(fields.at(name));
            } else {
                self.ignored.add_unknown(fields.at(name));
            }
        }
    }
}

/// Checks that every output in `items` answers a call before it.
pub(super) fn check_outputs(history: &History, items: &[Item]) -> Result<(), ApiError> {
    let call_id = |item: &Item| match item {
        Item::FunctionCall(call) => Some(call.call_id.clone()),
        _ => None,
    };
    let mut calls: Vec<String> = history.items().filter_map(call_id).collect();
    for (at, item) in items.iter().enumerate() {
        calls.extend(call_id(item));
        if let Item::FunctionCallOutput(output) = item
            && !calls.contains(&output.call_id)
        {
            let param = format!("input[{at}].call_id");
            let message =
                format!("{param}: there is no function call {:?} before it", output.call_id);
            return Err(ApiError::field(param, message));
        }
    }
    Ok(())
}

/// An object of the request, and where it stands.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    fn invalid(&self, name: &str, what: &str) -> ApiError {
        let param = self.at(name);
        ApiError::field(param.clone(), format!("{param}: {what}"))
    }

    /// The type of an item. Messages and references may leave it out.
    fn kind(&self) -> Result<&'a str, ApiError> {
        match self.optional_text("type")? {
            Some(kind) => Ok(kind),
            None if self.map.contains_key("role") => Ok("message"),
            None if self.map.contains_key("id") => Ok("item_reference"),
            None => Err(self.invalid("type", "is required")),
        }
    }

    fn text(&self, name: &str) -> Result<&'a str, ApiError> {
        self.optional_text(name)?.ok_or_else(|| self.invalid(name, "is required"))
    }

    fn optional_text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.invalid(name, "must be a string")),
        }
    }

    /// The given id, or a new one.
    fn id(&self, prefix: &str) -> Result<String, ApiError> {
        Ok(self.optional_text("id")?.map_or_else(|| item_id(prefix), str::to_owned))
    }

    fn status(&self) -> Result<ItemStatus, ApiError> {
        match self.optional_text("status")? {
            None | Some("completed") => Ok(ItemStatus::Completed),
            Some("in_progress") => Ok(ItemStatus::InProgress),
            Some("incomplete") => Ok(ItemStatus::Incomplete),
            Some(status) => {
                let what = "must be one of in_progress, completed, incomplete";
                Err(self.invalid("status", &format!("{what}, got {status:?}")))
            }
        }
    }
}
