//! The late-join protocol under the model checker: the same file as the team runs on, over
//! modelled atomics, in every order of events that the memory model allows for a few threads.
//!
//! The checker also finds a thread that sleeps forever: workers that never come home, a caller
//! that nobody wakes, and, with chunks that wait for each other, a region to which no worker comes.

use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicUsize as StdAtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use loom::sync::{Arc, Condvar, Mutex};

mod atomics {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
    pub(super) use loom::sync::{Condvar, Mutex};

    /// Gives up at once: how long a thread spins makes no difference to what may happen.
    pub(super) struct Spin;

    impl Spin {
        pub(super) fn for_region() -> Self {
            Self
        }

        pub(super) fn for_last_chunks() -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "called as the one that waits is")]
        pub(super) fn again(&mut self) -> bool {
            false
        }
    }
}

#[allow(clippy::duplicate_mod, reason = "the same protocol over other atomics")]
#[path = "late_join.rs"]
mod late_join;

use atomics::UnsafeCell;
use late_join::LateJoin;

/// What chunks write; the checker sees two that write the same one, or one that writes after the
/// region's caller has read.
struct Results(Vec<UnsafeCell<u32>>);

// SAFETY: the checker fails on any access that isn't ordered with the others.
unsafe impl Sync for Results {}

impl Results {
    fn new(num_chunks: usize) -> Self {
        Self((0..num_chunks).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, chunk: usize) {
        // SAFETY: the checker fails unless this access is exclusive.
        self.0[chunk].with_mut(|result| unsafe { *result += 1 });
    }

    fn all_are(&self, expected: u32) -> bool {
        // SAFETY: the checker fails if a chunk could still write.
        self.0.iter().all(|result| result.with_mut(|result| unsafe { *result == expected }))
    }
}

/// Runs `caller` beside `num_workers` workers in all orders with up to `preemptions` preemptions.
fn check(
    num_workers: usize,
    preemptions: usize,
    caller: impl Fn(&LateJoin) + Sync + Send + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let late_join = Arc::new(LateJoin::new(num_workers));
        let workers: Vec<_> = (0..num_workers)
            .map(|seat| {
                let late_join = Arc::clone(&late_join);
                loom::thread::spawn(move || late_join.serve(seat))
            })
            .collect();
        caller(&late_join);
        late_join.stop();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn runs_every_chunk_once_and_lets_nobody_into_a_closed_region() {
    check(1, 3, |late_join| {
        for num_chunks in [2, 1] {
            let results = Results::new(num_chunks);
            assert!(late_join.run(num_chunks, &|chunk| results.add(chunk)));
            assert!(results.all_are(1));
        }
    });
}

#[test]
fn two_workers_share_regions() {
    check(2, 1, |late_join| {
        for num_chunks in [3, 2] {
            let results = Results::new(num_chunks);
            assert!(late_join.run(num_chunks, &|chunk| results.add(chunk)));
            assert!(results.all_are(1));
        }
    });
}

/// Chunks that finish only when all of them have begun: each needs a thread of its own.
fn meet(late_join: &LateJoin, num_chunks: usize) {
    let begun = Mutex::new(0);
    let all_begun = Condvar::new();
    assert!(late_join.run(num_chunks, &|_| {
        let mut begun = begun.lock().unwrap();
        *begun += 1;
        all_begun.notify_all();
        while *begun < num_chunks {
            begun = all_begun.wait(begun).unwrap();
        }
    }));
}

#[test]
fn a_region_wakes_its_worker() {
    check(1, 3, |late_join| {
        meet(late_join, 2);
        meet(late_join, 2);
    });
}

#[test]
fn a_region_wakes_two_workers() {
    check(2, 1, |late_join| meet(late_join, 3));
}

#[test]
fn a_second_caller_is_turned_away_or_served() {
    let turned_away = StdArc::new(StdAtomicUsize::new(0));
    let seen = StdArc::clone(&turned_away);
    check(1, 2, move |late_join| {
        // The scope of the model has no scoped threads: the other caller is the region's chunk.
        let results = Results::new(2);
        assert!(late_join.run(2, &|chunk| {
            let nested = Results::new(2);
            if !late_join.run(2, &|chunk| nested.add(chunk)) {
                seen.fetch_add(1, Relaxed);
                (0..2).for_each(|chunk| nested.add(chunk));
            }
            assert!(nested.all_are(1));
            results.add(chunk);
        }));
        assert!(results.all_are(1));
    });
    assert!(turned_away.load(Relaxed) > 0);
}

#[test]
fn two_callers_never_mix_their_regions() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let late_join = Arc::new(LateJoin::new(1));
        let worker = {
            let late_join = Arc::clone(&late_join);
            loom::thread::spawn(move || late_join.serve(0))
        };
        let call = |late_join: &LateJoin| {
            let results = Results::new(2);
            if late_join.run(2, &|chunk| results.add(chunk)) {
                assert!(results.all_are(1));
            }
        };
        let other = {
            let late_join = Arc::clone(&late_join);
            loom::thread::spawn(move || call(&late_join))
        };
        call(&late_join);
        other.join().unwrap();
        late_join.stop();
        worker.join().unwrap();
    });
}
