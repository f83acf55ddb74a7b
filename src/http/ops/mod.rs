//! What operators and clients ask about the server itself, and what they change of it.

pub(crate) mod about;
pub(crate) mod adapters;
pub(crate) mod health;
pub(crate) mod invocations;
pub(crate) mod models;
pub(crate) mod sglang;
pub(crate) mod tokenize;
pub(crate) mod usage;
