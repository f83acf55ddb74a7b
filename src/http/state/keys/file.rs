//! The key file: who may call, for what and how much, as TOML or JSON.
//!
//! ```toml
//! [[keys]]
//! name = "reports"
//! sha256 = "<64 hexadecimal digits>"
//! scopes = ["infer"]
//! requests_per_minute = 60
//! ```
//!
//! A file is read whole or not at all: what is wrong is told with the name of its key.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use sha2::{Digest, Sha256};

use super::scope::{Scope, Scopes};

/// Most keys of a file: each one is compared with every key that comes.
pub const MAX_KEYS: usize = 10_000;
/// Longest name of a key.
pub const MAX_NAME_BYTES: usize = 64;
/// Most tokens or requests that a limit may allow in a minute.
const MAX_PER_MINUTE: u64 = 1_000_000_000_000;

/// A digest of a key.
pub type KeyDigest = [u8; 32];

/// The digest of a key.
pub fn digest(key: &[u8]) -> KeyDigest {
    Sha256::digest(key).into()
}

/// A digest as the file has it.
pub fn hex(digest: &KeyDigest) -> String {
    digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Why a key file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// It isn't TOML or JSON of the right shape.
    #[error("{0}")]
    Syntax(String),
    /// One of its keys is wrong.
    #[error("the key {name:?}: {reason}")]
    Key {
        /// The key's name as it stands there.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There are more keys than can be compared for every request.
    #[error("it has {0} keys, no more than {MAX_KEYS} may")]
    TooMany(usize),
}

/// How much the bearers of a key may ask for; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests a minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens a minute, of prompts and answers together.
    pub tokens_per_minute: Option<u64>,
    /// Requests at once.
    pub max_concurrent: Option<u64>,
}

/// One key of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// What metrics, usage and the log call it.
    pub name: String,
    /// Digests of the keys that open as this one: two while a key is replaced.
    pub digests: Vec<KeyDigest>,
    /// What its bearers may ask for.
    pub(crate) scopes: Scopes,
    /// How much they may ask for.
    pub limits: KeyLimits,
    /// The models and adapters that they may name; `None` is all.
    pub models: Option<Vec<String>>,
    /// When it opens nothing any more.
    pub expires: Option<DateTime<Utc>>,
}

/// Reads a key file.
///
/// # Errors
/// When it isn't of the right shape, or a key is wrong.
pub fn parse(text: &str) -> Result<Vec<FileKey>, KeyFileError> {
    let syntax = |error: &dyn fmt::Display| KeyFileError::Syntax(error.to_string());
    let entries: Entries = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| syntax(&error))?
    } else {
        toml::from_str(text).map_err(|error| syntax(&error))?
    };
    if entries.keys.len() > MAX_KEYS {
        return Err(KeyFileError::TooMany(entries.keys.len()));
    }
    let (mut names, mut digests) = (HashSet::new(), HashSet::new());
    let check = |entry: Entry| {
        let name = entry.name.clone();
        let key = entry.check().and_then(|key| {
            if !names.insert(key.name.clone()) {
                return Err("another one has this name".to_owned());
            }
            if key.digests.iter().any(|digest| !digests.insert(*digest)) {
                return Err("sha256: this digest is there twice".to_owned());
            }
            Ok(key)
        });
        key.map_err(|reason| KeyFileError::Key { name, reason })
    };
    entries.keys.into_iter().map(check).collect()
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    keys: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: Digests,
    #[serde(default)]
    scopes: Option<Vec<Scope>>,
    #[serde(default)]
    requests_per_minute: Option<u64>,
    #[serde(default)]
    tokens_per_minute: Option<u64>,
    #[serde(default)]
    max_concurrent: Option<u64>,
    #[serde(default)]
    models: Option<Vec<String>>,
    #[serde(default)]
    expires: Option<Instant>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a digest of 64 hexadecimal digits, or a list of such")]
enum Digests {
    One(String),
    Several(Vec<String>),
}

impl Entry {
    fn check(self) -> Result<FileKey, String> {
        check_name(&self.name)?;
        let texts = match self.sha256 {
            Digests::One(text) => vec![text],
            Digests::Several(texts) => texts,
        };
        if texts.is_empty() {
            return Err("sha256: there must be a digest".to_owned());
        }
        let digests = texts.iter().map(|text| {
            read_digest(text).ok_or("sha256: a digest has 64 hexadecimal digits".to_owned())
        });
        let scopes = match self.scopes {
            None => Scopes::USE,
            Some(scopes) if scopes.is_empty() => {
                return Err("scopes: a key without any opens nothing".to_owned());
            }
            Some(scopes) => scopes.into_iter().collect(),
        };
        let limits = KeyLimits {
            requests_per_minute: limit("requests_per_minute", self.requests_per_minute)?,
            tokens_per_minute: limit("tokens_per_minute", self.tokens_per_minute)?,
            max_concurrent: limit("max_concurrent", self.max_concurrent)?,
        };
        Ok(FileKey {
            name: self.name,
            digests: digests.collect::<Result<_, _>>()?,
            scopes,
            limits,
            models: self.models,
            expires: self.expires.map(|Instant(at)| at),
        })
    }
}

