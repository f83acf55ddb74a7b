//! What the tiers behind the pool of KV blocks and the publisher of KV events count.

use metrics::{Counter, Gauge};

use super::{MetricsHandle, as_value};

/// A tier of the KV cache behind the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvTier {
    /// Host memory, for a pool that is a GPU's: `--kv-host-memory`.
    Host,
    /// The folder of `--kv-disk`.
    Disk,
}

/// What one tier counts. A snapshot of recurrent states counts as a block.
#[derive(Clone)]
pub struct TierMetrics {
    metrics: MetricsHandle,
    tier: KvTier,
}

/// For what stands behind the pool.
impl MetricsHandle {
    /// Prompt tokens that were looked up behind the pool.
    pub fn add_external_queries(&self, tokens: usize) {
        self.metrics.external_queries.increment(tokens as u64);
    }

    /// Prompt tokens that were loaded from there.
    pub fn add_external_hits(&self, tokens: usize) {
        self.metrics.external_hits.increment(tokens as u64);
    }

    /// The metrics of one tier.
    pub fn of_tier(&self, tier: KvTier) -> TierMetrics {
        TierMetrics { metrics: self.clone(), tier }
    }
}

/// One tier's instruments.
struct Instruments<'a> {
    blocks: &'a Gauge,
    bytes: &'a Gauge,
    stored: [&'a Counter; 2],
    loaded: [&'a Counter; 2],
    evicted: [&'a Counter; 2],
    dropped: &'a Counter,
    corrupt: &'a Counter,
    errors: &'a Counter,
}

impl TierMetrics {
    /// The instruments of the tier; pairs count blocks and their bytes.
    fn instruments(&self) -> Instruments<'_> {
        let all = &self.metrics.metrics;
        match self.tier {
            KvTier::Host => Instruments {
                blocks: &all.kv_host_blocks,
                bytes: &all.kv_host_bytes,
                stored: [&all.kv_host_stored, &all.kv_host_stored_bytes],
                loaded: [&all.kv_host_loaded, &all.kv_host_loaded_bytes],
                evicted: [&all.kv_host_evicted, &all.kv_host_evicted_bytes],
                dropped: &all.kv_host_dropped,
                corrupt: &all.kv_host_corrupt,
                errors: &all.kv_host_errors,
            },
            KvTier::Disk => Instruments {
                blocks: &all.kv_disk_blocks,
                bytes: &all.kv_disk_bytes,
                stored: [&all.kv_disk_stored, &all.kv_disk_stored_bytes],
                loaded: [&all.kv_disk_loaded, &all.kv_disk_loaded_bytes],
                evicted: [&all.kv_disk_evicted, &all.kv_disk_evicted_bytes],
                dropped: &all.kv_disk_dropped,
                corrupt: &all.kv_disk_corrupt,
                errors: &all.kv_disk_errors,
            },
        }
    }

    /// Blocks in the tier, and their bytes.
    #[expect(clippy::cast_precision_loss, reason = "sizes stay below 2^52")]
    pub fn set_stored(&self, blocks: usize, bytes: u64) {
        let instruments = self.instruments();
        instruments.blocks.set(as_value(blocks));
        instruments.bytes.set(bytes as f64);
    }

    /// A block was written.
    pub fn add_stored(&self, bytes: usize) {
        add(self.instruments().stored, bytes as u64);
    }

    /// A block was read.
    pub fn add_loaded(&self, bytes: usize) {
        add(self.instruments().loaded, bytes as u64);
    }

    /// A block was removed to make room.
    pub fn add_evicted(&self, bytes: u64) {
        add(self.instruments().evicted, bytes);
    }

    /// Blocks left the pool before they could be written.
    pub fn add_dropped(&self, count: usize) {
        self.instruments().dropped.increment(count as u64);
    }

    /// A file was not what its name said.
    pub fn add_corrupt(&self) {
        self.instruments().corrupt.increment(1);
    }

    /// A file could not be written, read or removed.
    pub fn add_error(&self) {
        self.instruments().errors.increment(1);
    }
}

/// Counts a block of so many bytes.
fn add([blocks, total]: [&Counter; 2], bytes: u64) {
    blocks.increment(1);
    total.increment(bytes);
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
