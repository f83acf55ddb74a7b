//! The hot operations: each one a file with our own CPU code, beside the same thing written in
//! plain candle operations.
//!
//! This room knows slices, vector registers and candle storages. It refuses to know models,
//! sequences and batching: shapes and block tables are handed in and validated before any loop
//! starts, so that a bad index is an error and never an access.
//!
//! Each operation asks [`cpu::Level`] once for the best instruction set of this machine. Within a
//! level every output element is reduced in one fixed order, whatever else is computed beside it,
//! so results don't depend on batch size, on chunking or on the number of threads.

#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    clippy::inline_always,
    reason = "a kernel's parts must be inlined to get the instructions of its level"
)]

pub mod backend;
pub mod cache;
pub mod ceiling;
pub mod cpu;
pub mod cuda;
pub mod embed;
pub mod experts;
pub mod floats;
pub mod huge_pages;
pub mod kv_write;
pub mod linear;
pub mod norm;
pub mod packed;
pub mod paged_attention;
pub mod pointwise;
pub mod pool;
pub mod put_rows;
pub mod recurrence;
pub mod rope;
pub mod sample;
pub mod step_tensors;
pub mod weighted_rows;

mod fresh;
#[cfg(test)]
mod random;
mod storage;
