//! A form with a file: the bytes, and the other fields as the object that JSON would have had.

use axum::extract::multipart::{Field, Multipart, MultipartRejection};
use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

use crate::http::error::ApiError;
use crate::http::request::form::{expected, next, text};
use crate::http::state::admission::Permit;

/// Most bytes of a field beside the file.
const MOST_TEXT: usize = 64 << 10;
/// Most fields.
const MOST_FIELDS: usize = 64;
/// Fields whose value is text, even where it looks like something else.
const TEXTS: [&str; 4] = ["model", "language", "prompt", "response_format"];
/// Fields that may be given several times, with or without brackets.
const LISTS: [&str; 7] = [
    "include",
    "timestamp_granularities",
    "known_speaker_names",
    "known_speaker_references",
    "keywords",
    "languages",
    "hotwords",
];

/// What came.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) file: Bytes,
    /// The other fields.
    pub(super) fields: Value,
}

/// Reads a form; its file may have `most` bytes, and takes room in the queue as it comes.
pub(super) async fn read(
    form: Result<Multipart, MultipartRejection>,
    most: usize,
    permit: &Permit,
) -> Result<Form, ApiError> {
    let mut multipart = expected(form)?;
    let (mut file, mut fields) = (None, Map::new());
    let mut count = 0;
    while let Some(field) = next(multipart.next_field()).await? {
        count += 1;
        if count > MOST_FIELDS {
            let message = format!("the form has more than {MOST_FIELDS} fields");
            return Err(ApiError::Invalid { message, param: None, code: None });
        }
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            if file.is_some() {
                return Err(twice("file"));
            }
            file = Some(bytes(field, most, permit).await?);
        } else {
            let text = text(field, &name, MOST_TEXT).await?;
            insert(&mut fields, &name, text)?;
        }
    }
    let file = file.ok_or_else(|| ApiError::field("file", "file is required"))?;
    Ok(Form { file, fields: Value::Object(fields) })
}

async fn bytes(mut field: Field<'_>, most: usize, permit: &Permit) -> Result<Bytes, ApiError> {
    let mut file = BytesMut::new();
    let mut counted = 0;
    while let Some(more) = next(field.chunk()).await? {
        if file.len() + more.len() > most {
            return Err(ApiError::BodyTooLarge(most));
        }
        file.extend_from_slice(&more);
        let kib = file.len().div_ceil(1024);
        permit.queue_tokens(kib - counted)?;
        counted = kib;
    }
    Ok(file.freeze())
}

/// Puts a field where JSON would have it: `a[]` into the list `a`, `a[b]` into the object `a`.
fn insert(fields: &mut Map<String, Value>, name: &str, text: String) -> Result<(), ApiError> {
    let (base, member) = match name.split_once('[') {
        Some((base, rest)) => (base, rest.strip_suffix(']')),
        None => (name, None),
    };
    match member {
        None if LISTS.contains(&base) => push(fields, base, text),
        Some("") => push(fields, base, text),
        Some(member) => {
            let object = fields.entry(base).or_insert_with(|| Value::Object(Map::new()));
            let object = object.as_object_mut().ok_or_else(|| twice(base))?;
            set(object, member, value(member, text)).map_err(|()| twice(name))
        }
        None => set(fields, base, value(base, text)).map_err(|()| twice(name)),
    }
}

fn push(fields: &mut Map<String, Value>, name: &str, text: String) -> Result<(), ApiError> {
    let list = fields.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    list.as_array_mut().ok_or_else(|| twice(name))?.push(Value::String(text));
    Ok(())
}

fn set(object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), ()> {
    match object.insert(name.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(()),
    }
}

/// What JSON would have for the text.
fn value(name: &str, text: String) -> Value {
    if TEXTS.contains(&name) {
        return Value::String(text);
    }
    match text.as_str() {
        "true" | "True" => return Value::Bool(true),
        "false" | "False" => return Value::Bool(false),
        "" | "null" => return Value::Null,
        _ => {}
    }
    // A number, and no list or object that happens to be written out.
    match serde_json::from_str(&text) {
        Ok(number @ Value::Number(_)) => number,
        _ => Value::String(text),
    }
}

fn twice(name: &str) -> ApiError {
    ApiError::field(name, format!("{name} is given more than once"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<Value, ApiError> {
        let mut object = Map::new();
        for (name, text) in fields {
            insert(&mut object, name, (*text).to_owned())?;
        }
        Ok(Value::Object(object))
    }

    #[test]
    fn fields_are_what_json_would_have() {
        let fields = [
            ("model", "12"),
            ("temperature", "0.5"),
            ("stream", "True"),
            ("include[]", "logprobs"),
            ("timestamp_granularities", "word"),
            ("timestamp_granularities[]", "segment"),
            ("chunking_strategy[type]", "server_vad"),
            ("chunking_strategy[threshold]", "0.1"),
            ("seed", "[1]"),
        ];
        assert_eq!(
            read(&fields).unwrap(),
            json!({"model": "12", "temperature": 0.5, "stream": true, "include": ["logprobs"],
                "timestamp_granularities": ["word", "segment"],
                "chunking_strategy": {"type": "server_vad", "threshold": 0.1}, "seed": "[1]"})
        );
    }

    #[test]
    fn what_is_given_twice_is_refused() {
        for fields in [
            [("model", "a"), ("model", "b")],
            [("a[b]", "1"), ("a[b]", "2")],
            [("seed", "1"), ("seed[]", "2")],
            [("seed", "1"), ("seed[x]", "2")],
        ] {
            let error = read(&fields).unwrap_err().to_string();
            assert!(error.contains("is given more than once"), "{error}");
        }
    }
}
