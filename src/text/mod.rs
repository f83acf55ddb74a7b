//! All that knows strings: prompts from messages, ids from text, text from ids, and what a model's
//! text means (where to stop, which part is reasoning or a tool call).
//!
//! Nothing here knows HTTP, the engine or a tensor: messages come in as anything that serializes,
//! ids are `u32`, and every stateful piece is a plain value owned by one request.

pub mod chat_template;
mod decoder;
pub mod detokenizer;
pub mod embedding_prompts;
pub mod late_interaction;
mod pre_tokenizers;
pub mod reasoning;
mod sentence_pieces;
pub mod sequence_breakers;
pub mod special_tokens;
pub mod stop_strings;
pub mod tokenizer;
pub mod tokenizer_config;
pub mod tool_calls;
pub mod vocabulary;
