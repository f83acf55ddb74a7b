//! Getting a model from the hub: hf-hub says what a revision is, the missing bytes come by us.
//!
//! hf-hub 1.0 starts an interrupted file anew, takes an error page for its bytes, waits for ever
//! on a silent server and gives up after 10 s where another process holds the lock, so files are
//! asked for and received here and in `transfer`; the revision's commit and its files are
//! hf-hub's answer, over an HTTP client of ours that knows timeouts.
//!
//! Protocol of a file: <https://huggingface.co/docs/hub/api>. `HEAD /{id}/resolve/{commit}/{file}`
//! names its hash and size, in headers of the hub's own answer and not of where it redirects to.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use hf_hub::{HFClient, HFError};
use reqwest::header::{ACCEPT_ENCODING, ETAG, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, Url, redirect};

use super::cache::{self, RepoCache};
use super::error::HubError;
use super::options::HubOptions;
use super::progress::Bars;
use super::refusal::{Answer, Subject};
use super::selection::{self, Selection, WeightFiles};
use super::transfer::{self, Transfer};
use crate::folder::ModelFolder;
use crate::model_ref::HubRef;
use crate::projector;
use crate::safetensors;

/// Files that are transferred at the same time.
const PARALLEL_FILES: usize = 4;
const MAX_REDIRECTS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest silence within an answer.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest wait that the hub may ask for.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// hf-hub's own number: about 3 s in all, which a start without a network waits too.
const MAX_LISTING_RETRIES: u32 = 5;
/// hf-hub reads the environment's token where it gets none, and leaves out what no header can hold.
const NO_TOKEN: &str = "\n";
const USER_AGENT: &str = concat!("sconce/", env!("CARGO_PKG_VERSION"));

/// Downloads what is missing; gives the folder, or the GGUF file.
pub(crate) async fn fetch(
    reference: &HubRef,
    revision: &str,
    options: &HubOptions,
    cache: &RepoCache,
) -> Result<PathBuf, HubError> {
    let client =
        Client::new(Subject { repository: &reference.repository, revision, options }, cache)?;
    let Listing { commit, files } = client.listing().await?;
    let snapshot = cache.snapshot(&commit);
    let selection = selection::select(&reference.repository, &files, reference.file.as_ref())?;
    let path = match selection {
        Selection::Gguf(mut parts) => {
            let first = snapshot.join(&parts[0]);
            let projector = projector::ranked(&files, &parts[0]).into_iter().next();
            parts.extend(projector.filter(|_| options.projector).map(str::to_owned));
            client.get_all(&commit, parts).await?;
            first
        }
        Selection::Checkpoint { small, weights } => {
            client.get_all(&commit, small).await?;
            let weights = match weights {
                WeightFiles::Single(file) => vec![file],
                WeightFiles::Indexed => {
                    safetensors::shard_names(&ModelFolder::Disk(snapshot.clone()))
                        .map_err(|error| client.subject.refused(error.to_string()))?
                }
            };
            client.get_all(&commit, weights).await?;
            snapshot
        }
    };
    if !cache::is_commit(revision) {
        let written = cache.write_ref(revision, &commit);
        written.map_err(|error| {
            client.subject.refused(format!("the cache can't be written: {error}"))
        })?;
    }
    Ok(path)
}

/// What the hub says of a revision: its commit and its files.
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<String>,
}

/// What the hub says of a file.
#[derive(Debug)]
pub(super) struct Remote {
    /// Its hash: SHA-256 of large files, git's of small ones.
    hash: String,
    /// The file's size in bytes.
    pub(super) size: u64,
    pub(super) url: Url,
}

pub(super) struct Client<'a> {
    /// Asks about the repository.
    hub: HFClient,
    /// Follows redirects to where the bytes are; leaves the token behind on another host.
    pub(super) follow: reqwest::Client,
    /// An HTTP client that follows no redirects.
    direct: reqwest::Client,
    endpoint: Url,
    pub(super) subject: Subject<'a>,
    cache: &'a RepoCache,
    bars: Bars,
}

