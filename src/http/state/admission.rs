//! How many sequences may wait or run at once, and how many tokens of prompts may wait; one more is
//! answered 429 instead of piling up, and told when there will probably be room.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keys::account::Place;
use crate::http::error::{ApiError, Full};

/// Most seconds that a client is told to wait.
const LONGEST_WAIT: u64 = 60;

/// Counts sequences, and tokens of prompts that no sequence has computed. A request that alone is
/// larger than a bound may come when nothing else is there.
#[derive(Debug)]
pub(crate) struct Admission {
    permits: Arc<Semaphore>,
    capacity: usize,
    /// Sequences that ended.
    ended: Arc<Rate>,
    queue: Arc<TokenQueue>,
    what: What,
}

/// What is counted, as it stands behind a number in errors.
#[derive(Clone, Copy, Debug)]
struct What {
    sequences: &'static str,
    tokens: &'static str,
}

/// Sequences and prompts.
const TEXTS: What =
    What { sequences: "sequences are waiting or running", tokens: "tokens of prompts are waiting" };

/// Files of sound.
const FILES: What = What {
    sequences: "files are waiting or transcribed",
    tokens: "KiB of files are waiting or transcribed",
};

/// The prompts that wait.
#[derive(Debug)]
struct TokenQueue {
    waiting: AtomicUsize,
    /// Most tokens that may wait.
    bound: usize,
    /// Tokens that no longer wait.
    left: Rate,
    what: &'static str,
}

/// Held while a request waits or runs.
#[derive(Debug)]
pub(crate) struct Permit {
    sequences: Option<OwnedSemaphorePermit>,
    ended: Arc<Rate>,
    queue: Arc<TokenQueue>,
    /// Tokens of this request that wait.
    queued: AtomicUsize,
    /// Its place among the requests of its key, kept until it ends.
    place: Option<Place>,
}

impl Admission {
    /// Room for `capacity` sequences, whose prompts may have `max_queued_tokens` while they wait; `None`
    /// bounds them not.
    pub(crate) fn new(capacity: usize, max_queued_tokens: Option<usize>) -> Self {
        Self::of(TEXTS, capacity, max_queued_tokens)
    }

    /// The same for files of sound and their KiB, which count until a file's transcript has ended.
    pub(crate) fn of_files(capacity: usize, max_queued_kib: usize) -> Self {
        Self::of(FILES, capacity, Some(max_queued_kib))
    }

    fn of(what: What, capacity: usize, max_queued_tokens: Option<usize>) -> Self {
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        let queue = TokenQueue {
            waiting: AtomicUsize::new(0),
            bound: max_queued_tokens.unwrap_or(usize::MAX),
            left: Rate::default(),
            what: what.tokens,
        };
        Self {
            what,
            permits: Arc::new(Semaphore::new(capacity)),
            capacity,
            ended: Arc::default(),
            queue: Arc::new(queue),
        }
    }

    /// Takes room for a request of `sequences` or says how full it is.
    pub(crate) fn admit(&self, sequences: usize) -> Result<Permit, ApiError> {
        let wanted = sequences.min(self.capacity);
        let permits = u32::try_from(wanted).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(permits).map_err(|_| {
            let there = self.in_use();
            let missing = (there + wanted).saturating_sub(self.capacity);
            let retry_after = self.ended.seconds_for(missing, Instant::now());
            ApiError::TooManyRequests(Full {
                what: self.what.sequences,
                there,
                bound: self.capacity,
                retry_after,
            })
        })?;
        Ok(Permit {
            sequences: Some(permit),
            ended: Arc::clone(&self.ended),
            queue: Arc::clone(&self.queue),
            queued: AtomicUsize::new(0),
            place: None,
        })
    }

    /// Most sequences that may wait or run.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sequences that wait or run.
    pub(crate) fn in_use(&self) -> usize {
        self.capacity - self.permits.available_permits()
    }

    /// Returns when nothing waits or runs. Sequences admitted meanwhile are waited for, too.
    pub(crate) async fn idle(&self) {
        let all = u32::try_from(self.capacity).unwrap_or(u32::MAX);
        // The semaphore is never closed, so this only ever ends with all permits.
        let _ = self.permits.acquire_many(all).await;
    }
}

impl Permit {
    /// The same, keeping a place among the requests of a key as well.
    pub(crate) fn with_place(self, place: Option<Place>) -> Self {
        let mut permit = self;
        permit.place = place;
        permit
    }

