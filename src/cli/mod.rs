//! One file per subcommand.

pub mod bench;
pub mod chat;
mod client;
#[cfg(test)]
mod fake_server;
pub mod health;
mod sse;
