//! The certificate that clients see, read from files and read again when they change.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// What clients may speak inside.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Encrypts connections with a certificate. Cheap to clone; all clones have the newest one.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Files>);

#[derive(Debug)]
struct Files {
    certificates: PathBuf,
    key: PathBuf,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// When each of the files was changed before it was read.
    changed: [Option<SystemTime>; 2],
}

/// A certificate that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or holds nothing of the kind.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// The files don't belong together.
    #[error("{0} and {1}: {2}")]
    Pair(PathBuf, PathBuf, String),
}

impl Tls {
    /// Reads a chain of certificates, the server's first, and the key of that one, both in PEM.
    ///
    /// # Errors
    /// When they can't be used.
    pub fn open(certificates: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let changed = changed(&certificates, &key);
        let config = config(&certificates, &key)?;
        let current = RwLock::new(Current { config, changed });
        Ok(Self(Arc::new(Files { certificates, key, current })))
    }

    /// Reads the files again, for connections from now on. Says whether they had changed.
    ///
    /// # Errors
    /// When they can't be used; then the certificate stays as it was.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let Files { certificates, key, current } = &*self.0;
        let changed = changed(certificates, key);
        if current.read().unwrap_or_else(PoisonError::into_inner).changed == changed {
            return Ok(false);
        }
        let config = config(certificates, key)?;
        *current.write().unwrap_or_else(PoisonError::into_inner) = Current { config, changed };
        Ok(true)
    }

    /// Does a handshake with the newest certificate.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner).config.clone();
        TlsAcceptor::from(current).accept(stream).await
    }
}

fn changed(certificates: &PathBuf, key: &PathBuf) -> [Option<SystemTime>; 2] {
    [certificates, key].map(|path| std::fs::metadata(path).ok()?.modified().ok())
}

fn config(certificates: &PathBuf, key: &PathBuf) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |path: &PathBuf| {
        let path = path.clone();
        move |error: &dyn std::fmt::Display| TlsError::File(path.clone(), error.to_string())
    };
    let (of_chain, of_key) = (wrong(certificates), wrong(key));
    let chain = CertificateDer::pem_file_iter(certificates).map_err(|error| of_chain(&error))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| of_chain(&error))?;
    if chain.is_empty() {
        return Err(of_chain(&"there is no certificate in it"));
    }
    let own = PrivateKeyDer::from_pem_file(key).map_err(|error| of_key(&error))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let pair = |error: &dyn std::fmt::Display| {
        TlsError::Pair(certificates.clone(), key.clone(), error.to_string())
    };
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| pair(&error))?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, own).map_err(|error| pair(&error))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}
