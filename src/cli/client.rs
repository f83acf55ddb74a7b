//! The client side of the OpenAI API, as far as `chat`, `bench` and `health` need it.
//!
//! Turns a URL and a JSON body into a stream of [`Chunk`]s and every way this can go wrong into a
//! [`ClientError`]. Refuses to know what the text is for.

use std::fmt::Write as _;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::sse::SseParser;

/// How long a connection may take to open; an answer may take longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest part of an unexpected body that is shown to the user, in characters.
const SHOWN_BODY_CHARS: usize = 300;

/// What went wrong between us and the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The URL can't be used.
    #[error("{0}")]
    Url(String),
    /// No connection.
    #[error("can't connect to {url}: {reason}")]
    Connect { url: String, reason: String },
    /// The server answered with a status other than 2xx.
    #[error("the server answered {status}: {message}")]
    Status { status: u16, message: String },
    /// The connection broke, or ended before `[DONE]`.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The server sent something that is not an answer.
    #[error("the server sent something unexpected: {0}")]
    Protocol(String),
    /// The server sent an error frame after the answer had begun.
    #[error("the server ended the answer with an error: {message}")]
    Frame { kind: String, message: String },
    /// No answer within the time that the caller gave.
    #[error("no complete answer within {0} seconds")]
    Timeout(f64),
}

impl ClientError {
    /// A short name under which errors are counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Url(_) => "bad url".to_owned(),
            Self::Connect { .. } => "no connection".to_owned(),
            Self::Status { status, .. } => format!("http {status}"),
            Self::Broken(_) => "broken connection".to_owned(),
            Self::Protocol(_) => "unexpected answer".to_owned(),
            Self::Frame { kind, .. } => format!("error frame: {kind}"),
            Self::Timeout(_) => "timeout".to_owned(),
        }
    }
}

/// Token counts as the server reports them, under its names.
#[allow(clippy::struct_field_names)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// Prompt tokens that came from the prefix cache.
    pub(crate) cached_tokens: u64,
}

/// One frame of a streamed answer, of either endpoint; only the first choice is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// New text of the answer.
    pub(crate) text: String,
    /// New text of the reasoning before the answer.
    pub(crate) reasoning: String,
    pub(crate) finish_reason: Option<String>,
    pub(crate) usage: Option<Usage>,
}

impl Chunk {
    /// True when the frame shows the user something.
    pub(crate) fn has_text(&self) -> bool {
        !self.text.is_empty() || !self.reasoning.is_empty()
    }
}

/// One entry of `/v1/models`; a peer may leave out the length.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ModelEntry {
    pub(crate) id: String,
    pub(crate) max_model_len: Option<u64>,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ModelEntry>,
}

/// A server, its key and a pool of connections; clones share the pool.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    http: reqwest::Client,
    base: String,
    api_key: Option<String>,
}

impl ApiClient {
    /// `url` is the server's address; `/v1` at its end and a missing `http://` are forgiven.
    pub(crate) fn new(url: &str, api_key: Option<&str>) -> Result<Self, ClientError> {
        let base = base_url(url)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(1024)
            .user_agent(concat!("sconce/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            // A proxy that is set for the outer network can't reach this machine's loopback.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| ClientError::Url(reason(&error)))?;
        // An environment variable that is set to nothing is no key.
        let api_key = api_key.filter(|key| !key.is_empty()).map(str::to_owned);
        Ok(Self { http, base, api_key })
    }

    /// The server's address without a trailing slash or `/v1`.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// All models that the server offers.
    pub(crate) async fn models(&self) -> Result<Vec<ModelEntry>, ClientError> {
        let response = self.send(self.http.get(self.address("/v1/models"))).await?;
        let list: ModelList = read_json(response).await?;
        Ok(list.data)
    }

    /// The entry of `name`, or the server's first model when no name is given. A server without a
    /// model list is believed when the user has named the model.
    pub(crate) async fn pick_model(&self, name: Option<&str>) -> Result<ModelEntry, ClientError> {
        let models = self.models().await;
        let Some(name) = name else {
            let first = models?.into_iter().next();
            return first.ok_or_else(|| ClientError::Protocol("an empty model list".to_owned()));
        };
        match models {
            Ok(models) => Ok(models
                .into_iter()
                .find(|model| model.id == name)
                .unwrap_or_else(|| ModelEntry { id: name.to_owned(), max_model_len: None })),
            Err(error @ (ClientError::Connect { .. } | ClientError::Url(_))) => Err(error),
            Err(_) => Ok(ModelEntry { id: name.to_owned(), max_model_len: None }),
        }
    }

    /// Status and body of a `GET` whatever the status says.
    pub(crate) async fn get_text(&self, path: &str) -> Result<(u16, String), ClientError> {
        let request = self.authorized(self.http.get(self.address(path)));
        let response = request.send().await.map_err(|error| self.transport(&error))?;
        let status = response.status().as_u16();
        let body = response.text().await.map_err(|error| self.transport(&error))?;
        Ok((status, body))
    }

    /// Posts a body and reads the whole JSON answer.
    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        let response = self.send(self.http.post(self.address(path)).json(body)).await?;
        read_json(response).await
    }

    /// Posts a text as JSON with further headers; status, content type and body, whatever they say.
    pub(crate) async fn post_raw(
        &self,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Result<(u16, String, String), ClientError> {
        let mut request = self.http.post(self.address(path)).body(body.to_owned());
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.authorized(request).send().await;
        let response = response.map_err(|error| self.transport(&error))?;
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type");
        let content_type =
            content_type.and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        let text = response.text().await.map_err(|error| self.transport(&error))?;
        Ok((status, content_type, text))
    }

    /// Sends a `DELETE` with a body.
    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Result<(), ClientError> {
        self.send(self.http.delete(self.address(path)).json(body)).await.map(drop)
    }

    /// Posts a body; the answer's lines of JSON come one by one.
    pub(crate) async fn lines(&self, path: &str, body: &Value) -> Result<Lines, ClientError> {
        let response = self.send(self.http.post(self.address(path)).json(body)).await?;
        let bytes = response.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec())).boxed();
        Ok(Lines { bytes, read: Vec::new() })
    }

