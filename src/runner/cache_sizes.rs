//! What a runner allocates at startup.

use serde::{Deserialize, Serialize};

use crate::layers::forward::KvFormat;

/// What a runner allocates at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSizes {
    /// Blocks of the KV cache.
    pub num_blocks: usize,
    /// Format of the KV cache.
    pub kv_format: KvFormat,
    /// Sequences that have recurrent states at once.
    pub num_slots: usize,
    /// Snapshots of such states.
    pub num_snapshots: usize,
}
