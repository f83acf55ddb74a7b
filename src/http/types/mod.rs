//! The wire: what JSON looks like, for serde and nothing else, and the one conversion of sampling
//! fields into what the engine takes.

pub mod chat;
pub mod completions;
pub mod fields;
pub mod number;
pub mod sampling;
pub mod tokenize;
pub mod usage;
