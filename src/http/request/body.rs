//! A request's bytes to a JSON object.

use std::fmt;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures::StreamExt;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::http::error::ApiError;
use crate::http::state::AppState;

/// Longest wait for the next part of a body.
const STALL: Duration = Duration::from_secs(30);
/// Bytes of a body that have to come each second, in the long run.
const SLOWEST: usize = 1024;
/// Bytes beyond the limit that are read and dropped before the answer.
const DRAINED: usize = 64 << 20;

/// Most bytes of a body that are logged.
const MOST_LOGGED: usize = 16 << 10;

/// The body of a request: one JSON object without duplicate keys.
#[derive(Debug)]
pub(crate) struct JsonBody(pub(crate) Value);

impl JsonBody {
    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let object: UniqueObject = serde_json::from_slice(bytes).map_err(|error| {
            let message = format!("the request body is not the JSON expected: {error}");
            ApiError::Invalid { message, param: None, code: Some("invalid_json") }
        })?;
        Ok(Self(Value::Object(object.0)))
    }
}

impl FromRequest<AppState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let bytes = read_all(request.into_body(), state.max_body_bytes()).await?;
        if state.config.log.bodies {
            log(&bytes);
        }
        Self::parse(&bytes)
    }
}

/// Writes a body to the log, which is asked for; of a long one the beginning, and how much is left out.
fn log(bytes: &[u8]) {
    let shown = &bytes[..bytes.len().min(MOST_LOGGED)];
    let body = String::from_utf8_lossy(shown);
    tracing::info!(%body, left_out_bytes = bytes.len() - shown.len(), "a request");
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let essence = value.unwrap_or("none").split(';').next().unwrap_or_default().trim();
    let subtype = essence.to_ascii_lowercase();
    let is_json = subtype == "application/json"
        || (subtype.starts_with("application/") && subtype.ends_with("+json"));
    if !is_json {
        let message = format!("the content type must be application/json, got {essence}");
        return Err(ApiError::UnsupportedMediaType(message));
    }
    match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?")) {
        None | Some("identity") => Ok(()),
        Some(encoding) => {
            let message =
                format!("the content encoding must be gzip, zstd or identity, got {encoding}");
            Err(ApiError::UnsupportedMediaType(message))
        }
    }
}

/// Reads a body of at most `limit` bytes. One that is larger is read on for a while and dropped:
/// clients that are still writing would not see the answer.
pub(crate) async fn read_all(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut parts = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0);
    let began = Instant::now();
    loop {
        // One that only trickles would hold its connection for hours.
        let left = STALL + Duration::from_secs((length / SLOWEST) as u64);
        let wait = left.saturating_sub(began.elapsed()).min(STALL);
        let part = tokio::time::timeout(wait, parts.next()).await;
        let part = part.map_err(|_| ApiError::BodyStalled(began.elapsed().as_secs()))?;
        let Some(part) = part else { break };
        let part = part.map_err(|error| {
            let message = format!("the request body could not be read: {error}");
            ApiError::Invalid { message, param: None, code: None }
        })?;
        length += part.len();
        if length > limit.saturating_add(DRAINED) {
            break;
        }
        if length <= limit {
            bytes.extend_from_slice(&part);
        } else {
            bytes = Vec::new();
        }
    }
    if length > limit { Err(ApiError::BodyTooLarge(limit)) } else { Ok(bytes) }
}

/// A JSON object that refuses a key it has already seen.
struct UniqueObject(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Map<String, Value>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut map = Map::new();
                while let Some(key) = access.next_key::<String>()? {
                    if map.contains_key(&key) {
                        let message = format!("the key {key:?} appears twice");
                        return Err(serde::de::Error::custom(message));
                    }
                    map.insert(key, access.next_value()?);
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(ObjectVisitor).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        JsonBody::parse(bytes).unwrap_err().to_string()
    }

    #[test]
    fn broken_json_is_named() {
        assert!(message(br#"{"a": 1, "a": 2}"#).contains("\"a\" appears twice"));
        assert!(message(b"[1]").contains("expected a JSON object"));
        assert!(message(b"{\"a\": \"\xff\"}").contains("unicode"));
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(message(deep.as_bytes()).contains("recursion limit"));
        assert!(message(b"{\"a\": NaN}").contains("expected"));
        assert!(message(b"{\"a\": 1e999}").contains("out of range"));
    }
}
