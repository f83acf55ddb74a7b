//! Sounds in conversations, from the bytes that a client sent to what the encoder of a model that hears is
//! given. Knows no tensor, no tokenizer and no request; files are decoded by `speech`.
//!
//! [`processor`] makes features of a file as the checkpoint's own feature extractor does, [`place`] finds the
//! tokens in a prompt, and [`sound`] is what goes to the engine.
//!
//! How to add a family of processors: a file in `families/` that makes a [`processor::Processor`] of
//! `config.json`, and a line in its table.

mod families;
mod fields;
pub mod place;
pub mod processor;
pub mod sound;
