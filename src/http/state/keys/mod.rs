//! The keys that requests must carry: those of the flags and those of the key file, compared in constant
//! time. What each may do, how much of it, and what it has used.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use chrono::{DateTime, Utc};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::config::ServerConfig;
use crate::http::error::ApiError;
use crate::store::{Claim, Store, StoreError};
use account::{Account, owner_of_key, owner_of_name};
use file::{FileKey, KeyDigest, KeyLimits, digest};
use scope::{Scope, Scopes};
use usage::UsageBook;

pub(crate) mod account;
mod bucket;
pub mod file;
pub(crate) mod scope;
pub(crate) mod usage;

/// Names that metrics have labels for; keys beyond them share one.
const MAX_LABELS: usize = 1000;
/// The label of those.
const OTHERS: &str = "_others";
/// Where no key is needed.
const ANONYMOUS: &str = "anonymous";
/// A key that left something behind and isn't known any more.
const REMOVED: &str = "_removed";

/// Reads the key file that a configuration names, if any, to no other end than to know that it can be used.
///
/// # Errors
/// Why it can't.
pub fn check_file(config: &ServerConfig) -> Result<(), String> {
    Keys::new(config).read_file().map(drop)
}

/// What the bearer of a key may do.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(super) scopes: Scopes,
    pub(super) limits: KeyLimits,
    pub(super) models: Option<Vec<String>>,
    expires: Option<DateTime<Utc>>,
}

impl Facts {
    fn unlimited(scopes: Scopes) -> Arc<Self> {
        Arc::new(Self { scopes, limits: KeyLimits::default(), models: None, expires: None })
    }
}

/// A key that opens.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(super) facts: Arc<Facts>,
    pub(super) account: Arc<Account>,
}

impl Key {
    /// Whose the things are that its bearers store.
    pub(crate) fn owner(&self) -> &str {
        &self.account.owner
    }

    /// Whether one of these scopes is among the key's, or none is needed.
    pub(crate) fn opens(&self, scopes: &[Scope]) -> bool {
        scopes.is_empty() || scopes.iter().any(|scope| self.facts.scopes.has(*scope))
    }
}

/// A key with what opens as it.
type Known = (Vec<KeyDigest>, Key);

/// All keys.
#[derive(Debug)]
pub(crate) struct Keys {
    path: Option<PathBuf>,
    flags: Vec<Known>,
    filed: RwLock<Arc<Filed>>,
    accounts: Mutex<HashMap<String, Arc<Account>>>,
    anonymous: Key,
    removed: Key,
    pub(crate) book: Arc<UsageBook>,
    /// What this server is called where several share limits.
    holder: String,
}

/// What the file held when it was read last.
#[derive(Debug, Default)]
struct Filed {
    text: Option<String>,
    keys: Vec<Known>,
}

