//! Requests and errors of Ollama's routes as its clients have them: `{"error": text}`.
//!
//! Handlers and layers make one kind of error for all routes, and this rewrites it on the way out.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::wire::ollama::OllamaError;

/// What `curl -d` declares a body as.
const FORM: &str = "application/x-www-form-urlencoded";

/// Whether a path belongs to Ollama's API.
pub(crate) fn covers(path: &str) -> bool {
    path.starts_with("/api/")
}

/// The layer around Ollama's routes, whose bodies need not be declared as JSON and whose errors are
/// texts.
pub(crate) async fn adapt(mut request: Request, next: Next) -> Response {
    if !covers(request.uri().path()) {
        return next.run(request).await;
    }
    if is_undeclared(request.headers()) {
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
    }
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let object = OllamaError { error: error.to_string() };
    let body = serde_json::to_vec(&object).expect("an error object has string keys");
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// Whether a body may be JSON without saying so, as that of `curl -d` in Ollama's documentation.
/// Not where a browser sends it for a page of another server, which needs no permission for a form.
fn is_undeclared(headers: &HeaderMap) -> bool {
    let declared = headers.get(header::CONTENT_TYPE);
    !headers.contains_key(header::ORIGIN) && declared.is_none_or(|kind| kind == FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_json_where_no_page_sends_it() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pairs = pairs.iter().map(|(name, value)| {
                let name: header::HeaderName = name.parse().unwrap();
                (name, HeaderValue::from_static(value))
            });
            pairs.collect()
        };
        assert!(is_undeclared(&headers(&[])) && is_undeclared(&headers(&[("content-type", FORM)])));
        assert!(!is_undeclared(&headers(&[("content-type", "text/plain")])));
        assert!(!is_undeclared(&headers(&[("content-type", FORM), ("origin", "http://a.b")])));
    }
}