    /// Takes room for the tokens of the request's prompts, or says how full it is.
    pub(crate) fn queue_tokens(&self, tokens: usize) -> Result<(), ApiError> {
        let TokenQueue { waiting, bound, left, what } = &*self.queue;
        let taken = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |there| {
            let sum = there.saturating_add(tokens);
            (there == 0 || sum <= *bound).then_some(sum)
        });
        match taken {
            Ok(_) => {
                self.queued.fetch_add(tokens, Ordering::Relaxed);
                Ok(())
            }
            Err(there) => {
                let missing = there.saturating_add(tokens).saturating_sub(*bound);
                Err(ApiError::TooManyRequests(Full {
                    what,
                    there,
                    bound: *bound,
                    retry_after: left.seconds_for(missing, Instant::now()),
                }))
            }
        }
    }

    /// The request's first token is there: its prompts wait no longer.
    pub(crate) fn leave_queue(&self) {
        let tokens = self.queued.swap(0, Ordering::Relaxed);
        if tokens > 0 {
            self.queue.waiting.fetch_sub(tokens, Ordering::Relaxed);
            self.queue.left.add(tokens, Instant::now());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.leave_queue();
        if let Some(permit) = self.sequences.take() {
            self.ended.add(permit.num_permits(), Instant::now());
        }
    }
}

/// How fast something goes on, as seen lately.
#[derive(Debug, Default)]
struct Rate {
    /// When how much went on, oldest first.
    seen: Mutex<VecDeque<(Instant, usize)>>,
}

impl Rate {
    /// Entries that are remembered.
    const ENTRIES: usize = 64;
    /// What was longer ago says nothing about now.
    const WINDOW: Duration = Duration::from_mins(2);

    fn add(&self, amount: usize, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() == Self::ENTRIES {
            seen.pop_front();
        }
        seen.push_back((now, amount));
    }

    /// The whole seconds until `amount` more has probably gone on: at least 1, which also stands for
    /// "nobody knows", and at most [`LONGEST_WAIT`].
    fn seconds_for(&self, amount: usize, now: Instant) -> u64 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.front().is_some_and(|(at, _)| now.duration_since(*at) > Self::WINDOW) {
            seen.pop_front();
        }
        // The first one's amount took time before it.
        let Some((first, _)) = seen.front().filter(|_| seen.len() > 1) else { return 1 };
        let gone: usize = seen.iter().skip(1).map(|(_, amount)| amount).sum();
        let took = now.duration_since(*first).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
        let seconds = took * amount as f64 / gone.max(1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let whole = seconds.ceil() as u64;
        whole.clamp(1, LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(error: &ApiError) -> (usize, usize) {
        let ApiError::TooManyRequests(full) = error else { panic!("{error}") };
        (full.there, full.bound)
    }

    #[test]
    fn one_more_than_the_bound_is_refused_until_one_ends() {
        let admission = Admission::new(3, None);
        let first = admission.admit(2).unwrap();
        let _second = admission.admit(1).unwrap();
        assert_eq!(full(&admission.admit(1).unwrap_err()), (3, 3));
        drop(first);
        assert!(admission.admit(2).is_ok());
    }

    #[test]
    fn a_request_larger_than_the_bound_runs_alone() {
        let admission = Admission::new(2, None);
        let large = admission.admit(100).unwrap();
        assert!(admission.admit(1).is_err());
        drop(large);
        assert_eq!(admission.in_use(), 0);
    }

    #[test]
    fn prompts_wait_up_to_a_number_of_tokens_until_their_first_token() {
        let admission = Admission::new(10, Some(100));
        let permits: Vec<Permit> = (0..4).map(|_| admission.admit(1).unwrap()).collect();
        permits[0].queue_tokens(60).unwrap();
        permits[1].queue_tokens(40).unwrap();
        assert_eq!(full(&permits[2].queue_tokens(1).unwrap_err()), (100, 100));
        permits[0].leave_queue();
        permits[2].queue_tokens(60).unwrap();
        // Leaving twice gives no room twice.
        permits[0].leave_queue();
        assert_eq!(full(&permits[3].queue_tokens(1).unwrap_err()), (100, 100));
        drop(permits);
        let alone = admission.admit(1).unwrap();
        alone.queue_tokens(1000).unwrap();
    }

    #[test]
    fn the_wait_follows_what_was_seen() {
        let (rate, start) = (Rate::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(rate.seconds_for(5, at(0)), 1, "nothing was seen");
        rate.add(7, at(0));
        assert_eq!(rate.seconds_for(5, at(1)), 1, "one tells no rate");
        // Two every four seconds.
        for second in [4, 8, 12] {
            rate.add(2, at(second));
        }
        assert_eq!(rate.seconds_for(1, at(12)), 2);
        assert_eq!(rate.seconds_for(4, at(12)), 8);
        assert_eq!(rate.seconds_for(1000, at(12)), LONGEST_WAIT);
        // What has stood still since is slower.
        assert_eq!(rate.seconds_for(1, at(24)), 4);
        assert_eq!(rate.seconds_for(1, at(1000)), 1, "that was too long ago");
    }
}
