//! What the engine's folder of blocks and its publisher of KV events count.

use super::{MetricsHandle, as_value};

/// For the folder of `--kv-disk`. A snapshot of recurrent states counts as a block.
impl MetricsHandle {
    /// Prompt tokens that were looked up in the folder.
    pub fn add_external_queries(&self, tokens: usize) {
        self.metrics.external_queries.increment(tokens as u64);
    }

    /// Prompt tokens that were loaded from the folder.
    pub fn add_external_hits(&self, tokens: usize) {
        self.metrics.external_hits.increment(tokens as u64);
    }

    /// Blocks in the folder, and their bytes.
    #[expect(clippy::cast_precision_loss, reason = "sizes stay below 2^52")]
    pub fn set_kv_disk(&self, blocks: usize, bytes: u64) {
        self.metrics.kv_disk_blocks.set(as_value(blocks));
        self.metrics.kv_disk_bytes.set(bytes as f64);
    }

    /// A block was written.
    pub fn add_kv_disk_stored(&self, bytes: usize) {
        self.metrics.kv_disk_stored.increment(1);
        self.metrics.kv_disk_stored_bytes.increment(bytes as u64);
    }

    /// A block was read.
    pub fn add_kv_disk_loaded(&self, bytes: usize) {
        self.metrics.kv_disk_loaded.increment(1);
        self.metrics.kv_disk_loaded_bytes.increment(bytes as u64);
    }

    /// A block was removed to make room.
    pub fn add_kv_disk_evicted(&self, bytes: u64) {
        self.metrics.kv_disk_evicted.increment(1);
        self.metrics.kv_disk_evicted_bytes.increment(bytes);
    }

    /// Blocks left memory before they could be written.
    pub fn add_kv_disk_dropped(&self, count: usize) {
        self.metrics.kv_disk_dropped.increment(count as u64);
    }

    /// A file was not what its name said.
    pub fn add_kv_disk_corrupt(&self) {
        self.metrics.kv_disk_corrupt.increment(1);
    }

    /// A file could not be written, read or removed.
    pub fn add_kv_disk_error(&self) {
        self.metrics.kv_disk_errors.increment(1);
    }
}

/// For the publisher of `--kv-events-config`.
impl MetricsHandle {
    /// A batch of KV events was published.
    pub fn add_kv_events_sent(&self) {
        self.metrics.kv_events_sent.increment(1);
    }

    /// A batch of KV events found the queue full.
    pub fn add_kv_events_dropped(&self) {
        self.metrics.kv_events_dropped.increment(1);
    }
}
