//! Who may call: a key, as a bearer or in `x-api-key`. Every route but
//! `/health/*`, `/ping` and the pages' own files needs one once any is configured, and those that change
//! what is served need one of an administrator's.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::page;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::api_keys::{ApiKeys, Scope};

/// Where Anthropic's clients send it.
const API_KEY: &str = "x-api-key";

/// Routes that change what is served.
const ADMIN: [&str; 2] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

/// Lets a request pass that has a key, or needs none.
pub(crate) async fn require_key(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let keys = &state.api_keys;
    let path = request.uri().path();
    if !keys.is_empty() && !is_open(path) && !page::is_public(path, request.headers()) {
        let (scope, owner) = check(keys, request.headers())?;
        if ADMIN.contains(&path) && scope < Scope::Admin {
            let message = "this needs a key that the server was given as --admin-api-key";
            return Err(ApiError::Permission(message));
        }
        request.extensions_mut().insert(owner);
    }
    Ok(next.run(request).await)
}

/// Either of the two headers may hold the key; clients that know both APIs send both.
fn check(keys: &ApiKeys, headers: &HeaderMap) -> Result<(Scope, Owner), ApiError> {
    let known = |key: &[u8]| keys.scope(key).map(|scope| (scope, Owner::of_key(key)));
    let own = headers.get(API_KEY).map(|value| value.as_bytes().trim_ascii());
    if let Some(known) = own.and_then(known) {
        return Ok(known);
    }
    let unknown = ApiError::Authentication("the API key is not known");
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let missing = "no API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
        return Err(own.map_or(ApiError::Authentication(missing), |_| unknown));
    };
    let key = bearer(value.as_bytes())
        .ok_or(ApiError::Authentication("the Authorization header must read \"Bearer KEY\""))?;
    known(key).ok_or(unknown)
}

fn is_open(path: &str) -> bool {
    matches!(path, "/health" | "/health_generate" | "/ping") || path.starts_with("/health/")
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn either_header_may_hold_the_key() {
        let keys = ApiKeys::new(&["secret".to_owned()], &[]);
        let opens = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            check(&keys, &pairs.collect()).is_ok()
        };
        assert!(opens(&[("x-api-key", "secret")]));
        assert!(opens(&[("authorization", "Bearer secret"), ("x-api-key", "other")]));
        assert!(opens(&[("authorization", "Bearer other"), ("x-api-key", "secret")]));
        assert!(!opens(&[("authorization", "Bearer other"), ("x-api-key", "other")]));
        assert!(!opens(&[("x-api-key", "")]) && !opens(&[]));
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bear"), None);
    }
}
