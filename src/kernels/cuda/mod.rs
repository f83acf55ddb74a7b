//! Operations on an NVIDIA GPU that candle has no good form of.
//!
//! Work goes to the stream of the tensors' device and nothing waits for it.

mod products;

pub(super) use products::linear;
