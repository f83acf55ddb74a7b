//! Why memory can't be divided as asked for.

use std::fmt;

use crate::config::KvCacheDtype;

/// The configuration can't be met; the messages name the values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Asked for a longer context than the model has.
    #[error("max-model-len {asked} is above the {context} positions that the model was made for")]
    BeyondModel {
        /// The value asked for.
        asked: usize,
        /// The context length of the checkpoint.
        context: usize,
    },
    /// The KV cache can't hold one sequence of the asked length.
    #[error(
        "max-model-len {asked} needs {needed} bytes of KV cache, {available} are available; \
         lower it, or raise --kv-cache-memory or --memory-percent"
    )]
    TooLittleMemory {
        /// The value asked for.
        asked: usize,
        /// Bytes for one such sequence.
        needed: usize,
        /// Bytes the cache may take.
        available: usize,
    },
    /// The asked cache format can't store the model's heads.
    #[error(
        "kv-cache-dtype {asked} stores heads in groups of 32 elements, this model's have {head_dim}"
    )]
    HeadDim {
        /// The value asked for.
        asked: KvCacheDtype,
        /// Elements of a head.
        head_dim: usize,
    },
    /// There are no kernels for the asked cache format.
    #[error("kv-cache-dtype {asked} is not supported on {device}; f32, f16 and bf16 are")]
    CacheDevice {
        /// The value asked for.
        asked: KvCacheDtype,
        /// The device.
        device: String,
    },
    /// The weights don't fit.
    #[error("the weights take about {needed}, {device} has {free} free; {advice}")]
    Weights {
        /// Bytes of the weights once loaded.
        needed: Size,
        /// The device.
        device: String,
        /// Bytes that are not in use.
        free: Size,
        /// A kind of weights that would fit, or other advice.
        advice: String,
    },
    /// Not even one sequence's states fit.
    #[error(
        "the recurrent layers need {needed} bytes for a sequence, half of {available} are there \
         for them; raise --kv-cache-memory or --memory-percent"
    )]
    States {
        /// Bytes of one sequence's states.
        needed: usize,
        /// Bytes that states and the KV cache may take.
        available: usize,
    },
    /// Snapshots are to take more than there is.
    #[error("state-cache-memory {asked} is above the {available} bytes of the KV cache")]
    StateCache {
        /// The value asked for.
        asked: usize,
        /// Bytes that states and the KV cache may take.
        available: usize,
    },
    /// Memory for snapshots was asked for, and there is nothing to keep.
    #[error(
        "state-cache-memory is for models with recurrent layers; this one has no recurrent layers"
    )]
    NoStates,
    /// A bound that must not be zero, or exceeds its limit.
    #[error("{name} is {value}, it must be {bound}")]
    OutOfRange {
        /// The option.
        name: &'static str,
        /// Its value.
        value: usize,
        /// What is allowed.
        bound: String,
    },
}

/// A number of bytes, displayed in MiB or GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl fmt::Display for Size {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        if self.0 >= 1 << 30 {
            write!(f, "{:.1} GiB", bytes / f64::from(1 << 30))
        } else {
            write!(f, "{:.1} MiB", bytes / f64::from(1 << 20))
        }
    }
}
