//! The wire: what JSON looks like, for serde and nothing else, and the one conversion of sampling
//! fields into what the engine takes.

pub(crate) mod adapters;
pub(crate) mod beams;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod dry;
pub(crate) mod embeddings;
pub(crate) mod fields;
pub(crate) mod messages;
pub(crate) mod number;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod schema;
pub(crate) mod stop;
pub(crate) mod tokenize;
pub(crate) mod usage;
