//! A model of the hub without its weights: small files as they are, large ones with their headers alone.
//!
//! Each large file becomes one of its whole length whose bytes behind the header are a hole, so that
//! whatever reads headers and checks them against lengths works as on the real one. Nothing of it is put
//! into the cache.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use reqwest::header::{ACCEPT_ENCODING, RANGE};

use super::cache::RepoCache;
use super::client::{Client, Listing, is_path_part};
use super::error::HubError;
use super::options::HubOptions;
use super::refusal::Subject;
use super::selection::{self, Selection, WeightFiles};
use crate::folder::ModelFolder;
use crate::gguf;
use crate::model_ref::HubRef;
use crate::safetensors;

/// Bytes that are asked for first; most headers fit.
const FIRST: usize = 1 << 20;
/// Most bytes of a header: large vocabularies take some tens of megabytes.
const MOST: usize = 128 << 20;
/// Largest file that is fetched as a whole.
const SMALL: u64 = 64 << 20;

/// Files with the headers of a model, which are removed when this is dropped.
#[derive(Debug)]
pub struct Headers {
    folder: PathBuf,
    /// The GGUF file, if the model is one.
    pub(crate) gguf: Option<PathBuf>,
}

impl Headers {
    /// The folder that the files are in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        // What is left lies among temporary files, which others look after.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where a header ends, as far as the first bytes of a file tell.
enum End {
    Known(usize),
    /// More bytes are needed.
    Beyond,
}

/// Fetches the headers of what `reference` means.
pub(crate) async fn fetch(
    reference: &HubRef,
    revision: &str,
    options: &HubOptions,
    cache: &RepoCache,
) -> Result<Headers, HubError> {
    let client =
        Client::new(Subject { repository: &reference.repository, revision, options }, cache)?;
    let Listing { commit, files } = client.listing().await?;
    let selection = selection::select(&reference.repository, &files, reference.file.as_ref())?;
    let folder = new_folder().map_err(|error| client.subject.refused(error.to_string()))?;
    let mut headers = Headers { folder, gguf: None };
    let fetcher = Fetcher { client: &client, commit: &commit, folder: &headers.folder };
    match selection {
        Selection::Gguf(parts) => {
            for part in &parts {
                fetcher.header(part, end_of_gguf).await?;
            }
            headers.gguf = Some(headers.folder.join(&parts[0]));
        }
        Selection::Checkpoint { small, weights } => {
            for file in &small {
                fetcher.whole(file).await?;
            }
            let weights = match weights {
                WeightFiles::Single(file) => vec![file],
                WeightFiles::Indexed => {
                    safetensors::shard_names(&ModelFolder::Disk(headers.folder.clone()))
                        .map_err(|error| client.subject.refused(error.to_string()))?
                }
            };
            let all = weights.iter().map(|file| fetcher.header(file, end_of_safetensors));
            let mut all = futures::stream::iter(all).buffer_unordered(4);
            while let Some(fetched) = all.next().await {
                fetched?;
            }
        }
    }
    Ok(headers)
}

struct Fetcher<'a> {
    client: &'a Client<'a>,
    commit: &'a str,
    folder: &'a Path,
}

impl Fetcher<'_> {
    async fn whole(&self, file: &str) -> Result<(), HubError> {
        let remote = self.client.remote(self.commit, file).await?;
        if remote.size > SMALL {
            let reason = format!("{file} has {} bytes, too many to look at", remote.size);
            return Err(self.client.subject.refused(reason));
        }
        let size = usize::try_from(remote.size).unwrap_or(usize::MAX);
        let bytes = self.bytes(file, remote.url, 0..size).await?;
        self.write(file, &bytes, remote.size)
    }

    /// Fetches the beginning of a file, as much as its header takes.
    async fn header(
        &self,
        file: &str,
        end: fn(&[u8]) -> Result<End, String>,
    ) -> Result<(), HubError> {
        let remote = self.client.remote(self.commit, file).await?;
        let size = usize::try_from(remote.size).unwrap_or(usize::MAX);
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let wanted = (bytes.len() * 4).clamp(FIRST, MOST).min(size);
            let more = self.bytes(file, remote.url.clone(), bytes.len()..wanted).await?;
            bytes.extend(more);
            let refused = |reason: String| self.client.subject.refused(format!("{file}: {reason}"));
            match end(&bytes).map_err(refused)? {
                End::Known(end) if end <= bytes.len() => break,
                _ if bytes.len() == size => break,
                _ if bytes.len() >= MOST => {
                    return Err(refused(format!("its header has more than {MOST} bytes")));
                }
                _ => {}
            }
        }
        self.write(file, &bytes, remote.size)
    }

    /// The bytes `range` of a file. A server that gives all of them is cut short.
    async fn bytes(
        &self,
        file: &str,
        url: reqwest::Url,
        range: std::ops::Range<usize>,
    ) -> Result<Vec<u8>, HubError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let subject = &self.client.subject;
        let mut request = self.client.follow.get(url).header(ACCEPT_ENCODING, "identity");
        request = request.header(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
        if let Some(token) = &subject.options.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| subject.unreachable(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(subject.refused(format!("{file}: the hub answered {status}")));
        }
        let skip = if status == reqwest::StatusCode::PARTIAL_CONTENT { 0 } else { range.start };
        let (mut bytes, mut parts) = (Vec::new(), response.bytes_stream());
        while bytes.len() < skip + range.len()
            && let Some(part) = parts.next().await
        {
            bytes.extend_from_slice(&part.map_err(|error| subject.unreachable(&error))?);
        }
        let bytes = bytes.get(skip..).unwrap_or_default();
        let wanted = &bytes[..bytes.len().min(range.len())];
        if wanted.len() < range.len() {
            let reason = format!("{file}: {} of {} bytes came", wanted.len(), range.len());
            return Err(subject.refused(reason));
        }
        Ok(wanted.to_vec())
    }

    fn write(&self, file: &str, bytes: &[u8], size: u64) -> Result<(), HubError> {
        let refused = |reason: String| self.client.subject.refused(reason);
        if !file.split('/').all(is_path_part) {
            return Err(refused(format!("`{file}` is no file name")));
        }
        let path = self.folder.join(file);
        let write = || -> std::io::Result<()> {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let mut file = File::create(&path)?;
            file.write_all(bytes)?;
            file.set_len(size)
        };
        write().map_err(|error| refused(format!("{}: {error}", path.display())))
    }
}

fn end_of_safetensors(bytes: &[u8]) -> Result<End, String> {
    let Some(length) = bytes.first_chunk::<8>() else { return Ok(End::Beyond) };
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    length.and_then(|length| length.checked_add(8)).map(End::Known).ok_or("no such header".into())
}

fn end_of_gguf(bytes: &[u8]) -> Result<End, String> {
    if !b"GGUF".starts_with(&bytes[..bytes.len().min(4)]) {
        return Err("it is no GGUF file".to_owned());
    }
    Ok(gguf::end_of_header(bytes).map_or(End::Beyond, End::Known))
}

/// A new folder among temporary files.
fn new_folder() -> std::io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("sconce-headers-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder)?;
    Ok(folder)
}
