//! Connections to models' processes: one for each request, and questions that this server asks itself.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Method, Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::child::Address;

/// Most bytes of an answer about a model.
const ASKED_BYTES: usize = 64 << 20;

/// Why a process gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("its process can't be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("its process ended before it answered: {0}")]
    Broken(#[from] hyper::Error),
}

/// The JSON that a process answers with, if it does.
pub(super) async fn ask_json(
    address: &Address,
    path: &str,
    key: Option<&str>,
    body: Option<Value>,
) -> Option<Value> {
    let answer = ask(address, path, key, body).await?;
    serde_json::from_slice(&answer).ok()
}

/// The text that a process answers with, if it does.
pub(super) async fn ask_text(address: &Address, path: &str, key: Option<&str>) -> Option<String> {
    String::from_utf8(ask(address, path, key, None).await?.into()).ok()
}

async fn ask(
    address: &Address,
    path: &str,
    key: Option<&str>,
    body: Option<Value>,
) -> Option<Bytes> {
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "model");
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    let body = body.map_or(Body::empty(), |body| Body::from(body.to_string()));
    let request = request.header(header::CONTENT_TYPE, "application/json").body(body).ok()?;
    let (response, _connection) = send(address, request).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    to_bytes(Body::new(response.into_body()), ASKED_BYTES).await.ok()
}

/// Ends the connection when it is dropped, whatever is still on the way: the process takes that for
/// a client that has left.
#[derive(Debug)]
pub(super) struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Each request has a connection of its own: to open one takes some microseconds on this machine, and none
/// is ever found dead.
pub(super) async fn send(
    address: &Address,
    request: Request<Body>,
) -> Result<(Response<Incoming>, Connection), ProxyError> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            send_over(TokioIo::new(stream), request).await
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await?;
            send_over(TokioIo::new(stream), request).await
        }
        #[cfg(not(unix))]
        Address::Unix(_) => Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into()),
    }
}

async fn send_over<S>(
    stream: S,
    request: Request<Body>,
) -> Result<(Response<Incoming>, Connection), ProxyError>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a model ended early");
        }
    });
    let guard = Connection(task.abort_handle());
    Ok((sender.send_request(request).await?, guard))
}
