//! Requests to the server, and its answers taken apart. Judges only what every answer must have.

use serde_json::{Value, json};

use super::fault::{Fault, demand};
use crate::cli::client::ApiClient;
use crate::cli::sse::{SseEvent, SseParser};

/// Longest part of an answer that is shown.
const SHOWN: usize = 240;

/// A server, and the model that is asked.
pub(super) struct Probe {
    client: ApiClient,
    pub(super) model: String,
    /// Tokens of its context, if the server tells.
    pub(super) context: Option<u64>,
}

/// An answer, whatever it says.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) text: String,
}

impl Answer {
    /// Its JSON; `Null` if it is none.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The beginning of what it says, for messages.
    pub(super) fn shown(&self) -> String {
        format!("{} {}", self.status, shorten(&self.text))
    }

    /// The events of a stream.
    pub(super) fn events(&self) -> Result<Vec<SseEvent>, Fault> {
        demand!(
            self.content_type.starts_with("text/event-stream"),
            "content type {:?} in place of text/event-stream: {}",
            self.content_type,
            self.shown()
        );
        let mut parser = SseParser::default();
        parser.push(self.text.as_bytes()).map_err(|error| Fault::wrong(error.to_string()))?;
        parser.finish();
        Ok(std::iter::from_fn(|| parser.next_event()).collect())
    }
}

pub(super) fn shorten(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl Probe {
    pub(super) async fn new(
        url: &str,
        model: Option<&str>,
        key: Option<&str>,
    ) -> anyhow::Result<Self> {
        let client = ApiClient::new(url, key)?;
        let entry = client.pick_model(model).await?;
        Ok(Self { client, model: entry.id, context: entry.max_model_len })
    }

    pub(super) fn url(&self) -> &str {
        self.client.base()
    }

    /// Whether the server has a route.
    pub(super) async fn has(&self, path: &str) -> bool {
        let answer = self.post(path, &json!({ "model": self.model })).await;
        answer.is_ok_and(|answer| {
            let of_model = answer.text.contains("model");
            !matches!(answer.status, 405 | 501) && (answer.status != 404 || of_model)
        })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, Fault> {
        let (status, text) =
            self.client.get_text(path).await.map_err(|error| Fault::wrong(error.to_string()))?;
        Ok(Answer { status, content_type: String::new(), text })
    }

    /// Posts a body, whatever comes of it.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Fault> {
        self.post_text(path, &body.to_string(), &[]).await
    }

    pub(super) async fn post_text(
        &self,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Result<Answer, Fault> {
        let posted = self.client.post_raw(path, body, headers).await;
        let (status, content_type, text) =
            posted.map_err(|error| Fault::wrong(format!("{path}: {error}")))?;
        Ok(Answer { status, content_type, text })
    }

    /// Posts a body that must be answered with 200; `model` is added to it.
    pub(super) async fn ask(&self, path: &str, body: Value) -> Result<Value, Fault> {
        let answer = self.asked(path, body).await?;
        let value = answer.json();
        demand!(value.is_object(), "no JSON object: {}", answer.shown());
        Ok(value)
    }

    /// The same with `stream: true`; gives the events.
    pub(super) async fn stream(&self, path: &str, mut body: Value) -> Result<Vec<SseEvent>, Fault> {
        body["stream"] = json!(true);
        self.asked(path, body).await?.events()
    }

    async fn asked(&self, path: &str, mut body: Value) -> Result<Answer, Fault> {
        body["model"] = json!(self.model);
        let answer = self.post(path, &body).await?;
        demand!(answer.status == 200, "{path} answered {}", answer.shown());
        Ok(answer)
    }

    /// Posts a body that must be refused with a status of the client's and an error object; gives that.
    pub(super) async fn refused(&self, path: &str, mut body: Value) -> Result<Value, Fault> {
        if body.get("model").is_none() {
            body["model"] = json!(self.model);
        }
        let answer = self.post(path, &body).await?;
        demand!((400..500).contains(&answer.status), "it was not refused: {}", answer.shown());
        let error = answer.json()["error"].clone();
        demand!(
            error["message"].as_str().is_some_and(|message| !message.is_empty()),
            "the error is no object with a message: {}",
            answer.shown()
        );
        Ok(error)
    }

    /// A chat completion of a few tokens.
    pub(super) async fn chat(&self, fields: Value) -> Result<Value, Fault> {
        self.ask(CHAT, chat_body(fields)).await
    }
}

/// The path of chat completions.
pub(super) const CHAT: &str = "/v1/chat/completions";

/// The body of a chat of one message, with further fields.
pub(super) fn chat_body(fields: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Tell me a short story about a lamp."}],
        "max_tokens": 24,
        "temperature": 0,
    });
    merge(&mut body, fields);
    body
}

/// Adds fields to a body; `null` takes one away.
pub(super) fn merge(body: &mut Value, fields: Value) {
    let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) else { return };
    for (name, value) in fields {
        if value.is_null() {
            body.remove(&name);
        } else {
            body.insert(name, value);
        }
    }
}

/// The first choice of an answer.
pub(super) fn choice(answer: &Value) -> &Value {
    &answer["choices"][0]
}

/// The text of the first choice's message.
pub(super) fn content(answer: &Value) -> Result<String, Fault> {
    let content = choice(answer)["message"]["content"].as_str();
    content
        .map(str::to_owned)
        .ok_or_else(|| Fault::wrong(format!("no content in {}", shorten(&answer.to_string()))))
}

/// The chunks of a stream of chat completions, which must end with `[DONE]` and nothing behind.
pub(super) fn chunks(events: &[SseEvent]) -> Result<Vec<Value>, Fault> {
    let done = events.iter().filter(|event| event.data.trim() == "[DONE]").count();
    let last = events.last().map(|event| event.data.trim());
    demand!(done == 1 && last == Some("[DONE]"), "[DONE] stands {done} times, last is {last:?}");
    let mut chunks = Vec::new();
    for event in &events[..events.len() - 1] {
        let chunk: Value = serde_json::from_str(&event.data)
            .map_err(|error| Fault::wrong(format!("{error} in {}", shorten(&event.data))))?;
        demand!(chunk.get("error").is_none_or(Value::is_null), "an error in the stream: {chunk}");
        chunks.push(chunk);
    }
    Ok(chunks)
}
