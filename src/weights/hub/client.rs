//! The hub's own protocol: what a revision is, what a file is, and getting the missing ones.
//!
//! Protocol: <https://huggingface.co/docs/hub/api>. `GET /api/models/{id}/revision/{revision}`
//! names the commit and its files; `HEAD /{id}/resolve/{commit}/{file}` names a file's hash and
//! size, in headers of the hub's own answer and not of where it redirects to.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use reqwest::header::{ACCEPT_ENCODING, ETAG, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde::Deserialize;

use super::HubOptions;
use super::cache::{self, RepoCache};
use super::error::HubError;
use super::progress::Bars;
use super::selection::{self, Selection, WeightFiles};
use super::transfer::{self, Transfer};
use crate::weights::folder::ModelFolder;
use crate::weights::model_ref::HubRef;
use crate::weights::safetensors;

/// Files that arrive at the same time.
const PARALLEL_FILES: usize = 4;
const MAX_REDIRECTS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest silence within an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const USER_AGENT: &str = concat!("sconce/", env!("CARGO_PKG_VERSION"));

/// Downloads what is missing; gives the folder, or the GGUF file.
pub(crate) async fn fetch(
    reference: &HubRef,
    revision: &str,
    options: &HubOptions,
    cache: &RepoCache,
) -> Result<PathBuf, HubError> {
    let client = Client::new(reference, revision, options, cache)?;
    let info = client.info().await?;
    let files: Vec<_> = info.siblings.into_iter().map(|file| file.rfilename).collect();
    let snapshot = cache.snapshot(&info.sha);
    let selection = selection::select(&reference.repository, &files, reference.file.as_ref())?;
    let path = match selection {
        Selection::Gguf(file) => {
            client.get_all(&info.sha, vec![file.clone()]).await?;
            snapshot.join(file)
        }
        Selection::Checkpoint { small, weights } => {
            client.get_all(&info.sha, small).await?;
            let weights = match weights {
                WeightFiles::Single(file) => vec![file],
                WeightFiles::Indexed => {
                    safetensors::shard_names(&ModelFolder::Disk(snapshot.clone()))
                        .map_err(|error| client.refused(error.to_string()))?
                }
            };
            client.get_all(&info.sha, weights).await?;
            snapshot
        }
    };
    if !cache::is_commit(revision) {
        let written = cache.write_ref(revision, &info.sha);
        written.map_err(|error| client.refused(format!("the cache can't be written: {error}")))?;
    }
    Ok(path)
}

/// What a revision is.
#[derive(Debug, Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

/// What a file is.
#[derive(Debug)]
struct Remote {
    /// Its hash: SHA-256 of large files, git's of small ones.
    hash: String,
    /// Bytes.
    size: u64,
    url: Url,
}

struct Client<'a> {
    /// Follows redirects to where the bytes are; leaves the token behind on another host.
    follow: reqwest::Client,
    /// Shows redirects.
    direct: reqwest::Client,
    endpoint: Url,
    reference: &'a HubRef,
    revision: &'a str,
    options: &'a HubOptions,
    cache: &'a RepoCache,
    bars: Bars,
}

