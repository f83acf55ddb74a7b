//! Why the hub, or its cache on this disk, did not give a model's files.
//!
//! Always compiled, so that a build without the `hub` feature refuses a hub id with the same type.

/// Why a repository's files could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The binary has no hub client.
    #[error(
        "`{repository}` is a hub id, and this build has no hub client: build with `--features \
         hub`, or download the files and give the folder"
    )]
    NotBuilt {
        /// The hub id.
        repository: String,
    },
    /// 401 or 403: private, gated, or a token that is not (or no longer) valid.
    #[error("access to `{repository}` is denied (HTTP {status}): {reason}")]
    Denied {
        /// The hub id.
        repository: String,
        /// The HTTP status, 401 or 403.
        status: u16,
        /// What to do about it.
        reason: String,
    },
    /// The hub has no such repository.
    #[error(
        "no model `{repository}` on {endpoint}: check the spelling; a private model also answers \
         so when HF_TOKEN is not set or lacks access"
    )]
    RepositoryNotFound {
        /// The hub id.
        repository: String,
        /// The hub's address.
        endpoint: String,
    },
    /// The repository exists, the revision doesn't.
    #[error("`{repository}` has no revision `{revision}` (a branch, a tag or a full commit hash)")]
    RevisionNotFound {
        /// The hub id.
        repository: String,
        /// The revision that was asked for.
        revision: String,
    },
    /// The repository exists, the file doesn't.
    #[error("`{repository}` has no file {wanted}: {available}")]
    FileNotFound {
        /// The hub id.
        repository: String,
        /// The file that was looked for.
        wanted: String,
        /// The files that the repository has.
        available: String,
    },
    /// Offline, and the cache lacks something.
    #[error(
        "`{repository}`: {missing} is not in the cache {cache}, and offline mode is on (--offline or HF_HUB_OFFLINE=1)"
    )]
    NotCached {
        /// The hub id.
        repository: String,
        /// The file or revision.
        missing: String,
        /// The cache folder.
        cache: String,
    },
    /// No answer from the hub.
    #[error(
        "{endpoint} can't be reached: {reason}; check the network and HF_ENDPOINT, or use \
         --offline if the files were downloaded before"
    )]
    Unreachable {
        /// The hub's address.
        endpoint: String,
        /// What the transport said.
        reason: String,
    },
    /// A transfer ended early or brought other bytes than announced.
    #[error("download of {file} from `{repository}` failed: {reason}")]
    Transfer {
        /// The hub id.
        repository: String,
        /// The file.
        file: String,
        /// What happened; a repeated command goes on where this one stopped.
        reason: String,
    },
    /// The hub refused for another reason.
    #[error("`{repository}`: {reason}")]
    Refused {
        /// The hub id.
        repository: String,
        /// The hub's words.
        reason: String,
    },
}
