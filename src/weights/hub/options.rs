//! How the hub and its cache are reached, as the environment says it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::watch::Watch;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// About 20 seconds without a network.
const DEFAULT_RETRIES: u32 = 7;

/// How to reach the hub and its cache.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    /// Use the cache only.
    pub offline: bool,
    /// Show progress bars when standard error is a terminal.
    pub progress: bool,
    /// Get the vision tower of a GGUF model too, where it is a file beside it.
    pub projector: bool,
    /// The hub's address.
    pub endpoint: String,
    /// The cache folder (`.../hub`).
    pub cache: PathBuf,
    /// The access token.
    pub token: Option<String>,
    /// How often a transfer that brings nothing is tried again before it is given up.
    pub retries: u32,
    /// Where others see how far a download is.
    pub watch: Watch,
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
            projector: true,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            cache: cache.to_owned(),
            token: None,
            retries: DEFAULT_RETRIES,
            watch: Watch::default(),
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
            projector: true,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache: cache.map_or_else(|| home.join("hub"), PathBuf::from),
            token,
            retries: DEFAULT_RETRIES,
            watch: Watch::default(),
        }
    }
}

/// Shows the settings, but not the token.
impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubOptions")
            .field("offline", &self.offline)
            .field("progress", &self.progress)
            .field("projector", &self.projector)
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("token", &self.token.as_ref().map(|_| "(set)"))
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
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
