//! What the server remembers of a key: what it may still use now, and how much of it runs. A key keeps its
//! account by its name while its file changes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::bucket::{Bucket, as_parts};
use super::file::KeyLimits;
use crate::http::error::{KeyLimit, LimitKind};
use crate::store::{Claim, Claimed};

/// The account of a key.
#[derive(Debug)]
pub(crate) struct Account {
    /// What usage and the log call it.
    pub(crate) name: Arc<str>,
    /// What metrics call it: its name, but for keys that come when there are very many.
    pub(crate) label: Arc<str>,
    /// Whose the things are that its bearers store.
    pub(crate) owner: String,
    /// Tells the keys apart between which the engine is fair.
    pub(crate) share: u64,
    buckets: Mutex<Buckets>,
    running: AtomicU64,
    /// How many of them other servers know of.
    told: AtomicU64,
    /// Tokens that other servers don't know of yet, in parts.
    untold: AtomicI64,
}

#[derive(Clone, Copy, Debug)]
struct Buckets {
    requests: Bucket,
    tokens: Bucket,
}

/// Held while a request of a key runs.
#[derive(Debug)]
pub(crate) struct Place(Arc<Account>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One limit of a key as answers tell it: the most, what is left, and when all is there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) limit: u64,
    pub(crate) left: u64,
    pub(crate) reset: Duration,
}

impl Account {
    /// An account that has used nothing.
    pub(crate) fn new(name: &str, label: &str, owner: String, now: Instant) -> Self {
        let full = Bucket::full(now);
        Self {
            share: share(name),
            name: name.into(),
            label: label.into(),
            owner,
            buckets: Mutex::new(Buckets { requests: full, tokens: full }),
            running: AtomicU64::new(0),
            told: AtomicU64::new(0),
            untold: AtomicI64::new(0),
        }
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request out of what may be used now, and a place among those that run.
    pub(crate) fn enter(
        self: &Arc<Self>,
        limits: &KeyLimits,
        now: Instant,
    ) -> Result<Place, KeyLimit> {
        let mut buckets = self.refilled(limits, now);
        let Buckets { requests, tokens } = &mut *buckets;
        if let Some(limit) = limits.requests_per_minute
            && requests.left() == 0
        {
            let wait = requests.wait_for(1, limit);
            return Err(KeyLimit { kind: LimitKind::Requests, limit, left: 0, asked: 1, wait });
        }
        if let Some(limit) = limits.tokens_per_minute
            && tokens.left() == 0
        {
            let wait = tokens.wait_for(1, limit);
            return Err(KeyLimit { kind: LimitKind::Tokens, limit, left: 0, asked: 1, wait });
        }
        let most = limits.max_concurrent.unwrap_or(u64::MAX);
        let enters = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |running| {
            (running < most).then_some(running + 1)
        });
        if enters.is_err() {
            return Err(crowded(most));
        }
        if limits.requests_per_minute.is_some() {
            requests.take(1);
        }
        Ok(Place(Arc::clone(self)))
    }

    /// Takes the tokens of a prompt. More than a minute's worth may come when nothing was used.
    pub(crate) fn take_prompt(
        &self,
        limits: &KeyLimits,
        amount: u64,
        now: Instant,
    ) -> Result<(), KeyLimit> {
        let Some(limit) = limits.tokens_per_minute else { return Ok(()) };
        let mut buckets = self.refilled(limits, now);
        let tokens = &mut buckets.tokens;
        if tokens.left() < amount && !tokens.is_full(limit) {
            let (left, wait) = (tokens.left(), tokens.wait_for(amount, limit));
            return Err(KeyLimit { kind: LimitKind::Tokens, limit, left, asked: amount, wait });
        }
        tokens.take(amount);
        self.untold.fetch_add(as_parts(amount), Ordering::Relaxed);
        Ok(())
    }

    /// A token of an answer came.
    pub(crate) fn take_token(&self) {
        self.buckets().tokens.take(1);
        self.untold.fetch_add(as_parts(1), Ordering::Relaxed);
    }

    /// The limits of requests and of tokens, as far as there are any.
    pub(crate) fn levels(&self, limits: &KeyLimits, now: Instant) -> [Option<Level>; 2] {
        let buckets = *self.refilled(limits, now);
        let level = |bucket: Bucket, limit: Option<u64>| {
            limit.map(|limit| Level { limit, left: bucket.left(), reset: bucket.reset(limit) })
        };
        [
            level(buckets.requests, limits.requests_per_minute),
            level(buckets.tokens, limits.tokens_per_minute),
        ]
    }

    fn refilled(&self, limits: &KeyLimits, now: Instant) -> MutexGuard<'_, Buckets> {
        let mut buckets = self.buckets();
        // Without a limit there is nothing to owe.
        match limits.requests_per_minute {
            Some(limit) => buckets.requests.refill(limit, now),
            None => buckets.requests = Bucket::full(now),
        }
        match limits.tokens_per_minute {
            Some(limit) => buckets.tokens.refill(limit, now),
            None => buckets.tokens = Bucket::full(now),
        }
        buckets
    }
}

/// Where several servers share the limits.
impl Account {
    /// What to ask of the store for a request that has entered here; the tokens that it tells are told
    /// then, unless they are [given back](Self::keep).
    pub(crate) fn claim(&self, limits: &KeyLimits, holder: &str) -> Claim {
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let running = self.running.load(Ordering::Relaxed);
        self.told.store(running, Ordering::Relaxed);
        let running = whole(running);
        Claim {
            key: self.name.to_string(),
            holder: holder.to_owned(),
            requests_per_minute: limits.requests_per_minute.map(whole),
            tokens_per_minute: limits.tokens_per_minute.map(whole),
            concurrent: limits.max_concurrent.map(|most| (whole(most), running)),
            spent: self.untold.swap(0, Ordering::Relaxed),
        }
    }

