//! The addresses that the server listens on, bound before the model is loaded.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::config::ServerConfig;
use crate::http::Listeners;
use crate::http::listener::{Bound, Listener};
#[cfg(feature = "tls")]
use crate::http::tls::Tls;

/// How often the files of a certificate are looked at.
const CHECK: Duration = Duration::from_secs(10);

/// Bound addresses.
pub(super) struct Addresses {
    public: Bound,
    operators: Option<Bound>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl Addresses {
    /// Binds what the configuration names, so that a taken port or a wrong certificate is known at once.
    pub(super) fn bind(config: &ServerConfig) -> anyhow::Result<Self> {
        let tcp = |port| {
            let address = (config.address.ip(), port).into();
            Bound::tcp(address).with_context(|| format!("can't listen on {address}"))
        };
        let public = match &config.uds {
            Some(path) => unix(path)?,
            None => tcp(config.address.port())?,
        };
        Ok(Self {
            public,
            operators: config.admin_port.map(tcp).transpose()?,
            #[cfg(feature = "tls")]
            tls: open_tls(config)?,
        })
    }

    /// Begins to listen; whoever listened before gets no more connections once it ends.
    pub(super) fn listeners(&self) -> anyhow::Result<Listeners> {
        let operators = self.operators.as_ref().map(|bound| self.listener(bound)).transpose()?;
        Ok(Listeners { public: self.listener(&self.public)?, operators })
    }

    /// Each address by itself.
    pub(super) fn each(&self) -> anyhow::Result<Vec<Listener>> {
        let all = std::iter::once(&self.public).chain(&self.operators);
        all.map(|bound| self.listener(bound)).collect()
    }

    fn listener(&self, bound: &Bound) -> anyhow::Result<Listener> {
        let listener = bound.listener()?;
        #[cfg(feature = "tls")]
        let listener = listener.with_tls(self.tls.clone());
        Ok(listener)
    }

    /// The addresses as people read them, the public one first.
    pub(super) fn names(&self) -> anyhow::Result<Vec<String>> {
        #[cfg(feature = "tls")]
        let encrypted = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let encrypted = false;
        let all = std::iter::once(&self.public).chain(&self.operators);
        Ok(all.map(|bound| bound.name(encrypted)).collect::<std::io::Result<_>>()?)
    }

    /// Reads the certificate again whenever its files change, or at SIGHUP.
    pub(super) fn keep_certificate_new(&self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls.clone() {
            tokio::spawn(async move {
                let mut hangup = super::signals::Hangup::new();
                loop {
                    tokio::select! {
                        () = tokio::time::sleep(CHECK) => {}
                        () = hangup.next() => {}
                    }
                    match tls.reload() {
                        Ok(true) => tracing::info!("the certificate was read again"),
                        Ok(false) => {}
                        Err(error) => {
                            tracing::error!(%error, "the certificate stays as it was");
                        }
                    }
                }
            });
        }
    }
}

#[cfg(unix)]
fn unix(path: &Path) -> anyhow::Result<Bound> {
    Bound::unix(path).with_context(|| format!("can't listen on {}", path.display()))
}

#[cfg(not(unix))]
fn unix(_: &Path) -> anyhow::Result<Bound> {
    anyhow::bail!("--uds: this system has no Unix sockets")
}

#[cfg(feature = "tls")]
fn open_tls(config: &ServerConfig) -> anyhow::Result<Option<Tls>> {
    let Some(files) = config.tls.clone() else { return Ok(None) };
    let opened = Tls::open(files.certificates, files.key);
    Ok(Some(opened.context("--ssl-certfile and --ssl-keyfile can't be used")?))
}

/// Says where the server listens; the first address is the one for everybody.
pub(super) fn announce(names: &[String], took: Duration) -> anyhow::Result<()> {
    writeln!(
        std::io::stdout(),
        "sconce {} is ready on {} after {:.2} s",
        env!("CARGO_PKG_VERSION"),
        names.join(", operators on "),
        took.as_secs_f64()
    )?;
    Ok(std::io::stdout().flush()?)
}