impl Keys {
    /// The keys of the flags. Those of a file open nothing before it was [read](Self::read_file).
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let now = Instant::now();
        let plain = |name: &str, owner: String, scopes| Key {
            facts: Facts::unlimited(scopes),
            account: Arc::new(Account::new(name, name, owner, now)),
        };
        let kinds = [
            ("admin-api-key", &config.admin_api_keys, Scopes::ALL),
            ("api-key", &config.api_keys, Scopes::WATCH),
        ];
        let flags = kinds.into_iter().flat_map(|(kind, keys, scopes)| {
            keys.iter().enumerate().map(move |(index, key)| {
                let (name, key) = (format!("{kind}-{}", index + 1), key.as_bytes());
                (vec![digest(key)], plain(&name, owner_of_key(key), scopes))
            })
        });
        Self {
            path: config.api_key_file.clone(),
            flags: flags.collect(),
            filed: RwLock::default(),
            accounts: Mutex::default(),
            anonymous: plain(ANONYMOUS, String::new(), Scopes::ALL),
            removed: plain(REMOVED, String::new(), Scopes::USE),
            book: Arc::default(),
            holder: Uuid::new_v4().simple().to_string(),
        }
    }

    /// Whether no key is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.flags.is_empty() && self.path.is_none()
    }

    /// The bearer of no key, where none is needed.
    pub(crate) fn anonymous(&self) -> Key {
        self.anonymous.clone()
    }

    /// The key that opens with this, if any does.
    pub(crate) fn find(&self, presented: &[u8]) -> Result<Option<Key>, ApiError> {
        let presented = digest(presented);
        let filed = self.filed();
        let mut found = None;
        // Every key is compared with, whichever it is. The first of those that are alike counts.
        for (digests, key) in filed.keys.iter().rev().chain(self.flags.iter().rev()) {
            for own in digests {
                if bool::from(own.ct_eq(&presented)) {
                    found = Some(key);
                }
            }
        }
        let expired = |key: &&Key| key.facts.expires.is_some_and(|at| at <= Utc::now());
        if found.as_ref().is_some_and(expired) {
            return Err(ApiError::Authentication("the API key has expired"));
        }
        Ok(found.cloned())
    }

    /// The key whose bearers store things as this owner; those of keys that are gone are nobody's.
    pub(crate) fn of_owner(&self, owner: &str) -> Key {
        if self.is_open() {
            return self.anonymous.clone();
        }
        let filed = self.filed();
        let mut all = self.flags.iter().chain(&filed.keys).map(|(_, key)| key);
        all.find(|key| key.owner() == owner).unwrap_or(&self.removed).clone()
    }

    fn filed(&self) -> Arc<Filed> {
        Arc::clone(&self.filed.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the key file, if there is one; whether it said anything new. If it can't be used, what it
    /// said before stays.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(crate) fn read_file(&self) -> Result<bool, String> {
        let Some(path) = &self.path else { return Ok(false) };
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let before = self.filed();
        if before.text.as_ref() == Some(&text) {
            return Ok(false);
        }
        let keys = file::parse(&text).map_err(|error| error.to_string())?;
        let of_flag = |name: &str| self.flags.iter().any(|(_, key)| &*key.account.name == name);
        if let Some(key) = keys.iter().find(|key| of_flag(&key.name)) {
            return Err(format!("the key {:?}: a key of a flag has this name", key.name));
        }
        let keys = keys.into_iter().map(|key| self.known(key)).collect();
        let filed = Arc::new(Filed { text: Some(text), keys });
        *self.filed.write().unwrap_or_else(PoisonError::into_inner) = filed;
        Ok(true)
    }

    fn known(&self, key: FileKey) -> Known {
        let FileKey { name, digests, scopes, limits, models, expires } = key;
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let label = if accounts.len() < MAX_LABELS { name.as_str() } else { OTHERS };
        let account = accounts.get(&name).cloned().unwrap_or_else(|| {
            Arc::new(Account::new(&name, label, owner_of_name(&name), Instant::now()))
        });
        accounts.insert(name, Arc::clone(&account));
        (digests, Key { facts: Arc::new(Facts { scopes, limits, models, expires }), account })
    }

    /// The name under which this server takes part in shared limits.
    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// Writes what was used, and tells other servers of the same store how much of their common limits
    /// is in use here.
    ///
    /// # Errors
    /// When the store is down or full; it is written and told the next time then.
    pub(crate) async fn write(&self, store: &Store) -> Result<(), StoreError> {
        self.book.write(store).await?;
        if !store.is_shared() {
            return Ok(());
        }
        let filed = self.filed();
        let told: Vec<(&Account, Claim)> = filed
            .keys
            .iter()
            .filter(|(_, key)| key.facts.limits != KeyLimits::default() && key.account.has_news())
            .map(|(_, key)| (&*key.account, key.account.claim(&key.facts.limits, &self.holder)))
            .collect();
        let claims: Vec<Claim> = told.iter().map(|(_, claim)| claim.clone()).collect();
        let result = store.tell_claims(&claims).await;
        if result.is_err() {
            for (account, claim) in &told {
                account.keep(claim.spent);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(users: &[&str], admins: &[&str], path: Option<PathBuf>) -> Keys {
        let texts = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        Keys::new(&ServerConfig {
            api_keys: texts(users),
            admin_api_keys: texts(admins),
            api_key_file: path,
            ..ServerConfig::default()
        })
    }

    #[test]
    fn only_whole_keys_open() {
        let keys = keys(&["secret", "both"], &["other", "both"], None);
        let admin =
            |key: &str| keys.find(key.as_bytes()).unwrap().map(|key| key.opens(&[Scope::Admin]));
        assert_eq!(admin("secret"), Some(false));
        assert_eq!([admin("other"), admin("both")], [Some(true); 2]);
        for unknown in ["secre", "secret2", ""] {
            assert_eq!(admin(unknown), None);
        }
        assert!(!keys.is_open());
    }

    #[test]
    fn a_file_that_is_broken_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let keys = keys(&["flag"], &[], Some(path.clone()));
        let opens = |key: &str| keys.find(key.as_bytes()).unwrap().is_some();
        assert!(keys.read_file().is_err() && !opens("one"));
        let entry = |name: &str, key: &str, more: &str| {
            let hex = file::hex(&digest(key.as_bytes()));
            format!("[[keys]]\nname = \"{name}\"\nsha256 = \"{hex}\"\n{more}\n")
        };
        std::fs::write(&path, entry("a", "one", "max_concurrent = 1")).unwrap();
        assert_eq!(keys.read_file(), Ok(true));
        assert_eq!(keys.read_file(), Ok(false));
        assert!(opens("one") && opens("flag") && !opens("two"));
        let account = keys.find(b"one").unwrap().unwrap().account;
        for broken in ["[[keys]", &entry("api-key-1", "two", "")] {
            std::fs::write(&path, broken).unwrap();
            assert!(keys.read_file().is_err());
            assert!(opens("one") && !opens("two"));
        }
        // The same name under another key has the same account.
        std::fs::write(&path, entry("a", "two", "")).unwrap();
        assert_eq!(keys.read_file(), Ok(true));
        assert!(!opens("one") && opens("two"));
        assert!(Arc::ptr_eq(&account, &keys.find(b"two").unwrap().unwrap().account));
        assert_eq!(keys.of_owner(&owner_of_name("a")).owner(), owner_of_name("a"));
        assert_eq!(&*keys.of_owner("?").account.name, REMOVED);
        std::fs::write(&path, entry("a", "two", "expires = 2020-01-01")).unwrap();
        assert_eq!(keys.read_file(), Ok(true));
        assert!(keys.find(b"two").unwrap_err().to_string().contains("expired"));
    }
}
