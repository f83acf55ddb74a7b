//! Connections: accepted, served, and ended. Knows no routes.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

/// How long a connection may take for the headers of its next request, waiting for it included. A client
/// that lets them trickle would hold it for ever.
pub(super) const HEADERS: Duration = Duration::from_secs(75);
/// The pause after a connection could not be taken, for want of files for example.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves connections until `stop` resolves; then takes no more, and waits for those that answer.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    headers: Duration,
    stop: impl Future<Output = ()>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(headers);
    let connections = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => prepared(stream),
            Err(error) => {
                if !is_of_the_client(&error) {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// Without it, the kernel holds back a token's packet until the one before is acknowledged.
fn prepared(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    stream
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn headers_that_trickle_end_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let headers = Duration::from_millis(100);
        tokio::spawn(serve(listener, Router::new(), headers, std::future::pending()));
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        // The end comes, whether an answer does or not.
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_mins(1), slow.read_to_end(&mut answer));
        let _ = ended.await.expect("the server ends the connection");
        let mut quick = TcpStream::connect(address).await.unwrap();
        quick.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        quick.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 404");
    }
}
