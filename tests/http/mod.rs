//! The HTTP contract over real TCP sockets, against a scripted engine.

mod chat;
mod client;
mod completions;
mod disconnect;
mod errors;
mod fake_engine;
mod fixture;
mod folding;
mod lifecycle;
mod ops;
mod streaming;
