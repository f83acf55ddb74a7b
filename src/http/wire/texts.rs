//! Texts as JSON has them where one or several are taken: a string, or a list of strings and of
//! objects that hold one, in whole (`text`) or in parts (`content`).

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

/// One text or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    /// The texts, in their order.
    pub(crate) all: Vec<String>,
    /// Whether they came as a list.
    pub(crate) listed: bool,
}

/// A document as an answer repeats it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DocumentText {
    pub(crate) text: String,
}

const EXPECTED: &str = "expected a string, or a list of strings or of objects with a text";

/// The text of a string or of an object that holds one, whose parts are lines.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    let whole = value.as_str().or_else(|| value.get("text")?.as_str());
    whole.map(str::to_owned).or_else(|| {
        let parts = value.get("content")?.as_array()?.iter();
        let lines = parts.map(text_of_part).collect::<Option<Vec<_>>>()?;
        (!lines.is_empty()).then(|| lines.join("\n"))
    })
}

/// The text of a part that is one.
fn text_of_part(part: &Value) -> Option<&str> {
    (part.get("type")?.as_str()? == "text").then(|| part.get("text")?.as_str())?
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let texts = match &value {
            Value::Array(list) => list.iter().map(text_of).collect::<Option<Vec<_>>>(),
            one => text_of(one).map(|text| vec![text]),
        };
        match texts {
            Some(all) => Ok(Self { all, listed: value.is_array() }),
            None => Err(D::Error::custom(EXPECTED)),
        }
    }
}

impl PartialSchema for Texts {
    fn schema() -> RefOr<Schema> {
        let part = json!({"type": "object", "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}}});
        let text = json!({"anyOf": [{"type": "string"},
            {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
            {"type": "object", "required": ["content"],
                "properties": {"content": {"type": "array", "items": part, "minItems": 1}}}]});
        let any = json!({"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]});
        serde_json::from_value(any).unwrap_or_else(|_| ObjectBuilder::new().into())
    }
}

impl ToSchema for Texts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_alone_in_lists_and_in_objects() {
        let read = |value: Value| serde_json::from_value::<Texts>(value);
        let one = read(json!("a")).unwrap();
        assert_eq!((one.all, one.listed), (vec!["a".to_owned()], false));
        let several = read(json!(["a", {"text": "b", "id": 3}])).unwrap();
        assert_eq!((several.all, several.listed), (vec!["a".to_owned(), "b".to_owned()], true));
        let parts =
            json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
        assert_eq!(read(parts).unwrap().all, ["a\nb"]);
        let picture = json!({"content": [{"type": "image_url", "image_url": {"url": "x"}}]});
        for bad in [json!(1), json!([1]), json!([{"body": "x"}]), json!({"content": []}), picture] {
            assert!(read(bad).unwrap_err().to_string().contains("a list of strings"));
        }
    }
}
