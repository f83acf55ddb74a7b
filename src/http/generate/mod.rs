//! What every generating route does, in words of its own: a request that any protocol can be
//! brought into, the checks that need the model, the prompt, the grammar, and the way to the engine.

mod bad_words;
pub(crate) mod beams;
mod call_ids;
pub(crate) mod chat;
pub(crate) mod chat_request;
pub(crate) mod demand;
pub(crate) mod dry;
pub(crate) mod embedding;
pub(crate) mod field_names;
pub(crate) mod grammar;
pub(crate) mod images;
pub(crate) mod label_probabilities;
pub(crate) mod labels;
pub(crate) mod late_interaction;
pub(crate) mod options;
mod pieces;
pub(crate) mod plan;
pub(crate) mod prompt;
pub(crate) mod prompt_encoder;
pub(crate) mod reasoning;
pub(crate) mod rendered;
pub(crate) mod scoring;
pub(crate) mod service_tier;
pub(crate) mod sounds;
pub(crate) mod stop_strings;
pub(crate) mod task;
pub(crate) mod token_outputs;
pub(crate) mod tools;
pub(crate) mod tools_as_text;