impl<'a> Client<'a> {
    pub(super) fn new(subject: Subject<'a>, cache: &'a RepoCache) -> Result<Self, HubError> {
        let options = subject.options;
        let endpoint = Url::parse(&options.endpoint).ok().filter(|url| !url.cannot_be_a_base());
        let endpoint = endpoint.ok_or_else(|| {
            let expected = "expected an http(s) address";
            subject.refused(format!("HF_ENDPOINT is `{}`, {expected}", options.endpoint))
        })?;
        let follow = http_client(redirect::Policy::limited(MAX_REDIRECTS));
        let direct = http_client(redirect::Policy::none());
        let no_client = |error| subject.refused(format!("no HTTP client: {error}"));
        let (follow, direct) = (follow.map_err(no_client)?, direct.map_err(no_client)?);
        Ok(Self {
            hub: hub_client(options, follow.clone()).map_err(|error| subject.failed(error))?,
            follow,
            direct,
            endpoint,
            subject,
            cache,
            bars: Bars::new(options.progress, options.watch.clone()),
        })
    }

    /// `{endpoint}/{parts}`, with each part escaped, slashes too.
    fn url<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> Url {
        let mut url = self.endpoint.clone();
        let mut path = url.path_segments_mut().expect("checked to be a base in `new`");
        path.pop_if_empty().extend(parts);
        drop(path);
        url
    }

    /// The commit and the files of the revision.
    pub(super) async fn listing(&self) -> Result<Listing, HubError> {
        let (owner, name) = hf_hub::split_id(self.subject.repository);
        let model = self.hub.model(owner, name);
        let mut attempt = 0;
        let info = loop {
            attempt += 1;
            match model.info().revision(self.subject.revision).send().await {
                // The wait that the hub asks for is the one thing that hf-hub doesn't retry by.
                Err(HFError::RateLimited { retry_after: Some(wait), .. })
                    if attempt <= self.subject.options.retries =>
                {
                    tokio::time::sleep(wait.min(MAX_WAIT)).await;
                }
                info => break info.map_err(|error| self.subject.failed(error))?,
            }
        };
        let files = info.siblings.unwrap_or_default();
        let files = files.into_iter().map(|file| file.rfilename).collect();
        let commit = info.sha.unwrap_or_default();
        if !cache::is_plain(&commit) {
            return Err(self.subject.refused(format!("`{commit}` is no commit hash")));
        }
        Ok(Listing { commit, files })
    }