impl<'a> Client<'a> {
    fn new(
        reference: &'a HubRef,
        revision: &'a str,
        options: &'a HubOptions,
        cache: &'a RepoCache,
    ) -> Result<Self, HubError> {
        let refused =
            |reason: String| HubError::Refused { repository: reference.repository.clone(), reason };
        let endpoint = Url::parse(&options.endpoint).ok().filter(|url| !url.cannot_be_a_base());
        let endpoint = endpoint.ok_or_else(|| {
            refused(format!("HF_ENDPOINT is `{}`, expected an http(s) address", options.endpoint))
        })?;
        let build = |policy| {
            reqwest::Client::builder()
                .user_agent(USER_AGENT)
                .connect_timeout(CONNECT_TIMEOUT)
                .read_timeout(READ_TIMEOUT)
                .redirect(policy)
                .build()
                .map_err(|error| refused(format!("no HTTP client: {error}")))
        };
        Ok(Self {
            follow: build(redirect::Policy::limited(MAX_REDIRECTS))?,
            direct: build(redirect::Policy::none())?,
            endpoint,
            reference,
            revision,
            options,
            cache,
            bars: Bars::new(options.progress),
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

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.options.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn info(&self) -> Result<Info, HubError> {
        let start = ["api", "models"];
        let id = self.reference.repository.split('/');
        let end = ["revision", self.revision];
        let url = self.url(start.into_iter().chain(id).chain(end));
        let response = self.ask(&self.follow, Method::GET, url).await?;
        if !response.status().is_success() {
            return Err(self.refusal(response, None).await);
        }
        let info: Info = response
            .json()
            .await
            .map_err(|error| self.refused(format!("not an answer of a hub: {error}")))?;
        if !cache::is_plain(&info.sha) {
            return Err(self.refused(format!("`{}` is no commit hash", info.sha)));
        }
        Ok(info)
    }

    /// Asks again while the hub is too busy.
    async fn ask(
        &self,
        http: &reqwest::Client,
        method: Method,
        url: Url,
    ) -> Result<Response, HubError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let request = http.request(method.clone(), url.clone());
            let request = self.authorized(request).header(ACCEPT_ENCODING, "identity");
            let response = request.send().await;
            let wait = match &response {
                Ok(response) if is_busy(response.status()) => retry_after(response, attempt),
                Err(error) if error.is_timeout() => transfer::backoff(attempt),
                _ => return response.map_err(|error| self.unreachable(&error)),
            };
            if attempt > self.options.retries {
                return response.map_err(|error| self.unreachable(&error));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks the hub itself what a file is, through redirects that stay on it.
    async fn remote(&self, commit: &str, file: &str) -> Result<Remote, HubError> {
        let id = self.reference.repository.split('/');
        let mut url = self.url(id.chain(["resolve", commit]).chain(file.split('/')));
        for _ in 0..MAX_REDIRECTS {
            let response = self.ask(&self.direct, Method::HEAD, url.clone()).await?;
            if !response.status().is_success() && !response.status().is_redirection() {
                return Err(self.refusal(response, Some(file)).await);
            }
            let location = header(response.headers(), LOCATION.as_str());
            match location.filter(|location| location.starts_with('/')) {
                // The hub moved the repository; the answer about the file is there.
                Some(location) if !location.starts_with("//") => {
                    url = url.join(&location).map_err(|error| self.refused(error.to_string()))?;
                }
                _ => return self.read_remote(response.headers(), file, url),
            }
        }
        Err(self.refused(format!("too many redirects for {file}")))
    }

    fn read_remote(&self, headers: &HeaderMap, file: &str, url: Url) -> Result<Remote, HubError> {
        let hash = header(headers, "x-linked-etag").or_else(|| header(headers, ETAG.as_str()));
        let hash = hash.map(|hash| hash.trim_start_matches("W/").trim_matches('"').to_owned());
        let size = header(headers, "x-linked-size").or_else(|| header(headers, "content-length"));
        match (hash.filter(|hash| cache::is_plain(hash)), size.and_then(|size| size.parse().ok())) {
            (Some(hash), Some(size)) => Ok(Remote { hash, size, url }),
            _ => Err(self.refused(format!("the hub tells no hash or size of {file}"))),
        }
    }

    /// Downloads the files that the snapshot lacks.
    async fn get_all(&self, commit: &str, files: Vec<String>) -> Result<(), HubError> {
        if let Some(file) = files.iter().find(|file| !file.split('/').all(is_path_part)) {
            return Err(self.refused(format!("`{file}` is no file name")));
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
            repository: self.reference.repository.clone(),
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
                token: self.options.token.as_deref(),
                size: remote.size,
                hash: &remote.hash,
                target: self.cache.incomplete(&remote.hash),
                retries: self.options.retries,
                bar: self.bars.add(&file, remote.size),
            };
            transfer.run(&blob).await.map_err(&failed)?;
        }
        self.cache
            .link(commit, &file, &remote.hash)
            .map_err(|error| failed(format!("the cache can't be written: {error}")))
    }

    fn refused(&self, reason: String) -> HubError {
        HubError::Refused { repository: self.reference.repository.clone(), reason }
    }

    fn unreachable(&self, error: &reqwest::Error) -> HubError {
        HubError::Unreachable {
            endpoint: self.options.endpoint.clone(),
            reason: transfer::root_cause(error),
        }
    }

    /// What an answer that is no success means; `file` is what was asked for, if not the model.
    async fn refusal(&self, response: Response, file: Option<&str>) -> HubError {
        let repository = self.reference.repository.clone();
        let status = response.status();
        let code = header(response.headers(), "x-error-code").unwrap_or_default();
        let message = header(response.headers(), "x-error-message");
        match (status, code.as_str()) {
            (_, "RevisionNotFound") => {
                HubError::RevisionNotFound { repository, revision: self.revision.to_owned() }
            }
            (_, "GatedRepo") => self.denied(status, "gated"),
            (_, "RepoNotFound") => self.repository_not_found(),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => self.denied(status, "private"),
            (StatusCode::NOT_FOUND, _) => match file {
                Some(file) => HubError::FileNotFound {
                    repository,
                    wanted: format!("`{file}`"),
                    available: "the hub names it, but doesn't give it".to_owned(),
                },
                None => self.repository_not_found(),
            },
            _ => {
                let text = response.text().await.unwrap_or_default();
                let text: String = text.chars().take(200).collect();
                self.refused(format!("HTTP {status}: {}", message.unwrap_or(text)))
            }
        }
    }

    fn repository_not_found(&self) -> HubError {
        HubError::RepositoryNotFound {
            repository: self.reference.repository.clone(),
            endpoint: self.options.endpoint.clone(),
        }
    }

    fn denied(&self, status: StatusCode, kind: &str) -> HubError {
        let page = format!("{}/{}", self.options.endpoint, self.reference.repository);
        let reason = match (&self.options.token, kind) {
            (None, "gated") => format!(
                "the model is gated: accept its terms at {page}, then set HF_TOKEN to a token of \
                 that account"
            ),
            (None, _) => "set HF_TOKEN to a token that may read it, and check the id".to_owned(),
            (Some(_), "gated") => format!(
                "the model is gated, and the account of the token in HF_TOKEN (or the token file) \
                 has not been granted access: accept its terms at {page}"
            ),
            (Some(_), _) => "the token in HF_TOKEN (or the token file) is not valid or may not \
                             read it; check the id too"
                .to_owned(),
        };
        let repository = self.reference.repository.clone();
        HubError::Denied { repository, status: status.as_u16(), reason }
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn is_path_part(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', '\0', ':'])
}

pub(crate) fn is_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// What the hub asks for, at most half a minute.
fn retry_after(response: &Response, attempt: u32) -> Duration {
    let asked = header(response.headers(), RETRY_AFTER.as_str());
    let asked = asked.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    asked.unwrap_or_else(|| transfer::backoff(attempt)).min(Duration::from_secs(30))
}
