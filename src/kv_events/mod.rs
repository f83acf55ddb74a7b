//! Tells others what is in the KV cache, so that they can send a request to where its beginning is
//! cached: KV events over ZeroMQ, as vLLM publishes them.
//!
//! ```text
//! PUB      [topic, sequence number (8 bytes, big-endian), batch]          one message for each batch
//! ROUTER   [client, "", first sequence number wanted]  ->  [client, "", topic, number, batch] ...
//!                                                          [client, "", "", -1, ""] at the end
//! ```
//!
//! A batch is MessagePack: `[time, events, rank]`, the events maps with their class under `type`
//! ([`message`]). The first batch of a process clears: what is cached begins at nothing.
//!
//! The engine hands batches to a thread over a bounded queue and never waits. A batch that finds the
//! queue full is dropped and leaves a gap in the sequence numbers, which subscribers see.

mod endpoint;
pub mod message;
mod publisher;
mod replay;
mod sender;
#[cfg(test)]
mod tests;

pub use publisher::{KvEventsError, start};
pub use sender::{Change, EventSender};
