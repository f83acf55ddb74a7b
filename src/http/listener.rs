//! Where connections come from: a TCP port or a Unix socket, encrypted or not.

use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

#[cfg(feature = "tls")]
use super::tls::Tls;

/// A bound address that nobody listens to yet.
#[derive(Debug)]
pub enum Bound {
    /// A TCP port.
    Tcp(std::net::TcpListener),
    /// A Unix socket, whose file goes with it.
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// The file of a Unix socket, removed when this is dropped.
#[cfg(unix)]
#[derive(Debug)]
pub struct SocketFile(PathBuf);

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "the socket can't be removed");
        }
    }
}

impl Bound {
    /// Binds a TCP port.
    ///
    /// # Errors
    /// When it is taken, or not this machine's.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// Binds a Unix socket. A socket that a server left behind, which nobody listens to, is replaced.
    ///
    /// # Errors
    /// When somebody listens to it, it is no socket, or its folder can't be written.
    #[cfg(unix)]
    pub fn unix(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        use std::os::unix::net::{UnixListener, UnixStream};
        let is_socket = path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket());
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(path).is_err_and(refused) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, SocketFile(path.to_owned())))
    }

    /// The address, as people read it: `http://127.0.0.1:8000` or `unix:/run/sconce.sock`.
    ///
    /// # Errors
    /// When the system doesn't know the port.
    pub fn name(&self, encrypted: bool) -> io::Result<String> {
        let scheme = if encrypted { "https" } else { "http" };
        match self {
            Self::Tcp(listener) => Ok(format!("{scheme}://{}", listener.local_addr()?)),
            #[cfg(unix)]
            Self::Unix(_, file) => Ok(format!("unix:{}", file.0.display())),
        }
    }

    /// Begins to listen. Connections go to whoever of all listeners asks first.
    ///
    /// # Errors
    /// When the system has no file for it.
    pub fn listener(&self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => TcpListener::from_std(listener.try_clone()?)?.into(),
            #[cfg(unix)]
            Self::Unix(listener, _) => {
                Socket::Unix(UnixListener::from_std(listener.try_clone()?)?).into()
            }
        })
    }
}

/// Takes connections.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl From<Socket> for Listener {
    fn from(socket: Socket) -> Self {
        Self {
            socket,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Socket::Tcp(listener).into()
    }
}

impl Listener {
    /// The same, for encrypted connections alone if there is a certificate.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        let socket = match &self.socket {
            Socket::Tcp(listener) => AcceptedSocket::Tcp(prepared(listener.accept().await?.0)),
            #[cfg(unix)]
            Socket::Unix(listener) => AcceptedSocket::Unix(listener.accept().await?.0),
        };
        Ok(Accepted {
            socket,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        })
    }
}

/// Without it, the kernel holds back a token's packet until the one before is acknowledged.
fn prepared(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    stream
}

/// A connection of which nothing was read.
pub(super) struct Accepted {
    socket: AcceptedSocket,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

enum AcceptedSocket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

impl Accepted {
    /// Ends the connection; a client that waits for no handshake is told why.
    pub(super) fn refuse(self, answer: &[u8]) {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return;
        }
        // There is room for it in a buffer that is empty; a client that is gone needs no answer.
        let _ = match &self.socket {
            AcceptedSocket::Tcp(stream) => stream.try_write(answer),
            #[cfg(unix)]
            AcceptedSocket::Unix(stream) => stream.try_write(answer),
        };
    }

    /// The bytes to read and write, after the handshake if there is one.
    pub(super) async fn stream(self) -> io::Result<Box<dyn Duplex>> {
        let stream: Box<dyn Duplex> = match self.socket {
            AcceptedSocket::Tcp(stream) => Box::new(stream),
            #[cfg(unix)]
            AcceptedSocket::Unix(stream) => Box::new(stream),
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls {
            return Ok(Box::new(tls.accept(stream).await?));
        }
        Ok(stream)
    }
}
