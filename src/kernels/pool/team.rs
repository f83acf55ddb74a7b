//! A team of threads: starts the workers, hands them regions, carries a chunk's panic to the
//! caller. How chunks are claimed is `late_join`'s business.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::error::PoolError;
use super::late_join::LateJoin;
#[cfg(target_os = "linux")]
use super::nodes;

/// Workers that wait for regions, and whoever calls.
#[derive(Debug)]
pub(super) struct Team {
    late_join: Arc<LateJoin>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    /// A team of `threads` threads, callers being the first.
    pub(super) fn start(threads: usize) -> Result<Self, PoolError> {
        #[cfg(target_os = "linux")]
        nodes::interleave();
        let num_workers = threads.saturating_sub(1);
        let late_join = Arc::new(LateJoin::new(num_workers));
        // Built up in place, so that the workers started so far end if the next one can't start.
        let mut team = Self { late_join, workers: Vec::with_capacity(num_workers) };
        for seat in 0..num_workers {
            let late_join = Arc::clone(&team.late_join);
            let worker = thread::Builder::new()
                .name(format!("kernel-{}", seat + 1))
                .spawn(move || late_join.serve(seat))
                .map_err(|e| PoolError::Spawn { wanted: threads, reason: e.to_string() })?;
            team.workers.push(worker);
        }
        Ok(team)
    }

    /// A team of the caller alone.
    pub(super) fn alone() -> Self {
        Self { late_join: Arc::new(LateJoin::new(0)), workers: Vec::new() }
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each chunk and returns when all are done.
    ///
    /// A call from inside a chunk, and one that comes while another caller has the team, runs all
    /// its chunks on its own thread.
    pub(super) fn for_each_chunk(&self, num_chunks: usize, work: &(impl Fn(usize) + Sync)) {
        if num_chunks <= 1 || self.workers.is_empty() {
            (0..num_chunks).for_each(work);
            return;
        }
        let panic = FirstPanic::default();
        if self.late_join.run(num_chunks, &|chunk| panic.catch(|| work(chunk))) {
            panic.resume();
        } else {
            (0..num_chunks).for_each(work);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.late_join.stop();
        for worker in self.workers.drain(..) {
            worker.join().expect("chunks don't unwind into workers");
        }
    }
}

/// The panic that a region's caller gets to see.
#[derive(Default)]
struct FirstPanic(Mutex<Option<Box<dyn Any + Send>>>);

impl FirstPanic {
    fn catch(&self, work: impl FnOnce()) {
        // Unwind safety is the caller's, to whom the panic is carried.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(panic);
        }
    }

    fn resume(self) {
        if let Some(panic) = self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::time::Duration;

    fn assert_each_once(team: &Team, num_chunks: usize) {
        let hits: Vec<AtomicU32> = (0..num_chunks).map(|_| AtomicU32::new(0)).collect();
        team.for_each_chunk(num_chunks, &|chunk| {
            hits[chunk].fetch_add(1, Ordering::Relaxed);
        });
        assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1), "{num_chunks} chunks");
    }

    #[test]
    fn runs_every_chunk_of_many_regions_once() {
        for threads in [1, 2, 3, 8] {
            let team = Team::start(threads).unwrap();
            for region in 0..3000 {
                assert_each_once(&team, region % 40);
            }
        }
    }

    #[test]
    fn serves_many_callers_at_once() {
        let team = Team::start(3).unwrap();
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| (0..500).for_each(|region| assert_each_once(&team, region % 20)));
            }
        });
    }

    #[test]
    fn a_chunk_may_call_again() {
        let team = Team::start(3).unwrap();
        let inner = AtomicUsize::new(0);
        for _ in 0..200 {
            team.for_each_chunk(6, &|_| {
                team.for_each_chunk(5, &|_| {
                    inner.fetch_add(1, Ordering::Relaxed);
                });
            });
        }
        assert_eq!(inner.into_inner(), 200 * 6 * 5);
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_other_chunks_ran() {
        let team = Team::start(3).unwrap();
        for panicking in 0..8 {
            let ran = AtomicUsize::new(0);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                team.for_each_chunk(8, &|chunk| {
                    assert!(chunk != panicking, "chunk {chunk}");
                    ran.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let message = panic.unwrap_err();
            assert_eq!(message.downcast_ref(), Some(&format!("chunk {panicking}")));
            assert_eq!(ran.into_inner(), 7);
            assert_each_once(&team, 8);
        }
    }

    #[test]
    fn work_is_shared_by_threads_that_slept() {
        let team = Team::start(2).unwrap();
        for _ in 0..3 {
            // Longer than a worker spins.
            thread::sleep(Duration::from_millis(2));
            let begun = std::sync::Barrier::new(2);
            // Each chunk waits for the other one.
            team.for_each_chunk(2, &|_| {
                begun.wait();
            });
        }
    }

    #[test]
    fn one_chunk_stays_on_the_calling_thread() {
        let team = Team::start(2).unwrap();
        let caller = thread::current().id();
        team.for_each_chunk(1, &|_| assert_eq!(thread::current().id(), caller));
        team.for_each_chunk(0, &|_| panic!("there is no chunk"));
    }
}
