//! What a server has around its routes that computes nothing itself and passes requests on: listening,
//! keys, bodies, the shapes of errors, and the chat page.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use uuid::Uuid;

pub(crate) use super::LAST_WRITES;
use super::Listeners;
use super::connections::{self, Bounds};
pub(crate) use super::error::ApiError;
use super::middleware::auth;
use super::middleware::ports::{Routes, keep_to_routes};
pub(crate) use super::ollama::models::VERSION as OLLAMA_VERSION;
use super::page;
pub(crate) use super::page::routes as page_files;
use super::request::body::read_all;
use super::request::id::{REQUEST_ID, is_request_id};
use super::router::{in_all_protocols, with_short_paths};
use super::state::keys::Keys;
use super::state::keys::scope::Scope;
use crate::config::ServerConfig;

/// Where keys that may do more are asked for.
type NeedsAdmin = fn(&axum::http::Method, &str) -> bool;

/// Whom a server lets in.
#[derive(Clone, Debug)]
struct Doors {
    keys: Arc<Keys>,
    needs_admin: NeedsAdmin,
}

/// Serves `router` on all addresses until `closed` resolves, and the answers that have begun then.
pub(crate) async fn serve(
    listeners: Listeners,
    router: Router,
    config: &ServerConfig,
    needs_admin: NeedsAdmin,
    closed: impl Future<Output = ()> + Clone + Send + 'static,
) {
    let Listeners { public, operators } = listeners;
    let bounds = Bounds::new(config.max_connections, None);
    let keys = Arc::new(Keys::new(config));
    let doors = Doors { keys, needs_admin };
    let of = |routes| {
        let layered = router
            .clone()
            .layer(from_fn_with_state(routes, keep_to_routes))
            .layer(from_fn_with_state(doors.clone(), require_key))
            .layer(from_fn(identify));
        with_short_paths(in_all_protocols(layered, &config.cors_origins))
    };
    let own = if operators.is_some() { Routes::Public } else { Routes::All };
    let public = connections::serve(public, of(own), bounds.clone(), closed.clone());
    let Some(operators) = operators else { return public.await };
    let operators = connections::serve(operators, of(Routes::Operators), bounds, closed);
    tokio::join!(public, operators);
}

/// The chat page, where the request is a browser's.
pub(crate) fn chat_page(headers: &HeaderMap) -> Option<Response> {
    page::wants_page(headers).then(|| page::chat(headers))
}

/// A request's body.
///
/// # Errors
/// It is larger than `limit`, or stops coming.
pub(crate) async fn read_body(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    Ok(read_all(body, limit).await?.into())
}

async fn require_key(
    State(doors): State<Doors>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let open = auth::is_open(path) || page::is_public(path, request.headers());
    if !doors.keys.is_open() && !open {
        let key = auth::check(&doors.keys, request.headers())?;
        if (doors.needs_admin)(request.method(), path) && !key.opens(&[Scope::Admin]) {
            let message = "this needs a key that the server was given as --admin-api-key";
            return Err(ApiError::Permission(message));
        }
    }
    Ok(next.run(request).await)
}

/// Gives a request an id, which whoever answers it uses as well.
async fn identify(mut request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).filter(|id| is_request_id(id.as_bytes()));
    let id = given.cloned().unwrap_or_else(|| {
        let made = Uuid::new_v4().simple().to_string();
        HeaderValue::try_from(made).expect("hexadecimal digits are visible ASCII")
    });
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}