    /// A claim that could not be made told nobody of these tokens.
    pub(crate) fn keep(&self, spent: i64) {
        self.untold.fetch_add(spent, Ordering::Relaxed);
    }

    /// Whether there is anything to tell others.
    pub(crate) fn has_news(&self) -> bool {
        // What runs is told again and again, for others take it for gone after a while; that nothing
        // runs any more is told once.
        let running = [&self.running, &self.told].map(|count| count.load(Ordering::Relaxed));
        self.untold.load(Ordering::Relaxed) > 0 || running != [0, 0]
    }

    /// What all servers together have left is what is left here.
    pub(crate) fn settle(
        &self,
        limits: &KeyLimits,
        claimed: Claimed,
        now: Instant,
    ) -> Result<(), KeyLimit> {
        let mut buckets = self.refilled(limits, now);
        buckets.requests.set(claimed.requests);
        buckets.tokens.set(claimed.tokens.saturating_sub(self.untold.load(Ordering::Relaxed)));
        if claimed.granted {
            return Ok(());
        }
        let Buckets { requests, tokens } = *buckets;
        if let Some(limit) = limits.requests_per_minute.filter(|_| requests.left() == 0) {
            let wait = requests.wait_for(1, limit);
            return Err(KeyLimit { kind: LimitKind::Requests, limit, left: 0, asked: 1, wait });
        }
        if let Some(limit) = limits.tokens_per_minute.filter(|_| tokens.left() == 0) {
            let wait = tokens.wait_for(1, limit);
            return Err(KeyLimit { kind: LimitKind::Tokens, limit, left: 0, asked: 1, wait });
        }
        Err(crowded(limits.max_concurrent.unwrap_or(u64::MAX)))
    }
}

/// Too many run; when one ends is not known.
fn crowded(limit: u64) -> KeyLimit {
    let wait = Duration::from_secs(1);
    KeyLimit { kind: LimitKind::Concurrent, limit, left: 0, asked: 1, wait }
}

/// Owner of what the bearers of a key store that was given by a flag: a digest, so that the store knows no
/// key.
pub(crate) fn owner_of_key(key: &[u8]) -> String {
    owner(b"sconce owner\0", key)
}

/// The same for a key with a name: whoever replaces it keeps what it stored.
pub(crate) fn owner_of_name(name: &str) -> String {
    owner(b"sconce owner by name\0", name.as_bytes())
}

fn owner(what: &[u8], bytes: &[u8]) -> String {
    let digest = Sha256::new_with_prefix(what).chain_update(bytes).finalize();
    let first = digest.first_chunk::<16>().expect("a digest has 32 bytes");
    format!("{:032x}", u128::from_be_bytes(*first))
}

/// A number for a name; nobody's is 0.
fn share(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    u64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes")).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> (Arc<Account>, Instant) {
        let now = Instant::now();
        (Arc::new(Account::new("k", "k", owner_of_name("k"), now)), now)
    }

    #[test]
    fn each_limit_refuses_with_its_name() {
        let (account, now) = account();
        let limits = KeyLimits {
            requests_per_minute: Some(4),
            tokens_per_minute: Some(100),
            max_concurrent: Some(2),
        };
        let enter = || account.enter(&limits, now);
        let kind = |refused: Result<Place, KeyLimit>| refused.unwrap_err().kind;
        let places = [enter().unwrap(), enter().unwrap()];
        assert_eq!(kind(enter()), LimitKind::Concurrent);
        drop(places);
        account.take_prompt(&limits, 60, now).unwrap();
        let refused = account.take_prompt(&limits, 60, now).unwrap_err();
        assert_eq!((refused.kind, refused.left, refused.asked), (LimitKind::Tokens, 40, 60));
        assert_eq!(refused.wait, Duration::from_secs(12));
        (0..40).for_each(|_| account.take_token());
        assert_eq!(kind(enter()), LimitKind::Tokens);
        let later = now + Duration::from_secs(30);
        drop(account.enter(&limits, later).unwrap());
        let [requests, tokens] = account.levels(&limits, later).map(Option::unwrap);
        assert_eq!((requests.limit, requests.left, tokens.left), (4, 3, 50));
        drop((account.enter(&limits, later), account.enter(&limits, later)));
        drop(account.enter(&limits, later).unwrap());
        assert_eq!(kind(account.enter(&limits, later)), LimitKind::Requests);
    }

    #[test]
    fn a_prompt_larger_than_a_minute_comes_when_nothing_was_used() {
        let (account, now) = account();
        let limits = KeyLimits { tokens_per_minute: Some(100), ..KeyLimits::default() };
        account.take_prompt(&limits, 250, now).unwrap();
        let wait = account.enter(&limits, now).unwrap_err().wait;
        assert_eq!(wait, Duration::from_millis(90_600));
        let free = KeyLimits::default();
        account.take_prompt(&free, u64::MAX, now).unwrap();
        assert!(account.enter(&free, now).is_ok());
        assert_eq!(account.levels(&free, now), [None, None]);
    }

    #[test]
    fn owners_do_not_tell_their_keys() {
        let [one, other] = [b"one", b"two"].map(|key| owner_of_key(key));
        assert!(one != other && one == owner_of_key(b"one") && one != owner_of_name("one"));
        assert!(one.len() == 32 && !one.contains("one"));
    }
}
