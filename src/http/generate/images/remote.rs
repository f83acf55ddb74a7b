//! Pictures behind URLs: only from hosts that the operator names, only from public addresses, within
//! bounds of size, time and redirects. A host's addresses are looked up here and the connection goes to
//! them, so that what was checked is what is called.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::{Client, Response, Url, header, redirect};
use tracing::Span;

use super::address::is_public;
use crate::config::MediaConfig;
use crate::telemetry;

/// Most bytes of a picture's file.
const MAX_BYTES: usize = 32 << 20;
/// Most redirects on the way to a picture.
const MAX_REDIRECTS: usize = 3;
/// Longest time from the first look-up to the last byte.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why a picture can't be had.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum RemoteError {
    #[error(
        "pictures are not fetched from {0:?}: send a data URL, or start the server with \
             --allowed-media-domains {0}"
    )]
    Domain(String),
    #[error("{host} is at {address}, which is not public")]
    Private { host: String, address: IpAddr },
    #[error("{0} can't be looked up")]
    Unknown(String),
    #[error("the picture can't be fetched: {0}")]
    Failed(String),
    #[error("the picture can't be fetched: the answer's status is {0}")]
    Status(u16),
    #[error("the picture's file has more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the picture took more than {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error("the picture is behind more than {MAX_REDIRECTS} redirects")]
    Redirects,
}

/// The bytes of the file behind a URL.
pub(super) async fn fetch(url: &Url, config: &MediaConfig) -> Result<Vec<u8>, RemoteError> {
    let fetched = tokio::time::timeout(TIMEOUT, follow(url, config, is_public));
    fetched.await.unwrap_or(Err(RemoteError::TooSlow))
}

/// Follows redirects, each of which is checked as the first URL is.
async fn follow(
    url: &Url,
    config: &MediaConfig,
    may_call: fn(IpAddr) -> bool,
) -> Result<Vec<u8>, RemoteError> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let response = call(&url, config, may_call).await?;
        let status = response.status();
        if status.is_redirection() {
            let location = response.headers().get(header::LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            url = next
                .filter(|next| matches!(next.scheme(), "http" | "https"))
                .ok_or_else(|| RemoteError::Failed("a redirect to nowhere".to_owned()))?;
            continue;
        }
        if !status.is_success() {
            return Err(RemoteError::Status(status.as_u16()));
        }
        return body(response).await;
    }
    Err(RemoteError::Redirects)
}

/// Asks one host, at addresses that were checked.
async fn call(
    url: &Url,
    config: &MediaConfig,
    may_call: fn(IpAddr) -> bool,
) -> Result<Response, RemoteError> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    if !config.allows(&host) {
        return Err(RemoteError::Domain(host));
    }
    let port = url.port_or_known_default().unwrap_or(80);
    let looked_up = tokio::net::lookup_host((host.as_str(), port)).await;
    let addresses: Vec<SocketAddr> =
        looked_up.map_err(|_| RemoteError::Unknown(host.clone()))?.collect();
    if let Some(address) = addresses.iter().map(SocketAddr::ip).find(|ip| !may_call(*ip)) {
        return Err(RemoteError::Private { host, address });
    }
    let client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .resolve_to_addrs(&host, &addresses)
        .connect_timeout(TIMEOUT / 2);
    let failed = |error: reqwest::Error| RemoteError::Failed(error.without_url().to_string());
    let client = client.build().map_err(failed)?;
    let mut request = client.get(url.clone());
    if let Some(place) = telemetry::traceparent(&Span::current()) {
        request = request.header("traceparent", place);
    }
    request.send().await.map_err(failed)
}

async fn body(response: Response) -> Result<Vec<u8>, RemoteError> {
    if response.content_length().is_some_and(|length| length > MAX_BYTES as u64) {
        return Err(RemoteError::TooLarge);
    }
    let (mut bytes, mut parts) = (Vec::new(), response.bytes_stream());
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| RemoteError::Failed(error.without_url().to_string()))?;
        if bytes.len() + part.len() > MAX_BYTES {
            return Err(RemoteError::TooLarge);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that gives every connection this answer; where it is, and how many came.
    async fn server(answer: Vec<u8>) -> (Url, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://127.0.0.1:{}/a.png", listener.local_addr().unwrap().port());
        let calls = std::sync::Arc::default();
        let counted: std::sync::Arc<std::sync::atomic::AtomicUsize> = std::sync::Arc::clone(&calls);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let answer = answer.clone();
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 2048]).await;
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        (Url::parse(&url).unwrap(), calls)
    }

    fn here() -> MediaConfig {
        MediaConfig { domains: vec!["127.0.0.1".to_owned()], ..MediaConfig::default() }
    }

    async fn anywhere(answer: String) -> Result<Vec<u8>, RemoteError> {
        follow(&server(answer.into_bytes()).await.0, &here(), |_| true).await
    }

    #[tokio::test]
    async fn a_file_is_fetched_from_an_allowed_host() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(anywhere(answer.to_owned()).await.unwrap(), b"abc");
        let missing = anywhere("HTTP/1.1 404 Gone\r\ncontent-length: 0\r\n\r\n".to_owned()).await;
        assert_eq!(missing, Err(RemoteError::Status(404)));
    }

    #[tokio::test]
    async fn no_packet_goes_to_an_address_that_is_not_public() {
        let (url, calls) = server(Vec::new()).await;
        let private = fetch(&url, &here()).await;
        assert!(matches!(private, Err(RemoteError::Private { .. })), "{private:?}");
        let unnamed = fetch(&url, &MediaConfig::default()).await;
        assert_eq!(unnamed, Err(RemoteError::Domain("127.0.0.1".to_owned())));
        assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn redirects_are_checked_again_and_end() {
        let to = |url: &str| {
            format!("HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n")
        };
        let elsewhere = anywhere(to("http://localhost/a")).await;
        assert_eq!(elsewhere, Err(RemoteError::Domain("localhost".to_owned())));
        let file = anywhere(to("file:///etc/passwd")).await;
        assert!(matches!(file, Err(RemoteError::Failed(_))), "{file:?}");
        assert_eq!(anywhere(to("/a.png")).await, Err(RemoteError::Redirects));
    }

    #[tokio::test]
    async fn a_body_without_end_is_cut() {
        let said = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MAX_BYTES + 1);
        assert_eq!(anywhere(said).await, Err(RemoteError::TooLarge));
        let mut unsaid = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        unsaid.resize(unsaid.len() + MAX_BYTES + 1, b'x');
        let (url, _) = server(unsaid).await;
        assert_eq!(follow(&url, &here(), |_| true).await, Err(RemoteError::TooLarge));
    }
}
