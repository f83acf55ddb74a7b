//! How many sequences may wait or run at once; one more is answered 429 instead of piling up.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::error::ApiError;

/// Counts sequences. A request that alone is larger than the bound may run when nothing else does.
#[derive(Debug)]
pub(crate) struct Admission {
    permits: Arc<Semaphore>,
    capacity: usize,
}

/// Held while a request waits or runs.
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(capacity)), capacity }
    }

    /// Takes room for a request of `sequences` or says how full it is.
    pub(crate) fn admit(&self, sequences: usize) -> Result<Permit, ApiError> {
        let wanted = sequences.min(self.capacity);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(wanted);
        permit
            .map(|permit| Permit { _permit: permit })
            .map_err(|_| ApiError::TooManyRequests { waiting: self.in_use(), bound: self.capacity })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_than_the_bound_is_refused_until_one_ends() {
        let admission = Admission::new(3);
        let first = admission.admit(2).unwrap();
        let _second = admission.admit(1).unwrap();
        let error = admission.admit(1).unwrap_err();
        assert_eq!(error, ApiError::TooManyRequests { waiting: 3, bound: 3 });
        drop(first);
        assert!(admission.admit(2).is_ok());
    }

    #[test]
    fn a_request_larger_than_the_bound_runs_alone() {
        let admission = Admission::new(2);
        let large = admission.admit(100).unwrap();
        assert!(admission.admit(1).is_err());
        drop(large);
        assert_eq!(admission.in_use(), 0);
    }
}
