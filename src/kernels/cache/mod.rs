//! The paged KV cache in memory: its element types, the shapes of a layer's tensors, and how heads
//! are written and read.

pub mod kv_format;

mod fp8;
pub(super) mod kv_element;

/// Positions in one KV block; attention reduces over chunks of this size.
pub const KV_BLOCK: usize = 32;
