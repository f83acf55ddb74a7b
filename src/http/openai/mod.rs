//! OpenAI's protocols: chat completions, completions, responses, decisions, embeddings and
//! transcripts. Each has its input, which becomes the request that all protocols share, and its writer.

pub(crate) mod audio;
pub(crate) mod batches;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod conversations;
pub(crate) mod decisions;
pub(crate) mod embeddings;
pub(crate) mod envelope;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod metadata;
pub(crate) mod removal;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod stream_options;
pub(crate) mod synonyms;
pub(crate) mod tools;