/// Checks that a name is fit for metrics and logs.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!("a name has 1 to {MAX_NAME_BYTES} ASCII letters, digits and any of ._-@"))
}

fn limit(what: &str, value: Option<u64>) -> Result<Option<u64>, String> {
    match value {
        Some(value) if !(1..=MAX_PER_MINUTE).contains(&value) => {
            Err(format!("{what} must be from 1 to {MAX_PER_MINUTE}, got {value}"))
        }
        value => Ok(value),
    }
}

fn read_digest(text: &str) -> Option<KeyDigest> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 || !bytes.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

/// A time as RFC 3339 writes it, in quotes, or bare as TOML may have it.
#[derive(Debug)]
struct Instant(DateTime<Utc>);

impl FromStr for Instant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
        let read = DateTime::parse_from_rfc3339(&whole);
        read.map(|at| Self(at.to_utc())).map_err(|_| {
            format!("expires must be a date or a time with its zone, such as 2030-01-31T12:00:00Z, got {text:?}")
        })
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InstantVisitor)
    }
}

struct InstantVisitor;

impl<'de> Visitor<'de> for InstantVisitor {
    type Value = Instant;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a time")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Instant, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Instant, A::Error> {
        // A bare time of TOML comes as an object that only its own type reads.
        let deserializer = de::value::MapAccessDeserializer::new(map);
        let date = toml::value::Datetime::deserialize(deserializer)?;
        date.to_string().parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_say_the_same() {
        let (one, two) = (hex(&[1; 32]), hex(&[2; 32]));
        let toml = format!(
            "[[keys]]\nname = \"a\"\nsha256 = \"{one}\"\nscopes = [\"infer\", \"metrics\"]\n\
             tokens_per_minute = 10\nmodels = [\"m\"]\nexpires = 2030-01-31T12:00:00Z\n\
             [[keys]]\nname = \"b\"\nsha256 = [\"{two}\"]\n"
        );
        let json = format!(
            r#"{{"keys": [{{"name": "a", "sha256": ["{one}"], "scopes": ["infer", "metrics"],
            "tokens_per_minute": 10, "models": ["m"], "expires": "2030-01-31T13:00:00+01:00"}},
            {{"name": "b", "sha256": "{two}"}}]}}"#
        );
        let keys = parse(&toml).unwrap();
        assert_eq!(keys, parse(&json).unwrap());
        assert_eq!(keys[0].digests, [[1; 32]]);
        assert_eq!(keys[0].limits.tokens_per_minute, Some(10));
        assert!(keys[0].scopes.has(Scope::Metrics) && !keys[0].scopes.has(Scope::Batches));
        assert_eq!(keys[0].expires.unwrap().timestamp(), 1_896_048_000 + 43_200);
        assert!(keys[1].scopes.has(Scope::Batches) && !keys[1].scopes.has(Scope::Admin));
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_key() {
        let one = hex(&[1; 32]);
        let told = |rest: &str| {
            let text = format!("[[keys]]\nname = \"a\"\nsha256 = \"{one}\"\n{rest}");
            parse(&text).unwrap_err().to_string()
        };
        assert_eq!(
            told("requests_per_minute = 0"),
            "the key \"a\": requests_per_minute must be from 1 to 1000000000000, got 0"
        );
        assert!(told("scopes = []").contains("opens nothing"));
        assert!(told("scopes = [\"all\"]").contains("infer"));
        assert!(told("expires = \"soon\"").contains("soon"));
        assert!(told("limit = 3").contains("limit"));
        let other = hex(&[2; 32]);
        assert!(told(&format!("[[keys]]\nname = \"a\"\nsha256 = \"{other}\"")).contains("name"));
        assert!(told(&format!("[[keys]]\nname = \"b\"\nsha256 = \"{one}\"")).contains("twice"));
        for text in ["[[keys]]\nname = \"a b\"\nsha256 = \"00\"", "[[keys]]\nname = \"a\"", "{"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let short = parse("[[keys]]\nname = \"a\"\nsha256 = \"00\"").unwrap_err();
        assert!(short.to_string().contains("64 hexadecimal digits"), "{short}");
    }
}
