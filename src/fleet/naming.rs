//! Which model a request is for: the `model` of its body or of its query, or a part of its path.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use serde::Deserialize;

use crate::http::front::ApiError;

/// What the body of a request says about models.
#[derive(Debug, Default, Deserialize)]
pub(super) struct NamedInBody<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    /// Ollama's older word for it.
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

/// Beginnings of paths with a model in them, and of what those stand for.
const IN_PATHS: [(&str, &str); 2] = [("/upstream/", "/"), ("/openai/deployments/", "/v1/")];

/// Paths of what is stored, which every model's process has.
const STORED: [&str; 4] = ["/v1/files", "/v1/batches", "/v1/conversations", "/v1/messages/batches"];
/// Paths below which something stored has its id.
const STORED_BELOW: [&str; 2] = ["/v1/responses/", "/v1/chat/completions/"];
/// What is below these, but is asked of a model.
const ASKED_BELOW: [&str; 3] = ["render", "input_tokens", "compact"];

/// Takes the model out of a path such as `/upstream/MODEL/v1/completions`; `is_known` tells names.
pub(super) fn in_path(uri: &mut Uri, is_known: impl Fn(&str) -> bool) -> Option<String> {
    let path = uri.path();
    let (rest, stands_for) = IN_PATHS
        .iter()
        .find_map(|(begin, stands_for)| Some((path.strip_prefix(begin)?, stands_for)))?;
    // Names have slashes in them, too.
    let (name, rest) = rest.match_indices('/').find_map(|(at, _)| {
        let name = decoded(&rest[..at]);
        is_known(&name).then(|| (name, &rest[at + 1..]))
    })?;
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let changed = format!("{stands_for}{rest}{query}").parse();
    *uri = changed.ok()?;
    Some(name)
}

/// The value of a parameter of a query.
pub(super) fn in_query(uri: &Uri, parameter: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(name, _)| *name == parameter).map(|(_, value)| decoded(value))
}

/// The model in a body of JSON.
///
/// # Errors
/// It is no JSON object, or its model is no text.
pub(super) fn in_json(bytes: &[u8]) -> Result<Option<String>, ApiError> {
    let named: NamedInBody<'_> = serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the request body is not the JSON expected: {error}");
        ApiError::Invalid { message, param: None, code: Some("invalid_json") }
    })?;
    let named = named.model.filter(|name| !name.is_empty()).or(named.name);
    Ok(named.map(Cow::into_owned).filter(|name| !name.is_empty()))
}

/// The model in a form.
pub(super) async fn in_form(parts: &Parts, bytes: &Bytes) -> Result<Option<String>, ApiError> {
    let request = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
    let wrong =
        |error: String| ApiError::field("model", format!("the form can't be read: {error}"));
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|error| wrong(error.body_text()))?;
    while let Some(field) = form.next_field().await.map_err(|error| wrong(error.body_text()))? {
        if field.name() == Some("model") {
            return field.text().await.map(Some).map_err(|error| wrong(error.body_text()));
        }
    }
    Ok(None)
}

/// Whether a body is JSON, or is taken for it, as that of `curl -d` on Ollama's routes.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.ends_with("/json") || essence.ends_with("+json")
    })
}

/// Whether a body is a form with a file in it.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("multipart/form-data"))
}

/// Whether a request without a model is about something stored, which any process finds.
pub(super) fn is_about_stored(path: &str, is_get: bool) -> bool {
    let of = |begin: &&str| {
        path.strip_prefix(*begin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let below = STORED_BELOW.iter().find_map(|begin| path.strip_prefix(begin));
    let below = below.is_some_and(|rest| !rest.is_empty() && !ASKED_BELOW.contains(&rest));
    STORED.iter().any(of) || below || (is_get && path == "/v1/chat/completions")
}

/// Text without `%41` and `+`.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(hex.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if hex.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_the_model_in_it() {
        let known = |name: &str| ["org/m", "m"].contains(&name);
        let of = |path: &str| {
            let mut uri: Uri = path.parse().unwrap();
            let name = in_path(&mut uri, known);
            name.map(|name| (name, uri.to_string()))
        };
        let found = |name: &str, path: &str| Some((name.to_owned(), path.to_owned()));
        assert_eq!(of("/upstream/org/m/v1/models?a=1"), found("org/m", "/v1/models?a=1"));
        assert_eq!(of("/upstream/org%2Fm/props"), found("org/m", "/props"));
        let azure = of("/openai/deployments/m/chat/completions?api-version=1");
        assert_eq!(azure, found("m", "/v1/chat/completions?api-version=1"));
        assert_eq!(of("/upstream/x/v1/models"), None);
        assert_eq!(of("/v1/models"), None);
    }

    #[test]
    fn bodies_name_models_wherever_they_do() {
        let of = |text: &str| in_json(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(
            of(r#"{"messages": [{"model": "x"}], "model": "a\u0062"}"#),
            Ok(Some("ab".to_owned()))
        );
        assert_eq!(of(r#"{"name": "n"}"#), Ok(Some("n".to_owned())));
        assert_eq!(of(r#"{"model": "", "prompt": "a"}"#), Ok(None));
        assert!(of("[1]").unwrap_err().contains("not the JSON expected"));
        assert!(of(r#"{"model": 5}"#).unwrap_err().contains("expected"));
        assert!(of(r#"{"model": "a", "model": "b"}"#).unwrap_err().contains("duplicate"));
    }

    #[test]
    fn queries_are_decoded() {
        let uri: Uri = "/props?autoload=false&model=ggml-org%2Fm%3AQ8_0+a".parse().unwrap();
        assert_eq!(in_query(&uri, "model").as_deref(), Some("ggml-org/m:Q8_0 a"));
        assert_eq!(in_query(&uri, "other"), None);
        assert_eq!(decoded("50%"), "50%");
    }

    #[test]
    fn what_is_stored_is_found_without_a_model() {
        for path in ["/v1/files", "/v1/files/file-1/content", "/v1/responses/resp_1", "/v1/batches"]
        {
            assert!(is_about_stored(path, false), "{path}");
        }
        for path in ["/v1/responses", "/v1/responses/compact", "/v1/filesystem", "/tokenize"] {
            assert!(!is_about_stored(path, false), "{path}");
        }
        assert!(is_about_stored("/v1/chat/completions", true));
        assert!(!is_about_stored("/v1/chat/completions", false));
    }
}
