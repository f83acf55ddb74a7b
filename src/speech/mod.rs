//! Speech to text, in a small room of its own beside the engine: Whisper, one file at a time, on threads
//! that give way to those that answer. Knows no HTTP and no request's fields.
//!
//! ```text
//! room          a thread, its queue, and the way to it
//! transcriber   window after window, to segments
//! window        the tokens of one, by rules, again where they look wrong     | segments  alignment  words
//! marks         the model's special tokens, and what its files say of them   | languages
//! model         from features to logits
//! features      from samples to log-mel vectors
//! audio         from files to samples
//! ```
//!
//! A file is decoded, resampled and turned into features piece by piece, so that memory holds the bytes
//! that came and a hundred small vectors for each second, never the samples of an hour.

mod alignment;
pub mod audio;
pub mod error;
pub mod features;
pub mod languages;
pub mod marks;
pub mod model;
pub mod room;
mod rules;
mod segments;
#[cfg(test)]
mod tests;
pub mod transcriber;
pub mod window;
mod words;

pub use model::config::is_speech;
