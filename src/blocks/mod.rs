//! How weights are stored: the kinds that the tensor library has, and those that only GGUF files have,
//! whose blocks hold indices into codebooks, trits, or 4-bit floats.
//!
//! ```text
//! kind      all kinds: sizes and names
//! numbers   what a block of a coded kind stands for | codebooks: what its indices stand for
//! ```
//!
//! It refuses to know files and products: readers of files and kernels share it.

pub mod codebooks;
mod kind;
mod numbers;
#[cfg(test)]
mod tests;

pub use kind::{Coded, Kind, W8A8_COLUMNS};
pub use numbers::{Numbers, SUB_BLOCK, dequantize, numbers};
