//! The HTTP contract over real TCP sockets, against a scripted engine.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "test code: nothing is public, panics are failures, and `json!` makes values"
)]

mod adapters;
mod agent_programs;
mod agents;
mod chat;
mod client;
mod completions;
mod conformance;
mod contracts;
mod decisions;
mod disconnect;
mod embeddings;
mod errors;
mod fake_engine;
pub(crate) mod fixture;
mod folding;
mod lifecycle;
mod llama_cpp;
mod messages;
mod messages_requests;
mod ollama;
mod ollama_clients;
mod ollama_models;
mod ops;
mod other_servers;
mod prediction;
mod rendering;
mod response_conversations;
mod responses;
mod speech;
mod streaming;
mod tenants;
mod token_outputs;
mod tool_changes;
mod tools;