    /// Asks again while the hub is too busy.
    async fn head(&self, url: &Url) -> Result<Response, HubError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut request = self.direct.head(url.clone()).header(ACCEPT_ENCODING, "identity");
            if let Some(token) = &self.subject.options.token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await;
            let wait = match &response {
                Ok(response) if transfer::is_busy(response.status()) => {
                    retry_after(response, attempt)
                }
                Err(error) if error.is_timeout() => transfer::backoff(attempt),
                _ => return response.map_err(|error| self.subject.unreachable(&error)),
            };
            if attempt > self.subject.options.retries {
                return response.map_err(|error| self.subject.unreachable(&error));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks the hub itself what a file is, through redirects that stay on it.
    ///
    /// hf-hub's `get_file_metadata` follows each redirect, and so reads the headers of the storage,
    /// which has no commit and another hash; its `get_paths_info` gives large files no SHA-256.
    pub(super) async fn remote(&self, commit: &str, file: &str) -> Result<Remote, HubError> {
        let id = self.subject.repository.split('/');
        let mut url = self.url(id.chain(["resolve", commit]).chain(file.split('/')));
        for _ in 0..MAX_REDIRECTS {
            let response = self.head(&url).await?;
            let status = response.status();
            if !status.is_success() && !status.is_redirection() {
                let said = |name| header(response.headers(), name).unwrap_or_default();
                let (code, text) = (said("x-error-code"), said("x-error-message"));
                let answer = Answer { status, code: &code, text: &text };
                return Err(self.subject.refusal(&answer, Some(file)));
            }
            let location = header(response.headers(), LOCATION.as_str());
            match location.filter(|location| location.starts_with('/')) {
                // The hub moved the repository; the answer about the file is there.
                Some(location) if !location.starts_with("//") => {
                    url = url
                        .join(&location)
                        .map_err(|error| self.subject.refused(error.to_string()))?;
                }
                _ => return self.read_remote(response.headers(), file, url),
            }
        }
        Err(self.subject.refused(format!("too many redirects for {file}")))
    }

    fn read_remote(&self, headers: &HeaderMap, file: &str, url: Url) -> Result<Remote, HubError> {
        let hash = header(headers, "x-linked-etag").or_else(|| header(headers, ETAG.as_str()));
        let hash = hash.map(|hash| hash.trim_start_matches("W/").trim_matches('"').to_owned());
        let size = header(headers, "x-linked-size").or_else(|| header(headers, "content-length"));
        match (hash.filter(|hash| cache::is_plain(hash)), size.and_then(|size| size.parse().ok())) {
            (Some(hash), Some(size)) => Ok(Remote { hash, size, url }),
            _ => Err(self.subject.refused(format!("the hub tells no hash or size of {file}"))),
        }
    }

    /// Downloads the files that the snapshot lacks.
    async fn get_all(&self, commit: &str, files: Vec<String>) -> Result<(), HubError> {
        if let Some(file) = files.iter().find(|file| !file.split('/').all(is_path_part)) {
            return Err(self.subject.refused(format!("`{file}` is no file name")));
        }
        let snapshot = self.cache.snapshot(commit);
        let missing = files.into_iter().filter(|file| !snapshot.join(file).is_file());
        let gets = missing.map(|file| self.get(commit, file));
        let mut results = futures::stream::iter(gets).buffer_unordered(PARALLEL_FILES);
        while let Some(result) = results.next().await {
            result?;
        }
        Ok(())
    }

    async fn get(&self, commit: &str, file: String) -> Result<(), HubError> {
        let remote = self.remote(commit, &file).await?;
        let failed = |reason: String| HubError::Transfer {
            repository: self.subject.repository.to_owned(),
            file: file.clone(),
            reason,
        };
        let (cache, hash) = (self.cache.clone(), remote.hash.clone());
        let lock = tokio::task::spawn_blocking(move || cache.lock(&hash)).await;
        let lock = lock.map_err(|error| failed(error.to_string()))?;
        let _lock = lock.map_err(|error| failed(format!("the cache can't be locked: {error}")))?;
        let blob = self.cache.blob(&remote.hash);
        if std::fs::metadata(&blob).map_or(true, |found| found.len() != remote.size) {
            tracing::info!(%file, bytes = remote.size, "downloading");
            let transfer = Transfer {
                http: &self.follow,
                url: remote.url,
                token: self.subject.options.token.as_deref(),
                size: remote.size,
                hash: &remote.hash,
                target: self.cache.incomplete(&remote.hash),
                retries: self.subject.options.retries,
                bar: self.bars.add(&file, remote.size),
            };
            transfer.run(&blob).await.map_err(&failed)?;
        }
        self.cache
            .link(commit, &file, &remote.hash)
            .map_err(|error| failed(format!("the cache can't be written: {error}")))
    }
}

fn http_client(redirects: redirect::Policy) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .redirect(redirects)
        .build()
}

/// hf-hub's client over `http`, with nothing taken from the environment.
fn hub_client(options: &HubOptions, http: reqwest::Client) -> Result<HFClient, HFError> {
    HFClient::builder()
        .client(http)
        .endpoint(&options.endpoint)
        .token(options.token.as_deref().unwrap_or(NO_TOKEN))
        .cache_dir(&options.cache)
        .retry_max_attempts(options.retries.min(MAX_LISTING_RETRIES) as usize)
        .build()
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

pub(super) fn is_path_part(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', '\0', ':'])
}

/// What the hub asks for, at most half a minute.
fn retry_after(response: &Response, attempt: u32) -> Duration {
    let asked = header(response.headers(), RETRY_AFTER.as_str());
    let asked = asked.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    asked.unwrap_or_else(|| transfer::backoff(attempt)).min(MAX_WAIT)
}
