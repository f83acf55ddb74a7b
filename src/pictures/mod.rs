//! Pictures, from the bytes that a client sent to the pixels that a vision tower looks at. Arithmetic
//! on plain numbers: knows no tensor, no tokenizer and no request.
//!
//! [`decode`] reads a file within bounds, [`processor`] prepares it as the checkpoint's own image
//! processor does, by one [`views`] rule for its pixels and one [`wording`] for the text around its
//! tokens; [`place`] finds the tokens in a prompt, and [`picture`] is what goes to the engine.
//!
//! How to add a family of processors: a file in `families/` that makes a [`processor::Processor`] of the
//! files' fields, and a line in its table.

pub mod bounds;
mod cutting;
pub mod decode;
pub mod error;
mod families;
mod fields;
mod grids;
pub mod picture;
pub mod place;
pub mod processor;
pub mod resize;
mod sizes;
pub mod views;
pub mod wording;
