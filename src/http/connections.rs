//! Connections: accepted, served over HTTP/1.1 or HTTP/2, and ended. Knows no routes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bounded_io::{BoundedIo, IoBounds};
use super::listener::{Accepted, Listener};
use crate::metrics::MetricsHandle;

/// How long a connection may take for the headers of its next request, waiting for it included. A client
/// that lets them trickle would hold it for ever.
const HEADERS: Duration = Duration::from_secs(75);
/// How long a client may leave its answer unread.
const UNREAD: Duration = Duration::from_mins(1);
/// The pause after a connection could not be taken, for want of files for example.
const PAUSE: Duration = Duration::from_secs(1);
/// Requests of one HTTP/2 connection that may run at once.
const STREAMS: u32 = 256;
/// Requests that an HTTP/2 client may take back before it has heard of them; one more ends the connection.
const RESETS: usize = 20;
/// Most bytes of headers of a request over HTTP/2. HTTP/1.1 has a bound of its own.
const HEADER_BYTES: u32 = 64 << 10;
/// How often an HTTP/2 client is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);

/// What one connection too many is told.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
content-type: application/json\r\ncontent-length: 107\r\n\r\n{\"error\": {\"message\": \"too many \
connections\", \"type\": \"unavailable_error\", \"param\": null, \"code\": null}}\n\n\n";

/// Bounds on connections, and who counts them.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// For the headers of a request.
    pub(super) headers: Duration,
    /// For a client to read.
    pub(super) unread: Duration,
    /// Most connections at once.
    pub(super) most: usize,
    /// How long those who have connected may still ask after a stop.
    pub(super) linger: Duration,
    pub(super) metrics: Option<MetricsHandle>,
}

impl Bounds {
    /// The usual times, for at most so many connections.
    pub(super) fn new(most: usize, metrics: Option<MetricsHandle>) -> Self {
        Self { headers: HEADERS, unread: UNREAD, most, linger: Duration::ZERO, metrics }
    }
}

/// Serves connections until `stop` resolves; then takes no more, and waits for those that answer.
pub(super) async fn serve(
    listener: Listener,
    router: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    serve_telling(listener, router, bounds, stop, || {}).await;
}

/// The same, and calls `closed` once no more are taken.
pub(super) async fn serve_telling(
    listener: Listener,
    router: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
    closed: impl FnOnce(),
) {
    let builder = Arc::new(builder(&bounds));
    let room = Arc::new(Semaphore::new(bounds.most.min(Semaphore::MAX_PERMITS)));
    let connections = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_of_the_client(&error) {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            accepted.refuse(FULL);
            if let Some(metrics) = &bounds.metrics {
                metrics.connection_refused();
            }
            continue;
        };
        let counted = Counted::new(permit, bounds.metrics.clone());
        let (builder, router) = (Arc::clone(&builder), router.clone());
        let (watcher, bounds) = (connections.watcher(), bounds.clone());
        tokio::spawn(async move {
            let served = serve_one(accepted, &builder, router, watcher, &bounds).await;
            if let Err(error) = served {
                tracing::debug!(error, "a connection ended early");
            }
            drop(counted);
        });
    }
    drop(listener);
    closed();
    // A graceful end cuts off, without an answer, who has connected and not asked yet.
    tokio::time::sleep(bounds.linger).await;
    connections.shutdown().await;
}

fn builder(bounds: &Bounds) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(bounds.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

async fn serve_one(
    accepted: Accepted,
    builder: &auto::Builder<TokioExecutor>,
    router: Router,
    watcher: Watcher,
    bounds: &Bounds,
) -> Result<(), String> {
    // A handshake takes as long as headers may.
    let stream = tokio::time::timeout(bounds.headers, accepted.stream()).await;
    let stream = stream.map_err(|_| "the TLS handshake took too long".to_owned())?;
    let stream = stream.map_err(|error| error.to_string())?;
    let io = BoundedIo::new(stream, IoBounds { begin: bounds.headers, stall: bounds.unread });
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    watcher.watch(connection).await.map_err(|error| error.to_string())
}

/// A connection as long as it is there.
struct Counted {
    _permit: OwnedSemaphorePermit,
    metrics: Option<MetricsHandle>,
}

impl Counted {
    fn new(permit: OwnedSemaphorePermit, metrics: Option<MetricsHandle>) -> Self {
        metrics.iter().for_each(MetricsHandle::connection_opened);
        Self { _permit: permit, metrics }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.iter().for_each(MetricsHandle::connection_closed);
    }
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn start(bounds: Bounds) -> SocketAddr {
        start_until(bounds, std::future::pending()).await
    }

    async fn start_until(
        bounds: Bounds,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let big = || async { "x".repeat(64 << 20) };
        let router = Router::new().route("/big", axum::routing::get(big));
        tokio::spawn(serve(listener.into(), router, bounds, stop));
        address
    }

    /// What the server sends until it ends the connection, which it must do.
    async fn rest(mut stream: TcpStream) -> Vec<u8> {
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut answer));
        // Whether an answer comes or not.
        let _ = ended.await.expect("the server ends the connection");
        answer
    }

    async fn is_served(address: SocketAddr) -> bool {
        let mut quick = TcpStream::connect(address).await.unwrap();
        quick.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        quick.read_exact(&mut first).await.is_ok() && &first == b"HTTP/1.1 404"
    }

    fn quick(most: usize) -> Bounds {
        let headers = Duration::from_millis(100);
        Bounds { headers, ..Bounds::new(most, None) }
    }

    #[tokio::test]
    async fn headers_that_trickle_or_never_come_end_a_connection() {
        let address = start(quick(100)).await;
        for sent in [&b"GET / HTTP/1.1\r\nhost: x\r\n"[..], b"", b"PRI * HT"] {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(sent).await.unwrap();
            rest(slow).await;
        }
        assert!(is_served(address).await);
    }

    #[tokio::test]
    async fn who_connected_before_a_stop_may_ask_for_a_while() {
        for (linger, answered) in [(Duration::from_secs(5), true), (Duration::ZERO, false)] {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let bounds = Bounds { linger, ..Bounds::new(100, None) };
            let address = start_until(bounds, async move { drop(stopped.await) }).await;
            // One that has asked already shows that the other was accepted, too.
            let mut early = TcpStream::connect(address).await.unwrap();
            assert!(is_served(address).await);
            drop(stop);
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _ =
                early.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
            assert_eq!(rest(early).await.starts_with(b"HTTP/1.1 404"), answered, "{linger:?}");
        }
    }

    #[tokio::test]
    async fn one_connection_too_many_is_told_so_until_there_is_room() {
        let metrics = crate::metrics::install("m");
        let address = start(Bounds::new(3, Some(metrics.clone()))).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = rest(TcpStream::connect(address).await.unwrap()).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nretry-after: 1\r\n"));
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
        let text = metrics.render();
        assert!(text.contains("sconce:open_connections{model_name=\"m\",engine=\"0\"} 3"));
        let refused = "sconce:refused_connections_total{model_name=\"m\",engine=\"0\"} 1";
        assert!(text.contains(refused), "{text}");
        open.clear();
        while !is_served(address).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_answer_is_cut() {
        let metrics = crate::metrics::install("m");
        let unread = Duration::from_millis(200);
        let address = start(Bounds { unread, ..Bounds::new(9, Some(metrics.clone())) }).await;
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        deaf.readable().await.unwrap();
        let none = "sconce:open_connections{model_name=\"m\",engine=\"0\"} 0";
        for _ in 0..600 {
            if metrics.render().contains(none) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the connection is still open");
    }
}
