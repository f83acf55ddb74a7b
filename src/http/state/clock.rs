//! The time as answers tell it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, for `created`.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
