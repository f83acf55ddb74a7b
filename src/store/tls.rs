//! TLS to PostgreSQL, by rustls.
//!
//! `sslmode` in the address says whether: `require`, `verify-ca` and `verify-full` encrypt and check the
//! server's certificate and name, by the roots in the file `sslrootcert`, or by the system's. This is
//! stricter than libpq, whose `require` checks nothing: an encrypted way to nobody in particular is worth
//! little. Without one of the three nothing is encrypted.

#[cfg(not(feature = "tls"))]
use std::path::Path;
use std::path::PathBuf;

use super::error::StoreError;

/// What the address says of encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The address without what only we read.
    pub(super) address: String,
    pub(super) encrypted: bool,
    pub(super) roots: Option<PathBuf>,
}

impl Wanted {
    /// Reads the query of an address such as `postgres://host/name?sslmode=verify-full`.
    pub(super) fn read(address: &str) -> Result<Self, StoreError> {
        let place = |reason: &str| StoreError::Place(reason.to_owned());
        let (base, query) = address.split_once('?').unwrap_or((address, ""));
        let (mut others, mut roots, mut encrypted) = (Vec::new(), None, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", "require" | "verify-ca" | "verify-full")) => {
                    encrypted = true;
                    others.push("sslmode=require");
                }
                Some(("sslrootcert", path)) if path.contains('%') => {
                    return Err(place("sslrootcert can't have characters that are escaped by %"));
                }
                Some(("sslrootcert", path)) => roots = Some(PathBuf::from(path)),
                _ => others.push(pair),
            }
        }
        if roots.is_some() && !encrypted {
            return Err(place("sslrootcert needs sslmode=verify-full"));
        }
        let query = others.join("&");
        let mark = if query.is_empty() { "" } else { "?" };
        Ok(Self { address: format!("{base}{mark}{query}"), encrypted, roots })
    }

    /// What encrypts, if anything is to.
    pub(super) fn connector(&self) -> Result<Option<Connector>, StoreError> {
        if !self.encrypted {
            return Ok(None);
        }
        Connector::new(self.roots.as_deref()).map(Some).map_err(StoreError::Place)
    }
}

#[cfg(not(feature = "tls"))]
pub(super) use tokio_postgres::NoTls as Connector;

#[cfg(not(feature = "tls"))]
trait Absent: Sized {
    fn new(roots: Option<&Path>) -> Result<Self, String>;
}

#[cfg(not(feature = "tls"))]
impl Absent for Connector {
    fn new(_: Option<&Path>) -> Result<Self, String> {
        Err("this program was built without TLS (the feature `tls`)".to_owned())
    }
}

#[cfg(feature = "tls")]
pub(super) use rustls::Connector;

#[cfg(feature = "tls")]
mod rustls {
    use std::future::Future;
    use std::io;
    use std::path::Path;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use rustls_platform_verifier::Verifier;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream as Inner;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

    /// Encrypts connections; cheap to clone.
    #[derive(Clone)]
    pub(crate) struct Connector(TlsConnector);

    impl Connector {
        /// One that trusts the certificates of this file alone, or those that the system trusts.
        pub(crate) fn new(roots: Option<&Path>) -> Result<Self, String> {
            let provider = Arc::new(crypto::aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?;
            let config = if let Some(path) = roots {
                builder.with_root_certificates(read(path)?).with_no_client_auth()
            } else {
                let verifier = Verifier::new(provider).map_err(|error| error.to_string())?;
                let builder = builder.dangerous();
                builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            };
            Ok(Self(TlsConnector::from(Arc::new(config))))
        }
    }

    /// The certificates of a PEM file.
    fn read(path: &Path) -> Result<RootCertStore, String> {
        let fault =
            |what: &dyn std::fmt::Display| format!("sslrootcert {}: {what}", path.display());
        let mut roots = RootCertStore::empty();
        let all = CertificateDer::pem_file_iter(path).map_err(|error| fault(&error))?;
        for certificate in all {
            let certificate = certificate.map_err(|error| fault(&error))?;
            roots.add(certificate).map_err(|error| fault(&error))?;
        }
        if roots.is_empty() { Err(fault(&"it has no certificate")) } else { Ok(roots) }
    }

    impl std::fmt::Debug for Connector {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("Connector")
        }
    }

    /// Encrypts one connection to a server of this name.
    pub(crate) struct Named(TlsConnector, ServerName<'static>);

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
        type Stream = Stream<S>;
        type TlsConnect = Named;
        type Error = InvalidDnsNameError;

        fn make_tls_connect(&mut self, domain: &str) -> Result<Named, InvalidDnsNameError> {
            Ok(Named(self.0.clone(), ServerName::try_from(domain.to_owned())?))
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Named {
        type Stream = Stream<S>;
        type Error = io::Error;
        type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

        fn connect(self, stream: S) -> Self::Future {
            Box::pin(async move { self.0.connect(self.1, stream).await.map(Stream) })
        }
    }

    /// An encrypted connection.
    pub(crate) struct Stream<S>(Inner<S>);

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, buffer)
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
        fn channel_binding(&self) -> ChannelBinding {
            ChannelBinding::none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_modes_that_verify_encrypt() {
        let read = |query: &str| Wanted::read(&format!("postgres://h/n{query}"));
        for query in ["", "?sslmode=prefer", "?sslmode=disable&application_name=x"] {
            let wanted = read(query).unwrap();
            assert_eq!(wanted.address, format!("postgres://h/n{query}"));
            assert!(!wanted.encrypted && wanted.connector().unwrap().is_none());
        }
        for mode in ["require", "verify-ca", "verify-full"] {
            let wanted = read(&format!("?sslmode={mode}&port=5&sslrootcert=/r.pem")).unwrap();
            assert_eq!(wanted.address, "postgres://h/n?sslmode=require&port=5");
            assert_eq!((wanted.encrypted, wanted.roots), (true, Some(PathBuf::from("/r.pem"))));
        }
        for (query, named) in [
            ("?sslrootcert=/r.pem", "needs sslmode"),
            ("?sslmode=require&sslrootcert=/%20", "escaped"),
        ] {
            assert!(read(query).unwrap_err().to_string().contains(named));
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn files_without_certificates_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roots.pem");
        let fault = || {
            let address =
                format!("postgres://h/n?sslmode=verify-full&sslrootcert={}", path.display());
            Wanted::read(&address).unwrap().connector().unwrap_err().to_string()
        };
        assert!(fault().contains("roots.pem"), "{}", fault());
        std::fs::write(&path, "Dear friend").unwrap();
        assert!(fault().contains("it has no certificate"), "{}", fault());
    }
}
