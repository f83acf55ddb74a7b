//! Who may call: a key, as a bearer or in `x-api-key`, compared in constant time. Every route but
//! `/health/*` needs one once any is configured, and those that change what is served need one of
//! an administrator's.

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

/// Routes that change what is served.
const ADMIN: [&str; 2] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

/// What the bearer of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// Whatever leaves things as they are.
    Use,
    /// Everything.
    Admin,
}

/// The configured keys, as digests: comparing those takes the same time for any key.
#[derive(Debug)]
pub(crate) struct ApiKeys(Vec<([u8; 32], Scope)>);

impl ApiKeys {
    /// Keys of users and of administrators; one that is both is an administrator's.
    pub(crate) fn new(users: &[String], admins: &[String]) -> Self {
        let keys = |keys: &[String], scope| -> Vec<([u8; 32], Scope)> {
            keys.iter().map(|key| (Sha256::digest(key).into(), scope)).collect()
        };
        Self([keys(users, Scope::Use), keys(admins, Scope::Admin)].concat())
    }

    /// What this key allows, if it is known.
    fn scope(&self, key: &[u8]) -> Option<Scope> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = |scope| {
            let own = self.0.iter().filter(|(_, own)| *own == scope);
            let known = own.fold(Choice::from(0), |known, (key, _)| known | key.ct_eq(&digest));
            bool::from(known)
        };
        let [user, admin] = [Scope::Use, Scope::Admin].map(known);
        if admin { Some(Scope::Admin) } else { user.then_some(Scope::Use) }
    }
}

/// Lets a request pass that has a key, or needs none.
pub(crate) async fn require_key(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let keys = state.api_keys();
    let path = request.uri().path();
    if !keys.0.is_empty() && !is_open(path) {
        let scope = check(keys, request.headers())?;
        if ADMIN.contains(&path) && scope < Scope::Admin {
            let message = "this needs a key that the server was given as --admin-api-key";
            return Err(ApiError::Permission(message));
        }
    }
    Ok(next.run(request).await)
}

/// Either of the two headers may hold the key; clients that know both APIs send both.
fn check(keys: &ApiKeys, headers: &HeaderMap) -> Result<Scope, ApiError> {
    let own = headers.get(API_KEY).map(|value| value.as_bytes().trim_ascii());
    if let Some(scope) = own.and_then(|key| keys.scope(key)) {
        return Ok(scope);
    }
    let unknown = ApiError::Authentication("the API key is not known");
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let missing = "no API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
        return Err(own.map_or(ApiError::Authentication(missing), |_| unknown));
    };
    let key = bearer(value.as_bytes())
        .ok_or(ApiError::Authentication("the Authorization header must read \"Bearer KEY\""))?;
    keys.scope(key).ok_or(unknown)
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
        let [secret, other, both] = ["secret", "other", "both"].map(str::to_owned);
        let keys = ApiKeys::new(&[secret, both.clone()], &[other, both]);
        assert_eq!(keys.scope(b"secret"), Some(Scope::Use));
        for admin in ["other", "both"] {
            assert_eq!(keys.scope(admin.as_bytes()), Some(Scope::Admin));
        }
        for unknown in ["secre", "secret2", ""] {
            assert_eq!(keys.scope(unknown.as_bytes()), None);
        }
        assert_eq!(ApiKeys::new(&[], &[]).scope(b""), None);
    }

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
