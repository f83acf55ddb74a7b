//! Exemplars: a trace that a sample of a histogram's bucket belongs to, so that a dashboard leads from a
//! slow bucket to a request that was in it. Scrapers that read OpenMetrics are told.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The exemplars of a histogram, one for each bucket, of which the last has no bound.
#[derive(Debug)]
pub(super) struct Buckets(Mutex<Vec<Option<Exemplar>>>);

impl Buckets {
    /// Of so many buckets, none of which has one yet.
    pub(super) fn new(count: usize) -> Self {
        Self(Mutex::new(std::iter::repeat_with(|| None).take(count).collect()))
    }

    /// Remembers a sample of a bucket, of a request of this trace, as the last one.
    pub(super) fn set(&self, bucket: usize, trace: &str, value: f64) {
        let exemplar = Exemplar { trace: trace.to_owned(), value, at: SystemTime::now() };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(bucket) {
            *own = Some(exemplar);
        }
    }

    /// The exemplar of a bucket, as it stands behind the bucket's count in OpenMetrics.
    pub(super) fn text(&self, bucket: usize) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Exemplar { trace, value, at } = all.get(bucket)?.as_ref()?;
        let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Some(format!("# {{trace_id=\"{trace}\"}} {value} {seconds:.3}"))
    }
}

#[derive(Debug)]
struct Exemplar {
    /// The trace's id, in hexadecimal digits.
    trace: String,
    /// Seconds.
    value: f64,
    at: SystemTime,
}
