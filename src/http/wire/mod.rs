//! The wire: what JSON looks like, for serde and for the API's description, with the bounds that
//! both name. Knows no other part of `http` but its errors.

pub(crate) mod adapters;
pub(crate) mod audio;
pub(crate) mod batches;
pub(crate) mod bounds;
pub(crate) mod chat;
pub(crate) mod cohere;
pub(crate) mod completions;
pub(crate) mod conversations;
pub(crate) mod decisions;
pub(crate) mod embeddings;
pub(crate) mod logit_bias;
pub(crate) mod messages;
pub(crate) mod number;
pub(crate) mod ollama;
pub(crate) mod prediction;
pub(crate) mod ranking;
pub(crate) mod response_format;
pub(crate) mod response_input;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod scalars;
pub(crate) mod schema;
pub(crate) mod stop;
pub(crate) mod synonyms;
pub(crate) mod tei;
pub(crate) mod texts;
pub(crate) mod tokenize;
pub(crate) mod usage;
