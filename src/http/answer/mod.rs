//! From what the engine sends to the bytes of a response: tokens to text, text to deltas, and deltas
//! to a stream of events or to one object.

pub(crate) mod arguments;
pub(crate) mod carried_text;
pub mod decoder;
pub mod delta;
pub(crate) mod generation;
pub(crate) mod logprobs;
pub(crate) mod meter;
pub mod reader;
pub(crate) mod stream;
pub(crate) mod writer;
