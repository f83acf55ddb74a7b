//! Pictures, from the bytes that a client sent to the pixels that a vision tower looks at. Arithmetic
//! on plain numbers: knows no tensor, no tokenizer and no request.
//!
//! [`decode`] reads a file within bounds, [`processor`] prepares it as the checkpoint's own image
//! processor does, and [`picture`] is what goes to the engine.

pub mod bounds;
pub mod decode;
pub mod error;
pub mod picture;
pub mod processor;
pub mod resize;