    /// Posts a body with `stream: true` in it; the answer's frames come one by one. Dropping the
    /// stream closes the connection, which tells the server to stop.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<ChunkStream, ClientError> {
        let response = self.send(self.http.post(self.address(path)).json(body)).await?;
        let content_type = response.headers().get("content-type");
        let content_type =
            content_type.and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        if !content_type.starts_with("text/event-stream") {
            let shown = shorten(&response.text().await.unwrap_or_default());
            return Err(ClientError::Protocol(format!(
                "content type '{content_type}' in place of text/event-stream: {shown}"
            )));
        }
        let bytes = response.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec())).boxed();
        Ok(ChunkStream { bytes, parser: SseParser::default() })
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.api_key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, ClientError> {
        let response =
            self.authorized(request).send().await.map_err(|error| self.transport(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.text().await.unwrap_or_default();
        Err(ClientError::Status { status: status.as_u16(), message: error_message(&body) })
    }

    fn transport(&self, error: &reqwest::Error) -> ClientError {
        if error.is_connect() {
            ClientError::Connect { url: self.base.clone(), reason: reason(error) }
        } else if error.is_builder() {
            ClientError::Url(reason(error))
        } else {
            ClientError::Broken(reason(error))
        }
    }
}

/// An answer that is one JSON value a line.
pub(crate) struct Lines {
    bytes: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    read: Vec<u8>,
}

impl Lines {
    /// The next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let value = serde_json::from_slice(&line);
                return value.map(Some).map_err(|error| ClientError::Protocol(error.to_string()));
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.read.extend(bytes),
                Some(Err(error)) => return Err(ClientError::Broken(reason(&error))),
                None if self.read.trim_ascii().is_empty() => return Ok(None),
                None => self.read.push(b'\n'),
            }
        }
    }
}

/// The frames of one streamed answer.
pub(crate) struct ChunkStream {
    bytes: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    parser: SseParser,
}

impl ChunkStream {
    /// The next frame; `None` after `[DONE]`. An end without `[DONE]` is an error, because nothing
    /// else tells a cut answer from a complete one.
    pub(crate) async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        loop {
            if let Some(event) = self.parser.next_event() {
                let data = event.data.trim();
                return if data == "[DONE]" { Ok(None) } else { parse_chunk(data).map(Some) };
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.push(&bytes)?,
                Some(Err(error)) => return Err(ClientError::Broken(reason(&error))),
                None => return self.last_frame(),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.parser.push(bytes).map_err(|error| ClientError::Protocol(error.to_string()))
    }

    /// The body has ended: only `[DONE]` and an error may stand without their blank line.
    fn last_frame(&mut self) -> Result<Option<Chunk>, ClientError> {
        self.parser.finish();
        match self.parser.next_event().as_ref().map(|event| event.data.trim()) {
            Some("[DONE]") => Ok(None),
            Some(data) => Err(parse_chunk(data).err().unwrap_or_else(ended_early)),
            None => Err(ended_early()),
        }
    }
}

fn ended_early() -> ClientError {
    ClientError::Broken("the stream ended before [DONE]".to_owned())
}

/// One `data:` payload of either endpoint.
fn parse_chunk(data: &str) -> Result<Chunk, ClientError> {
    let value: Value = serde_json::from_str(data)
        .map_err(|error| ClientError::Protocol(format!("{error} in frame {}", shorten(data))))?;
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        let kind = error.get("type").and_then(Value::as_str).unwrap_or("untyped").to_owned();
        return Err(ClientError::Frame { kind, message: message_of(error) });
    }
    let choice = &value["choices"][0];
    let delta = &choice["delta"];
    Ok(Chunk {
        text: text_of(&choice["text"]).or_else(|| text_of(&delta["content"])).unwrap_or_default(),
        reasoning: text_of(&delta["reasoning"])
            .or_else(|| text_of(&delta["reasoning_content"]))
            .unwrap_or_default(),
        finish_reason: text_of(&choice["finish_reason"]),
        usage: parse_usage(&value["usage"]),
    })
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn parse_usage(usage: &Value) -> Option<Usage> {
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    Some(Usage {
        prompt_tokens: usage["prompt_tokens"].as_u64()?,
        completion_tokens: usage["completion_tokens"].as_u64()?,
        cached_tokens: cached.as_u64().unwrap_or(0),
    })
}

async fn read_json<T: serde::de::DeserializeOwned>(
    response: reqwest::Response,
) -> Result<T, ClientError> {
    let body = response.bytes().await.map_err(|error| ClientError::Broken(reason(&error)))?;
    serde_json::from_slice(&body).map_err(|error| {
        let shown = shorten(&String::from_utf8_lossy(&body));
        ClientError::Protocol(format!("{error} in body {shown}"))
    })
}

/// The message of an OpenAI error body, or the body itself.
fn error_message(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(value) if value.get("error").is_some() => message_of(&value["error"]),
        _ if body.trim().is_empty() => "no reason given".to_owned(),
        _ => shorten(body),
    }
}

