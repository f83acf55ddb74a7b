//! Who may call, and how often: a key, as a bearer or in `x-api-key`. Every route but `/health/*`, `/ping` and
//! the pages' own files needs one once any is configured, and each route needs a scope of the key.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::error::ApiError;
use crate::http::page;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::caller::Caller;
use crate::http::state::keys::scope::{Scope, of_path};
use crate::http::state::keys::{Key, Keys};

/// Where Anthropic's clients send it.
const API_KEY: &str = "x-api-key";

/// Lets a request pass that has a key, or needs none.
pub(crate) async fn require_key(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let keys = &state.keys;
    let path = request.uri().path();
    if is_open(path) || page::is_public(path, request.headers()) {
        return Ok(next.run(request).await);
    }
    let key = if keys.is_open() { keys.anonymous() } else { check(keys, request.headers())? };
    let owner = Owner(key.owner().to_owned());
    let caller = state.caller(key);
    let scopes = of_path(path);
    if !caller.key().opens(scopes) {
        caller.count_forbidden();
        return Err(ApiError::Permission(refusal(scopes)));
    }
    let computes = scopes.iter().any(|scope| matches!(scope, Scope::Infer | Scope::Embeddings));
    let computes = computes && request.method() == Method::POST;
    if computes && let Err(refused) = caller.enter(&state.store).await {
        return Ok(tell_limits(&caller, refused.into_response()));
    }
    request.extensions_mut().insert(owner);
    let response = caller.clone().scope(next.run(request)).await;
    Ok(tell_limits(&caller, response))
}

/// What the bearer of a key is told that lacks all of these scopes.
fn refusal(scopes: &[Scope]) -> &'static str {
    match scopes.first() {
        Some(Scope::Admin) => {
            "this needs a key with the scope admin, as those of --admin-api-key have it"
        }
        Some(Scope::Metrics) => "this needs a key with the scope metrics",
        Some(Scope::Batches) => "this needs a key with the scope batches",
        Some(Scope::Embeddings) => "this needs a key with the scope embeddings",
        Some(Scope::Infer) | None => "this needs a key with the scope infer",
    }
}

/// Tells in OpenAI's headers what is left of the key's limits.
fn tell_limits(caller: &Caller, mut response: Response) -> Response {
    let names = [
        [
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ],
        ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ];
    for ([limit, left, reset], level) in names.into_iter().zip(caller.levels()) {
        let Some(level) = level else { continue };
        let until = HeaderValue::try_from(written(level.reset)).expect("digits and letters");
        let values = [level.limit.into(), level.left.into(), until];
        for (name, value) in [limit, left, reset].into_iter().zip(values) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// A time as OpenAI writes it: `20ms`, `1.5s` or `6m0s`.
fn written(time: Duration) -> String {
    let milliseconds = time.as_millis();
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
    let seconds = Duration::from_millis(u64::try_from(rest).unwrap_or_default()).as_secs_f64();
    if minutes == 0 { format!("{seconds}s") } else { format!("{minutes}m{seconds}s") }
}

/// The key that a request carries. Either of two headers may hold it; clients that know both APIs send both.
pub(crate) fn check(keys: &Keys, headers: &HeaderMap) -> Result<Key, ApiError> {
    let own = headers.get(API_KEY).map(|value| value.as_bytes().trim_ascii());
    if let Some(own) = own
        && let Some(known) = keys.find(own)?
    {
        return Ok(known);
    }
    let unknown = ApiError::Authentication("the API key is not known");
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let missing = "no API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
        return Err(own.map_or(ApiError::Authentication(missing), |_| unknown));
    };
    let key = bearer(value.as_bytes())
        .ok_or(ApiError::Authentication("the Authorization header must read \"Bearer KEY\""))?;
    keys.find(key)?.ok_or(unknown)
}

/// Whether a path is anybody's.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, "/health" | "/health_generate" | "/ping") || path.starts_with("/health/")
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;

    #[test]
    fn either_header_may_hold_the_key() {
        let config =
            ServerConfig { api_keys: vec!["secret".to_owned()], ..ServerConfig::default() };
        let keys = Keys::new(&config);
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
    fn times_are_written_as_clients_read_them() {
        let texts = [0, 20, 1500, 60_000, 90_500].map(|time| written(Duration::from_millis(time)));
        assert_eq!(texts, ["0ms", "20ms", "1.5s", "1m0s", "1m30.5s"]);
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bear"), None);
    }
}
