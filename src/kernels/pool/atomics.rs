//! What the late-join protocol is built of: the standard library's atomics and locks, and how long
//! a thread spins before it sleeps.
//!
//! The protocol names nothing but this module, so that its model check can put modelled ones here.

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
pub(super) use std::sync::{Condvar, Mutex};

use std::time::{Duration, Instant};

/// A cell that says how it is borrowed, as the model checker's does.
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// The pointer may be read while `read` runs.
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// The pointer may be written while `write` runs.
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A wait that burns its core for a while, since waking a sleeping one takes as long.
#[derive(Debug)]
pub(super) struct Spin {
    limit: Duration,
    began: Option<Instant>,
}

impl Spin {
    /// Looks at the clock are this many pauses apart.
    const PAUSES: u32 = 16;

    /// What a worker waits for the next region: longer than what a layer does between two regions, so
    /// that it sleeps only between steps.
    pub(super) fn for_region() -> Self {
        Self { limit: Duration::from_micros(100), began: None }
    }

    /// What a caller waits for the last chunks.
    pub(super) fn for_last_chunks() -> Self {
        Self { limit: Duration::from_micros(50), began: None }
    }

    /// Pauses for a moment; false once the time is up.
    pub(super) fn again(&mut self) -> bool {
        for _ in 0..Self::PAUSES {
            std::hint::spin_loop();
        }
        self.began.get_or_insert_with(Instant::now).elapsed() < self.limit
    }
}
