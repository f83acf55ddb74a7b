//! Requests to a model's process, and its answers as they come: nothing is held back on the way, and a
//! client that leaves takes its request along.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use serde_json::json;

use super::connection::{Connection, ProxyError, send};
use super::keeper::Lease;

/// Headers that are about one connection alone.
const OF_CONNECTION: [header::HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Sends a request to the process that `lease` is for. The answer has the lease, which ends with it.
pub(super) async fn forward(
    lease: Lease,
    mut parts: Parts,
    body: Body,
) -> Result<Response<Body>, ProxyError> {
    prepare(&mut parts);
    let (response, connection) = send(&lease.address, Request::from_parts(parts, body)).await?;
    let (mut parts, body) = response.into_parts();
    remove_of_connection(&mut parts.headers);
    let last = LastWords::of(&parts.headers);
    let relayed = Relayed { body, last, done: false, _connection: connection, lease };
    Ok(Response::from_parts(parts, Body::new(relayed)))
}

/// Makes a request one of ours: over HTTP/1.1, for a path, without what is about the client's connection.
fn prepare(parts: &mut Parts) {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().unwrap_or(Uri::from_static("/"));
    parts.version = axum::http::Version::HTTP_11;
    remove_of_connection(&mut parts.headers);
    parts.headers.remove(header::EXPECT);
    parts.headers.entry(header::HOST).or_insert(HeaderValue::from_static("model"));
    parts.extensions.clear();
}

fn remove_of_connection(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// How a stream tells its client that it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastWords {
    /// As an event.
    Event,
    /// As a line of JSON.
    Line,
    /// By ending too early.
    None,
}

impl LastWords {
    fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match kind {
            Some(kind) if kind.starts_with("text/event-stream") => Self::Event,
            Some(kind) if kind.starts_with("application/x-ndjson") => Self::Line,
            _ => Self::None,
        }
    }

    fn say(self, message: &str) -> Option<Bytes> {
        match self {
            Self::Event => {
                // In the words of all protocols: each client reads its own.
                let error = json!({
                    "type": "error", "code": null, "message": message, "param": null,
                    "error": {
                        "message": message, "type": "server_error", "param": null, "code": null,
                    },
                });
                Some(format!("event: error\ndata: {error}\n\n").into())
            }
            Self::Line => Some(format!("{}\n", json!({ "error": message })).into()),
            Self::None => None,
        }
    }
}

/// An answer on its way. The lease ends when it does.
struct Relayed {
    body: Incoming,
    last: LastWords,
    done: bool,
    _connection: Connection,
    lease: Lease,
}

impl HttpBody for Relayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.done {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Err(error))) => {
                self.done = true;
                let name = &self.lease.name;
                tracing::warn!(model = name, %error, "an answer was cut");
                let message = format!("{name}: the model's process ended before its answer did");
                Poll::Ready(Some(match self.last.say(&message) {
                    Some(words) => Ok(Frame::data(words)),
                    None => Err(error),
                }))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_a_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer a"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        remove_of_connection(&mut headers);
        assert_eq!(
            headers.keys().map(header::HeaderName::as_str).collect::<Vec<_>>(),
            ["authorization"]
        );
    }

    #[test]
    fn streams_say_that_they_are_broken_in_their_own_way() {
        let of = |kind: &'static str| {
            let pair = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
            LastWords::of(&[pair].into_iter().collect())
        };
        let event = of("text/event-stream; charset=utf-8").say("gone").unwrap();
        assert!(
            event.starts_with(b"event: error\ndata: {\"type\":\"error\",")
                && event.ends_with(b"\n\n")
        );
        assert_eq!(of("application/x-ndjson").say("gone").unwrap(), "{\"error\":\"gone\"}\n");
        assert_eq!(of("application/json").say("gone"), None);
    }
}