fn message_of(error: &Value) -> String {
    let message = error.get("message").unwrap_or(error);
    message.as_str().map_or_else(|| shorten(&message.to_string()), str::to_owned)
}

fn shorten(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN_BODY_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// `reqwest` keeps the part that helps in the chain of sources.
fn reason(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let separator = if text.is_empty() { "" } else { ": " };
        let _ = write!(text, "{separator}{cause}");
        source = cause.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

fn base_url(url: &str) -> Result<String, ClientError> {
    let url = url.trim();
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let parsed = reqwest::Url::parse(&url)
        .map_err(|error| ClientError::Url(format!("'{url}' is not a url: {error}")))?;
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err(ClientError::Url(format!("'{url}' is not an http or https url")));
    }
    let base = url.trim_end_matches('/');
    Ok(base.strip_suffix("/v1").unwrap_or(base).to_owned())
}

fn is_loopback(base: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(base) else { return false };
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgives_a_missing_scheme_a_slash_and_v1() {
        for url in ["localhost:8000", "http://localhost:8000/", "http://localhost:8000/v1/"] {
            assert_eq!(base_url(url).unwrap(), "http://localhost:8000", "{url}");
        }
        assert_eq!(base_url("https://host/prefix/v1").unwrap(), "https://host/prefix");
    }

    #[test]
    fn refuses_what_is_no_http_url() {
        for url in ["", "ftp://host", "http://", "http://a b"] {
            assert!(base_url(url).is_err(), "{url:?}");
        }
    }

    #[test]
    fn knows_loopback_addresses() {
        assert!(is_loopback("http://127.0.0.1:1"));
        assert!(is_loopback("http://[::1]:1"));
        assert!(is_loopback("http://localhost"));
        assert!(!is_loopback("http://10.0.0.1"));
    }

    #[test]
    fn reads_chunks_of_both_endpoints() {
        let chat = parse_chunk(
            r#"{"choices":[{"index":0,"delta":{"content":"hi","reasoning_content":"so"},
                "finish_reason":"stop"}],"usage":null}"#,
        )
        .unwrap();
        assert_eq!((chat.text.as_str(), chat.reasoning.as_str()), ("hi", "so"));
        assert_eq!(chat.finish_reason.as_deref(), Some("stop"));
        let completion = parse_chunk(r#"{"choices":[{"index":0,"text":"hi"}]}"#).unwrap();
        assert_eq!(completion.text, "hi");
        assert_eq!(completion.finish_reason, None);
        let usage = parse_chunk(
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,
                "prompt_tokens_details":{"cached_tokens":2}}}"#,
        )
        .unwrap();
        assert_eq!(
            usage.usage,
            Some(Usage { prompt_tokens: 3, completion_tokens: 4, cached_tokens: 2 })
        );
        assert!(!usage.has_text());
    }

    #[test]
    fn an_error_frame_and_a_broken_frame_are_errors() {
        let frame = parse_chunk(r#"{"error":{"message":"out of blocks","type":"server_error"}}"#);
        let frame = frame.unwrap_err();
        assert_eq!(frame.kind(), "error frame: server_error");
        assert!(frame.to_string().ends_with("out of blocks"), "{frame}");
        assert_eq!(parse_chunk("{").unwrap_err().kind(), "unexpected answer");
    }

    #[test]
    fn shows_the_message_of_an_error_body_or_the_body() {
        assert_eq!(error_message(r#"{"error":{"message":"too hot"}}"#), "too hot");
        assert_eq!(error_message(r#"{"error":"plain"}"#), "plain");
        assert_eq!(error_message("gateway\n"), "gateway");
        assert_eq!(error_message(" "), "no reason given");
        assert!(error_message(&"é".repeat(1000)).chars().count() < 310);
    }
}
