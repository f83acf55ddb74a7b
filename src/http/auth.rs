//! Who may call: a key, as a bearer or in `x-api-key`, compared in constant time. Every route but
//! `/health/*` needs one once any is configured.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::error::ApiError;
use super::state::AppState;

/// Where Anthropic's clients send it.
const API_KEY: &str = "x-api-key";

/// The configured keys, as digests: comparing those takes the same time for any key.
#[derive(Debug)]
pub(crate) struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    pub(crate) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| Sha256::digest(key).into()).collect())
    }

    fn accepts(&self, key: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = self.0.iter().fold(Choice::from(0), |known, key| known | key.ct_eq(&digest));
        known.into()
    }
}

/// Lets a request pass that has a key, or needs none.
pub(crate) async fn require_key(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let keys = state.api_keys();
    if !keys.0.is_empty() && !is_open(request.uri().path()) {
        check(keys, request.headers())?;
    }
    Ok(next.run(request).await)
}

/// Either of the two headers may hold the key; clients that know both APIs send both.
fn check(keys: &ApiKeys, headers: &HeaderMap) -> Result<(), ApiError> {
    let own = headers.get(API_KEY).map(|value| value.as_bytes().trim_ascii());
    if own.is_some_and(|key| keys.accepts(key)) {
        return Ok(());
    }
    let unknown = ApiError::Authentication("the API key is not known");
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let missing = "no API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
        return Err(own.map_or(ApiError::Authentication(missing), |_| unknown));
    };
    let key = bearer(value.as_bytes())
        .ok_or(ApiError::Authentication("the Authorization header must read \"Bearer KEY\""))?;
    if keys.accepts(key) { Ok(()) } else { Err(unknown) }
}

fn is_open(path: &str) -> bool {
    path == "/health" || path.starts_with("/health/")
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
    fn only_whole_keys_open() {
        let keys = ApiKeys::new(&["secret".to_owned(), "other".to_owned()]);
        assert!(keys.accepts(b"secret") && keys.accepts(b"other"));
        assert!(!keys.accepts(b"secre") && !keys.accepts(b"secret2") && !keys.accepts(b""));
        assert!(!ApiKeys::new(&[]).accepts(b""));
    }

    #[test]
    fn either_header_may_hold_the_key() {
        let keys = ApiKeys::new(&["secret".to_owned()]);
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
