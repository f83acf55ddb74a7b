//! The thread team: runs the numbered chunks of one operation on all worker threads.
//!
//! It answers how work is spread, and refuses to know what the work is. Chunks are claimed one by
//! one, the calling thread takes part, and the call returns when all chunks are done. Operations
//! must not let a result depend on which thread ran a chunk.

use std::num::NonZeroUsize;
use std::sync::OnceLock;

mod atomics;
mod cores;
#[cfg(any(target_os = "linux", test))]
mod cpus;
mod error;
mod late_join;
#[cfg(test)]
mod model;
#[cfg(target_os = "linux")]
mod nodes;
mod team;

pub use error::PoolError;
use team::Team;

/// Fewer elements of rows than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 15;
/// Rows of one chunk.
const CHUNK_ROWS: usize = 16;

static TEAM: OnceLock<Team> = OnceLock::new();

/// Starts the team with `threads` threads, the caller of each operation included.
///
/// Without this call the first operation starts a team of [`usual_threads`]. Calling it again with the
/// same number changes nothing.
pub fn start(threads: NonZeroUsize) -> Result<(), PoolError> {
    let wanted = threads.get();
    if TEAM.get().is_none() {
        let team = Team::start(wanted)?;
        // A racing start wins or loses; the comparison below judges either.
        let _ = TEAM.set(team);
    }
    match team().threads() {
        running if running == wanted => Ok(()),
        running => Err(PoolError::AlreadyRunning { running, wanted }),
    }
}

/// Threads of a team whose size nobody chose: one for each fast core of this machine that the
/// process may run on, within its CPU quota.
pub fn usual_threads() -> NonZeroUsize {
    cores::threads()
}

/// Threads that work on an operation, the caller included.
pub fn threads() -> usize {
    team().threads()
}

fn team() -> &'static Team {
    TEAM.get_or_init(|| {
        Team::start(usual_threads().get()).unwrap_or_else(|e| {
            tracing::warn!("{e}; kernels run on the calling thread alone");
            Team::alone()
        })
    })
}

/// Calls `work(0)`, `work(1)`, ... `work(num_chunks - 1)`, each once, in any order and in
/// parallel; returns when all are done.
///
/// If chunks panic, the others run nevertheless and the first panic goes on in the caller.
pub fn for_each_chunk(num_chunks: usize, work: impl Fn(usize) + Sync) {
    team().for_each_chunk(num_chunks, &work);
}

/// Calls `work(first_row, count)` for ranges that cover `rows` rows of `width` elements, in parallel
/// if there are many elements.
pub(super) fn for_each_row_range(rows: usize, width: usize, work: impl Fn(usize, usize) + Sync) {
    if rows * width < PARALLEL_FROM {
        work(0, rows);
        return;
    }
    for_each_chunk(rows.div_ceil(CHUNK_ROWS), |chunk| {
        let first = chunk * CHUNK_ROWS;
        work(first, CHUNK_ROWS.min(rows - first));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn runs_every_chunk_once() {
        for num_chunks in [0, 1, 2, 3, 100] {
            let hits: Vec<AtomicU32> = (0..num_chunks).map(|_| AtomicU32::new(0)).collect();
            for_each_chunk(num_chunks, |i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{num_chunks} chunks");
        }
    }

    #[test]
    fn refuses_another_size_once_running() {
        let running = threads();
        let same = NonZeroUsize::new(running).unwrap();
        let other = NonZeroUsize::new(running + 1).unwrap();
        assert!(start(same).is_ok());
        assert!(matches!(start(other), Err(PoolError::AlreadyRunning { .. })));
    }
}
