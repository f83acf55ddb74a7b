//! The flags of the store: where responses, conversations, files and batches are kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::byte_size::ByteSize;
use crate::config::StoreLimits;
use crate::store::{Store, StorePlace};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub(super) struct StoreArgs {
    /// Where responses, conversations, files and batches are kept: a file, memory (until the server
    /// ends), or a PostgreSQL database that several servers may share (postgres://USER@HOST/NAME)
    /// [default: sconce/store.db in the user's state folder].
    #[arg(long, value_name = "PLACE", hide_env_values = true)]
    store: Option<String>,
    /// File with the key that encrypts what is stored: 32 bytes, as they are, in hex or in base64.
    #[arg(long, value_name = "FILE")]
    store_key_file: Option<PathBuf>,
    /// Largest file of the store; in memory at most 256 MiB. A database has bounds of its own.
    #[arg(long, value_name = "SIZE", default_value = "8GiB")]
    store_size: ByteSize,
    /// Days that responses, chat completions and batches are kept. Conversations stay until they
    /// are deleted.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    store_days: u16,
    /// Largest file that may be uploaded.
    #[arg(long, value_name = "SIZE", default_value = "200MiB")]
    max_file_size: ByteSize,
    /// Lines of batches that run at once; 0 leaves them to other servers of the same store.
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=1024))]
    batch_lines: usize,
}

/// Most bytes that are kept in memory.
const MEMORY_BYTES: u64 = 256 << 20;

impl StoreArgs {
    /// How much is kept.
    pub(super) fn limits(&self) -> StoreLimits {
        StoreLimits {
            age: Duration::from_hours(24 * u64::from(self.store_days)),
            max_file_bytes: self.max_file_size.0 as u64,
            batch_lines: self.batch_lines,
        }
    }

    /// Opens the store. Where no flag names one and the user's folder can't be written, what is
    /// stored ends with the server, and the log says so.
    pub(super) fn open(&self) -> anyhow::Result<Store> {
        let store = self.opened()?;
        let Some(path) = &self.store_key_file else { return Ok(store) };
        let bytes = std::fs::read(path);
        let bytes = bytes.with_context(|| format!("--store-key-file {}", path.display()))?;
        let key = key(&bytes).with_context(|| {
            format!(
                "--store-key-file {}: it must hold 32 bytes, as they are, in hex or in base64",
                path.display()
            )
        })?;
        Ok(store.with_key(&key))
    }

    fn opened(&self) -> anyhow::Result<Store> {
        let bytes = self.store_size.0 as u64;
        let memory = || Store::open(&StorePlace::Memory, bytes.min(MEMORY_BYTES));
        let store = match self.store.as_deref().filter(|place| !place.is_empty()) {
            Some("memory") => memory()?,
            Some(place) => {
                let shown = if is_database(place) { "the database" } else { place };
                let opened = Store::open(&named(place), bytes);
                opened.with_context(|| format!("--store: {shown} can't be used"))?
            }
            None => {
                let Some(path) = default_path().filter(|path| can_be_written(path)) else {
                    tracing::warn!(
                        "there is no folder to store responses and batches in; they are kept until \
                         the server ends. Name a file with --store"
                    );
                    return Ok(memory()?);
                };
                let opened = Store::open(&StorePlace::File(path.clone()), bytes);
                opened.with_context(|| {
                    format!("{} can't be used; name another with --store", path.display())
                })?
            }
        };
        Ok(store)
    }
}

/// The key that a file holds.
fn key(bytes: &[u8]) -> Option<[u8; 32]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let digits = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let hex: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digits).collect();
    let decoded = hex.filter(|_| text.len() == 64).or_else(|| STANDARD.decode(text).ok())?;
    decoded.try_into().ok()
}

fn is_database(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
}

fn named(place: &str) -> StorePlace {
    if is_database(place) {
        StorePlace::Postgres(place.to_owned())
    } else {
        StorePlace::File(PathBuf::from(place))
    }
}

/// `$XDG_STATE_HOME/sconce/store.db`, or what stands for it.
fn default_path() -> Option<PathBuf> {
    let folder = |name: &str| {
        let folder = PathBuf::from(std::env::var_os(name)?);
        folder.is_absolute().then_some(folder)
    };
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("sconce/store.db"))
}

fn can_be_written(path: &Path) -> bool {
    let made = path.parent().is_none_or(|folder| std::fs::create_dir_all(folder).is_ok());
    made && std::fs::OpenOptions::new().create(true).append(true).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_32_bytes_in_any_spelling() {
        let raw = [7_u8; 32];
        let spelled =
            [raw.to_vec(), "07".repeat(32).into_bytes(), STANDARD.encode(raw).into_bytes()];
        for bytes in spelled {
            assert_eq!(key(&bytes), Some(raw));
        }
        assert_eq!(key(format!("{}\n", "07".repeat(32)).as_bytes()), Some(raw));
        for wrong in [&b""[..], b"short", &[7; 31], "zz".repeat(32).as_bytes()] {
            assert_eq!(key(wrong), None);
        }
    }
}
