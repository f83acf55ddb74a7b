//! Which routes an address has, where operators have one of their own (`--admin-port`).

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;

/// What only operators ask.
const OPERATORS: [&str; 5] = [
    "/metrics",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/v1/models/load",
    "/v1/models/unload",
];
/// What they ask besides, which is everybody's.
const EVERYBODY: [&str; 7] =
    ["/docs", "/load", "/ping", "/status", "/v1/models", "/v1/usage", "/version"];
/// The same, for what is below.
const BELOW: [&str; 3] = ["/docs/", "/health", "/page/"];

/// The routes of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    All,
    /// All but those of operators.
    Public,
    /// Those that operators ask.
    Operators,
}

impl Routes {
    fn has(self, path: &str) -> bool {
        let operators = OPERATORS.contains(&path);
        match self {
            Self::All => true,
            Self::Public => !operators,
            Self::Operators => {
                let below = BELOW.iter().any(|begin| path.starts_with(begin));
                operators || below || EVERYBODY.contains(&path)
            }
        }
    }
}

/// Answers 404 to what the address has not.
pub(crate) async fn keep_to_routes(
    State(routes): State<Routes>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    if !routes.has(path) {
        return Err(ApiError::RouteNotFound(path.to_owned()));
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_operators_are_apart() {
        let has = |path| [Routes::All, Routes::Public, Routes::Operators].map(|one| one.has(path));
        assert_eq!(has("/metrics"), [true, false, true]);
        assert_eq!(has("/v1/load_lora_adapter"), [true, false, true]);
        assert_eq!(has("/health/ready"), [true, true, true]);
        assert_eq!(has("/v1/chat/completions"), [true, true, false]);
        assert_eq!(has("/"), [true, true, false]);
        assert_eq!(has("/docs/flags"), [true, true, true]);
    }
}
