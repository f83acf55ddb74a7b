//! One file's bytes, onto the disk: resumed where an earlier attempt stopped, then verified.
//!
//! The bytes grow in `<hash>.incomplete`, whose length is all that is remembered, and are renamed
//! into place when their number and hash are right.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use indicatif::ProgressBar;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, RANGE};
use reqwest::{Response, StatusCode, Url};
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

/// A file to get.
pub(crate) struct Transfer<'a> {
    pub(crate) http: &'a reqwest::Client,
    pub(crate) url: Url,
    pub(crate) token: Option<&'a str>,
    pub(crate) size: u64,
    pub(crate) hash: &'a str,
    pub(crate) target: PathBuf,
    /// How often to try again when an attempt brings nothing.
    pub(crate) retries: u32,
    pub(crate) bar: ProgressBar,
}

/// Why an attempt ended early.
enum Failure {
    /// Trying again can't help.
    Final(String),
    /// The network, or a busy server.
    Passing(String),
}

impl Transfer<'_> {
    /// Gets the file and renames it to `blob`. The error says why it can't be had.
    pub(crate) async fn run(self, blob: &Path) -> Result<(), String> {
        let target = &self.target;
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(|error| disk(folder, &error))?;
        }
        let mut fruitless = 0;
        loop {
            let have = self.open_target().map_err(|error| disk(target, &error))?;
            if have == self.size {
                break;
            }
            let reason = match self.attempt(have).await {
                Ok(()) => "the connection was closed early".to_owned(),
                Err(Failure::Passing(reason)) => reason,
                Err(Failure::Final(reason)) => return Err(reason),
            };
            let now = std::fs::metadata(target).map_or(0, |found| found.len());
            if now == self.size {
                continue;
            }
            fruitless = if now > have { 0 } else { fruitless + 1 };
            if fruitless > self.retries {
                return Err(format!(
                    "{reason}; {now} of {} bytes are kept, and the same command goes on from there",
                    self.size
                ));
            }
            tracing::debug!(url = %self.url, reason, now, "a download goes on");
            tokio::time::sleep(backoff(fruitless)).await;
        }
        self.verify().await?;
        std::fs::rename(target, blob).map_err(|error| disk(blob, &error))?;
        self.bar.finish();
        Ok(())
    }

    /// Makes sure that the file exists, drops what is too long to be right, gives its length.
    fn open_target(&self) -> io::Result<u64> {
        let file = OpenOptions::new().create(true).append(true).open(&self.target)?;
        let length = file.metadata()?.len();
        if length <= self.size {
            return Ok(length);
        }
        file.set_len(0)?;
        Ok(0)
    }

    /// Appends what the server sends from byte `have` on.
    async fn attempt(&self, have: u64) -> Result<(), Failure> {
        let mut request = self.http.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
        if let Some(token) = self.token {
            request = request.bearer_auth(token);
        }
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let response = request.send().await.map_err(|e| Failure::Passing(root_cause(&e)))?;
        let start = start_of(&response, have)?;
        let mut file = self.file_at(start).map_err(|e| Failure::Final(disk(&self.target, &e)))?;
        let mut position = start;
        self.bar.set_position(position);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| Failure::Passing(root_cause(&error)))?;
            position += chunk.len() as u64;
            if position > self.size {
                let reason = format!("more than the announced {} bytes came", self.size);
                return Err(Failure::Final(reason));
            }
            file.write_all(&chunk).map_err(|e| Failure::Final(disk(&self.target, &e)))?;
            self.bar.set_position(position);
        }
        Ok(())
    }

    /// The growing file, cut to `start` bytes.
    fn file_at(&self, start: u64) -> io::Result<File> {
        let file = OpenOptions::new().append(true).open(&self.target)?;
        file.set_len(start)?;
        Ok(file)
    }

    /// Compares the hash, where the hub gave one that covers the bytes.
    async fn verify(&self) -> Result<(), String> {
        if self.hash.len() != SHA256_DIGITS {
            return Ok(());
        }
        let path = self.target.clone();
        let found = tokio::task::spawn_blocking(move || sha256(&path)).await;
        let found = found.map_err(|error| error.to_string())?;
        let found = found.map_err(|error| disk(&self.target, &error))?;
        if found.eq_ignore_ascii_case(self.hash) {
            return Ok(());
        }
        // Wrong bytes are no start to go on from.
        std::fs::remove_file(&self.target).map_err(|error| disk(&self.target, &error))?;
        Err(format!("the bytes have SHA-256 {found}, expected {}", self.hash))
    }
}

/// The byte that an answer starts at: `have` if the server honours ranges, else 0.
fn start_of(response: &Response, have: u64) -> Result<u64, Failure> {
    let status = response.status();
    match status {
        StatusCode::OK => Ok(0),
        StatusCode::PARTIAL_CONTENT => {
            let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
            let expected = format!("bytes {have}-");
            if range.is_some_and(|range| range.starts_with(&expected)) {
                return Ok(have);
            }
            Err(Failure::Final(format!(
                "asked for bytes from {have} on, the server sent the range {range:?}"
            )))
        }
        _ if is_busy(status) => Err(Failure::Passing(format!("HTTP {status}"))),
        _ => Err(Failure::Final(format!("HTTP {status}"))),
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hexadecimal(&hasher.finalize()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).expect("half a byte is below 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn disk(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// How long to wait before the next attempt: 0.2 s, doubling to 6.4 s.
pub(crate) fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(200 << attempt.saturating_sub(1).min(5))
}

/// The innermost reason, which says more than "error sending request".
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Whether asking again later may help.
pub(crate) fn is_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}
