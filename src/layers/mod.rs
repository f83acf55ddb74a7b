//! The layers that models are built from, on candle tensors.
//!
//! A layer loads its weights by name from a [`Weights`](crate::weights::Weights) view and computes
//! on flattened rows; it doesn't know which model it is in or which requests the rows belong to.
//! Hidden states are f32 throughout.

pub mod adapter;
pub mod attention;
pub mod embedding;
pub mod forward;
pub mod full_attention;
pub mod group;
pub mod linear;
pub mod mlp;
pub mod moe;
pub mod norm;
pub mod normed;
pub mod recurrent;
pub mod rope;
