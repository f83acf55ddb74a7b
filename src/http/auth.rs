//! Who may call: a bearer key, compared in constant time. Every route but `/health/*` needs one
//! once any is configured.

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::error::ApiError;
use super::state::AppState;

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
        let value = request.headers().get(header::AUTHORIZATION);
        let value = value.ok_or(ApiError::Authentication(
            "no API key: send it as \"Authorization: Bearer KEY\"",
        ))?;
        let key = bearer(value.as_bytes())
            .ok_or(ApiError::Authentication("the Authorization header must read \"Bearer KEY\""))?;
        if !keys.accepts(key) {
            return Err(ApiError::Authentication("the API key is not known"));
        }
    }
    Ok(next.run(request).await)
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
    use super::*;

    #[test]
    fn only_whole_keys_open() {
        let keys = ApiKeys::new(&["secret".to_owned(), "other".to_owned()]);
        assert!(keys.accepts(b"secret") && keys.accepts(b"other"));
        assert!(!keys.accepts(b"secre") && !keys.accepts(b"secret2") && !keys.accepts(b""));
        assert!(!ApiKeys::new(&[]).accepts(b""));
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bear"), None);
    }
}
