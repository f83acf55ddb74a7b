//! A request's bytes to a JSON object, and the object to wire structs.
//!
//! Errors name the field. What no struct asked for is left over, for [`super::fields`] to judge.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures::StreamExt;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor, value};
use serde_json::{Map, Value};

use super::error::ApiError;
use super::state::AppState;

/// Longest wait for the next part of a body.
const STALL: Duration = Duration::from_secs(30);
/// Bytes beyond the limit that are read and dropped before the answer.
const DRAINED: usize = 64 << 20;

/// The body of a request: one JSON object without duplicate keys.
#[derive(Debug)]
pub(crate) struct JsonBody(Map<String, Value>);

impl JsonBody {
    /// The fields that `T` knows; the others are left alone.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let fields = self.0.iter().map(|(name, value)| (name.as_str(), value));
        let fields = MapDeserializer::<_, serde_json::Error>::new(fields);
        serde_path_to_error::deserialize(fields).map_err(|error| {
            let param = error.path().to_string();
            ApiError::field(param.clone(), format!("{param}: {}", error.into_inner()))
        })
    }

    /// The fields with a value that none of the given structs knows.
    pub(crate) fn unknown(&self, known: &[&[&str]]) -> impl Iterator<Item = (&str, &Value)> {
        let fields = self.0.iter().filter(|(_, value)| !value.is_null());
        fields
            .filter(|(name, _)| !known.iter().any(|names| names.contains(&name.as_str())))
            .map(|(name, value)| (name.as_str(), value))
    }

    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let object: UniqueObject = serde_json::from_slice(bytes).map_err(|error| {
            let message = format!("the request body is not the JSON expected: {error}");
            ApiError::Invalid { message, param: None, code: Some("invalid_json") }
        })?;
        Ok(Self(object.0))
    }
}

impl FromRequest<AppState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let bytes = read_all(request.into_body(), state.config().max_body_bytes).await?;
        Self::parse(&bytes)
    }
}

/// The names of the fields of a wire struct.
pub(crate) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The error is the only way out of a visitor that was asked for nothing but names.
    let _ = T::deserialize(NameCollector(&mut names));
    names
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let essence = value.unwrap_or("none").split(';').next().unwrap_or_default().trim();
    let subtype = essence.to_ascii_lowercase();
    let is_json = subtype == "application/json"
        || (subtype.starts_with("application/") && subtype.ends_with("+json"));
    if is_json { Ok(()) } else { Err(ApiError::UnsupportedMediaType(essence.to_owned())) }
}

/// Reads a body of at most `limit` bytes. One that is larger is read on for a while and dropped:
/// clients that are still writing would not see the answer.
async fn read_all(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut parts = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0);
    loop {
        let part = tokio::time::timeout(STALL, parts.next()).await;
        let part = part.map_err(|_| ApiError::BodyStalled(STALL.as_secs()))?;
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

/// Deserializes nothing; notes which fields a struct would read.
struct NameCollector<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for NameCollector<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("only structs have field names"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("the names are noted"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Inner {
        #[allow(dead_code)]
        number: Option<f64>,
    }

    #[derive(Debug, Deserialize)]
    struct Outer {
        #[allow(dead_code)]
        list: Option<Vec<Inner>>,
    }

    fn message(bytes: &[u8]) -> String {
        JsonBody::parse(bytes).unwrap_err().to_string()
    }

    #[test]
    fn errors_carry_the_path() {
        let body = JsonBody::parse(br#"{"list": [{"number": 1}, {"number": "x"}]}"#).unwrap();
        let ApiError::Invalid { param, .. } = body.read::<Outer>().unwrap_err() else { panic!() };
        assert_eq!(param.as_deref(), Some("list[1].number"));
    }

    #[test]
    fn unknown_fields_are_those_no_struct_has_and_that_are_not_null() {
        let body = JsonBody::parse(br#"{"list": null, "a": 1, "b": null}"#).unwrap();
        assert_eq!(field_names::<Outer>(), ["list"]);
        let unknown: Vec<_> =
            body.unknown(&[field_names::<Outer>()]).map(|(name, _)| name).collect();
        assert_eq!(unknown, ["a"]);
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
