//! Models by hub id: which files are needed, where the shared cache keeps them, how to get them.
//!
//! The cache is the one of `huggingface_hub` (`HF_HOME`, `HF_HUB_CACHE`), so what another program
//! downloaded is found here and the other way round. Knows file names, never their content.

mod cache;
#[cfg(feature = "hub")]
mod client;
pub mod error;
#[cfg(feature = "hub")]
pub mod headers;
pub mod inventory;
mod options;
#[cfg(feature = "hub")]
mod progress;
#[cfg(feature = "hub")]
mod refusal;
mod selection;
#[cfg(feature = "hub")]
mod transfer;
pub mod watch;

use std::path::PathBuf;

use cache::RepoCache;
use error::HubError;
pub use options::HubOptions;
pub(crate) use selection::is_model_gguf;

use super::model_ref::HubRef;

const DEFAULT_REVISION: &str = "main";

/// Downloads what `reference` needs and the cache lacks; gives the folder, or the GGUF file.
///
/// An interrupted download goes on where it stopped. Without a network, a complete model in the
/// cache is used.
///
/// # Errors
/// When the hub refuses, can't be reached, or lacks a file.
pub async fn fetch(reference: &HubRef, options: &HubOptions) -> Result<PathBuf, HubError> {
    let cache = RepoCache::new(&options.cache, &reference.repository);
    let revision = reference.revision.as_deref().unwrap_or(DEFAULT_REVISION);
    let cached = cache.find(revision, reference.file.as_ref());
    if options.offline {
        return cached.map_err(|missing| HubError::NotCached {
            repository: reference.repository.clone(),
            missing,
            cache: options.cache.display().to_string(),
        });
    }
    match cached {
        // A commit never changes, so there is nothing to ask.
        Ok(path) if cache::is_commit(revision) => Ok(path),
        cached => online(reference, revision, options, &cache, cached.ok()).await,
    }
}

/// [`fetch`] for callers outside of an async runtime, and inside of one.
///
/// # Errors
/// As [`fetch`].
pub fn fetch_blocking(reference: &HubRef, options: &HubOptions) -> Result<PathBuf, HubError> {
    blocking(reference, || fetch(reference, options))
}

/// Runs what asks the hub on a thread of its own, since a runtime can't be blocked on from within another.
fn blocking<T: Send, F: Future<Output = Result<T, HubError>>>(
    reference: &HubRef,
    work: impl FnOnce() -> F + Send,
) -> Result<T, HubError> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(work()),
            Err(error) => Err(HubError::Refused {
                repository: reference.repository.clone(),
                reason: format!("no runtime for the download: {error}"),
            }),
        }
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether all that `reference` means is in the cache.
pub fn is_cached(reference: &HubRef, options: &HubOptions) -> bool {
    let cache = RepoCache::new(&options.cache, &reference.repository);
    let revision = reference.revision.as_deref().unwrap_or(DEFAULT_REVISION);
    cache.find(revision, reference.file.as_ref()).is_ok()
}

/// Fetches small files and the headers of large ones, into files that go with the result.
///
/// # Errors
/// As [`fetch`].
#[cfg(feature = "hub")]
pub fn fetch_headers_blocking(
    reference: &HubRef,
    options: &HubOptions,
) -> Result<headers::Headers, HubError> {
    let cache = RepoCache::new(&options.cache, &reference.repository);
    let revision = reference.revision.as_deref().unwrap_or(DEFAULT_REVISION);
    blocking(reference, || headers::fetch(reference, revision, options, &cache))
}

#[cfg(feature = "hub")]
async fn online(
    reference: &HubRef,
    revision: &str,
    options: &HubOptions,
    cache: &RepoCache,
    cached: Option<PathBuf>,
) -> Result<PathBuf, HubError> {
    let fetched = client::fetch(reference, revision, options, cache).await;
    match (fetched, cached) {
        (Err(error @ HubError::Unreachable { .. }), Some(path)) => {
            tracing::warn!(%error, path = %path.display(), "the cached model is used");
            Ok(path)
        }
        (fetched, _) => fetched,
    }
}

#[cfg(not(feature = "hub"))]
async fn online(
    reference: &HubRef,
    _revision: &str,
    _options: &HubOptions,
    _cache: &RepoCache,
    cached: Option<PathBuf>,
) -> Result<PathBuf, HubError> {
    cached.ok_or_else(|| HubError::NotBuilt { repository: reference.repository.clone() })
}
