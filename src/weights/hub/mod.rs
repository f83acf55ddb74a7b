//! Models by hub id: which files are needed, where the shared cache keeps them, how to get them.
//!
//! The cache is the one of `huggingface_hub` (`HF_HOME`, `HF_HUB_CACHE`), so what another program
//! downloaded is found here and the other way round. Knows file names, never their content.

mod cache;
#[cfg(feature = "hub")]
mod client;
pub mod error;
#[cfg(feature = "hub")]
mod progress;
#[cfg(feature = "hub")]
mod refusal;
mod selection;
#[cfg(feature = "hub")]
mod transfer;

use std::fmt;
use std::path::{Path, PathBuf};

use cache::RepoCache;
use error::HubError;

use super::model_ref::HubRef;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// About 20 seconds without a network.
const DEFAULT_RETRIES: u32 = 7;
const DEFAULT_REVISION: &str = "main";

/// How to reach the hub and its cache.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    /// Use the cache only.
    pub offline: bool,
    /// Show progress bars when standard error is a terminal.
    pub progress: bool,
    /// The hub's address.
    pub endpoint: String,
    /// The cache folder (`.../hub`).
    pub cache: PathBuf,
    /// The access token.
    pub token: Option<String>,
    /// How often a transfer that brings nothing is tried again before it is given up.
    pub retries: u32,
}

impl HubOptions {
    /// What the environment says, in the words of `huggingface_hub`: `HF_ENDPOINT`;
    /// `HF_HUB_CACHE`, `HF_HOME`; `HF_TOKEN` or the token file; `HF_HUB_OFFLINE`;
    /// `HF_HUB_DISABLE_PROGRESS_BARS`.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The cache at `cache` and no network.
    pub fn offline(cache: &Path) -> Self {
        Self {
            offline: true,
            progress: false,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            cache: cache.to_owned(),
            token: None,
            retries: DEFAULT_RETRIES,
        }
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let on = |name: &str| {
            let value = variable(name).unwrap_or_default().to_ascii_lowercase();
            matches!(value.as_str(), "1" | "true" | "yes" | "on")
        };
        let user_home = || {
            let caches = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache");
            variable("XDG_CACHE_HOME").map_or_else(caches, PathBuf::from).join("huggingface")
        };
        let home = variable("HF_HOME").map_or_else(user_home, PathBuf::from);
        let cache = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        let token_file =
            variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        let stored_token = || {
            let text = std::fs::read_to_string(&token_file).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let token = if on("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            None
        } else {
            variable("HF_TOKEN").map(|token| token.trim().to_owned()).or_else(stored_token)
        };
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Self {
            offline: on("HF_HUB_OFFLINE"),
            progress: !on("HF_HUB_DISABLE_PROGRESS_BARS"),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache: cache.map_or_else(|| home.join("hub"), PathBuf::from),
            token,
            retries: DEFAULT_RETRIES,
        }
    }
}

/// Without the token.
impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubOptions")
            .field("offline", &self.offline)
            .field("progress", &self.progress)
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("token", &self.token.as_ref().map(|_| "(set)"))
            .field("retries", &self.retries)
            .finish()
    }
}

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
    let download = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(fetch(reference, options)),
            Err(error) => Err(HubError::Refused {
                repository: reference.repository.clone(),
                reason: format!("no runtime for the download: {error}"),
            }),
        }
    };
    // A thread of its own, since a runtime can't be blocked on from within another.
    std::thread::scope(|scope| scope.spawn(download).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> HubOptions {
        HubOptions::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_speaks_the_words_of_huggingface_hub() {
        let default = options(&[("HOME", "/home/u")]);
        assert_eq!(default.endpoint, "https://huggingface.co");
        assert_eq!(default.cache, Path::new("/home/u/.cache/huggingface/hub"));
        assert!(!default.offline && default.progress && default.token.is_none());
        assert_eq!(options(&[("XDG_CACHE_HOME", "/x")]).cache, Path::new("/x/huggingface/hub"));
        assert_eq!(options(&[("HF_HOME", "/h")]).cache, Path::new("/h/hub"));
        let set = options(&[
            ("HF_HOME", "/h"),
            ("HF_HUB_CACHE", "/c"),
            ("HF_ENDPOINT", "http://localhost:1/"),
            ("HF_TOKEN", "hf_secret\n"),
            ("HF_HUB_OFFLINE", "1"),
        ]);
        assert_eq!(set.cache, Path::new("/c"));
        assert_eq!(set.endpoint, "http://localhost:1");
        assert_eq!(set.token.as_deref(), Some("hf_secret"));
        assert!(set.offline);
        assert!(!format!("{set:?}").contains("secret"));
    }

    #[test]
    fn the_token_file_is_read_unless_switched_off() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        std::fs::write(home.path().join("token"), " hf_file\n").unwrap();
        assert_eq!(options(&[("HF_HOME", path)]).token.as_deref(), Some("hf_file"));
        let off = options(&[("HF_HOME", path), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]);
        assert_eq!(off.token, None);
    }
}
