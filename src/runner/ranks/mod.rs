//! A model that several processes compute, each with its part of the weights and of the KV cache: a part of
//! each layer, or some of the layers (`stages`).
//!
//! Rank 0 plans, samples and answers; it tells the others what to compute, and they follow. Sums
//! over ranks are made by rank 0 in the order of ranks, so that they have the same bits in every
//! run. Once a step has failed halfway nobody knows what the others have done: the group is broken
//! then and computes nothing more.
//!
//! A link goes over pipes on one machine and over TCP between machines (`meeting`), where both ends prove
//! first that they know a secret (`secret`).

mod follower;
mod leader;
mod link;
mod meeting;
mod microbatches;
pub(super) mod order;
mod secret;
mod stages;
#[cfg(test)]
mod tests;

pub use follower::Follower;
pub use leader::Leader;
pub use link::Link;
pub(super) use link::MAX_FEATURES;
pub use meeting::{Meeting, join};
pub use order::RankMemory;
pub use secret::{Hello, JoinError, Secret};
