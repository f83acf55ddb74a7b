//! The hot operations. Each one is a folder:
//!
//! ```text
//! mod.rs         what others call: the checks, and one `match` on the backend of the tensors
//! args.rs        types of arguments: plain data, which all forms below import
//! cpu.rs         kernels for the instruction sets of CPUs, perhaps with more files beside it
//! portable.rs    plain candle operations: the oracle of tests, and what other devices run
//! metal.rs       what candle has for Apple's GPUs alone
//! cuda.rs        launches of the CUDA kernels in kernel.cu, which the build finds by itself
//! ```
//!
//! A file that an operation has no use for is left out. Beside the operations lie what they are
//! made of: [`backend`] says which form computes, [`cpu`] has the lanes that CPU kernels are written
//! in, [`pool`] the threads, [`packed`] the weights, [`cache`] the KV cache and [`cuda`] the driver.
//!
//! This room knows slices, vector registers and candle storages. It refuses to know models,
//! sequences and batching: shapes and block tables are handed in and validated before any loop
//! starts, so that a bad index is an error and never an access.
//!
//! Within an instruction set every output element is reduced in one fixed order, whatever else is
//! computed beside it, so results don't depend on batch size, on chunking or on the number of
//! threads. Plain candle operations promise less: sums may be taken in another order when there are
//! more rows, so what is computed beside a sequence may show in the last bits.
//!
//! # How to add a form of an operation
//!
//! Only files of the operation's folder, with `src/kernels/norm` as an example:
//!
//! 1. `src/kernels/norm/cuda.rs`: the binding, and the name of the kernel's source.
//! 2. `src/kernels/norm/kernel.cu`: the kernel. The build and the tests find it by walking the tree.
//! 3. `src/kernels/norm/mod.rs`: the arm of `match Backend::of(..)`.
//!
//! A new operation is a folder of the same shape and a `pub mod` in `src/kernels/mod.rs`.

#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    clippy::inline_always,
    reason = "a kernel's parts must be inlined to get the instructions of its level"
)]

pub mod backend;
pub mod cache;
pub mod ceiling;
pub mod chosen_attention;
pub mod cpu;
pub mod cuda;
pub mod embed;
pub mod experts;
pub mod floats;
pub mod huge_pages;
pub mod indexer;
pub mod kv_write;
pub mod linear;
pub mod low_rank;
pub mod norm;
pub mod packed;
pub mod paged_attention;
pub mod pointwise;
pub mod pool;
pub mod put_rows;
pub mod recurrence;
pub mod rope;
pub mod sample;
pub mod step;
pub mod weighted_rows;

mod fresh;
#[cfg(test)]
mod random;
mod storage;
