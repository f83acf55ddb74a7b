//! Requests or tokens that may be used now: a bucket that fills at so many a minute, up to as many.
//!
//! What is taken may be more than there is: an answer's length is known when it is there. The bucket owes
//! it then, and gives nothing until it has filled up again.

use std::time::{Duration, Instant};

/// Levels are counted in these parts, of which so many a millisecond come as the limit is a minute.
const PARTS: i64 = 60_000;
/// A level that is as good as any above it.
const MOST: i64 = i64::MAX / 4;

/// How full a bucket is, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// In parts; below 0 what is owed.
    level: i64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub(super) fn full(now: Instant) -> Self {
        Self { level: MOST, at: now }
    }

    /// Fills it as time has gone on.
    pub(super) fn refill(&mut self, per_minute: u64, now: Instant) {
        let since = now.saturating_duration_since(self.at);
        // The rest of a millisecond counts next time.
        let milliseconds = i64::try_from(since.as_millis()).unwrap_or(PARTS).min(10 * PARTS);
        self.at += Duration::from_millis(milliseconds.unsigned_abs());
        if since.as_millis() > 10 * u128::from(PARTS.unsigned_abs()) {
            self.at = now;
        }
        let more = as_parts(per_minute) / PARTS;
        self.level = self.level.saturating_add(more.saturating_mul(milliseconds));
        self.level = self.level.min(as_parts(per_minute));
    }

    /// Takes an amount, whether it is there or not.
    pub(super) fn take(&mut self, amount: u64) {
        self.level = self.level.saturating_sub(as_parts(amount)).max(-MOST);
    }

    /// Sets what is left, as others know it.
    pub(super) fn set(&mut self, level: i64) {
        self.level = level;
    }

    /// Whether nothing has been taken, or it is there again.
    pub(super) fn is_full(&self, per_minute: u64) -> bool {
        self.level >= as_parts(per_minute)
    }

    /// What may be taken.
    pub(super) fn left(&self) -> u64 {
        (self.level.max(0) / PARTS).unsigned_abs()
    }

    /// How long until an amount is there; until it is full for more than that.
    pub(super) fn wait_for(&self, amount: u64, per_minute: u64) -> Duration {
        let wanted = as_parts(amount).min(as_parts(per_minute));
        let missing = wanted.saturating_sub(self.level).max(0);
        let a_millisecond = (as_parts(per_minute) / PARTS).max(1);
        let milliseconds = missing.unsigned_abs().div_ceil(a_millisecond.unsigned_abs());
        Duration::from_millis(milliseconds)
    }

    /// How long until it is full.
    pub(super) fn reset(&self, per_minute: u64) -> Duration {
        self.wait_for(per_minute, per_minute)
    }
}

/// An amount in the parts that levels are counted in.
pub(super) fn as_parts(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(MOST).saturating_mul(PARTS).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_at_its_rate_up_to_a_minute_of_it() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut bucket = Bucket::full(start);
        bucket.refill(60, start);
        assert_eq!((bucket.left(), bucket.reset(60)), (60, Duration::ZERO));
        bucket.take(60);
        assert_eq!(bucket.left(), 0);
        assert_eq!(bucket.wait_for(1, 60), Duration::from_secs(1));
        bucket.refill(60, at(999));
        assert_eq!((bucket.left(), bucket.wait_for(1, 60)), (0, Duration::from_millis(1)));
        bucket.refill(60, at(1000));
        assert_eq!((bucket.left(), bucket.reset(60)), (1, Duration::from_secs(59)));
        bucket.refill(60, at(3_600_000));
        assert!(bucket.is_full(60));
        assert_eq!(bucket.left(), 60);
    }

    #[test]
    fn what_is_owed_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::full(start);
        bucket.refill(600, start);
        bucket.take(1200);
        assert_eq!((bucket.left(), bucket.wait_for(1, 600)), (0, Duration::from_millis(60_100)));
        assert_eq!(bucket.wait_for(5000, 600), Duration::from_mins(2), "until it is full");
        bucket.refill(600, start + Duration::from_secs(61));
        assert_eq!(bucket.left(), 10);
    }

    #[test]
    fn parts_of_milliseconds_are_not_lost() {
        let start = Instant::now();
        let mut bucket = Bucket::full(start);
        bucket.refill(60, start);
        bucket.take(60);
        for step in 1..=4000 {
            bucket.refill(60, start + Duration::from_micros(step * 500));
        }
        assert_eq!(bucket.left(), 2);
    }
}
