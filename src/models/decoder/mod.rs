//! The transformer decoder: one implementation, driven by plain data.
//!
//! A layer adds to the hidden states the output of attention, then the output of a feed-forward
//! part; after the last layer comes one more norm and the output head. What differs between
//! architectures is a value in [`DecoderSpec`]; a field is never named after a model.

mod adaptable;
pub mod block_drafter;
mod draft_head;
pub mod eagle;
mod embedding_and_head;
mod feed_forward;
mod hyper_connections;
mod known_tokens;
mod layer;
mod layer_inputs;
mod mixer;
mod model;
mod norm_gate;
mod order;
mod pictures;
mod positions;
mod residuals;
mod schedule;
mod shared_block;
pub mod spec;
mod split;
mod stage;
mod step;
mod streams;
mod tapped;
mod variants;

pub(crate) use embedding_and_head::at_least_eight_bits;
pub use model::Decoder;
pub use spec::DecoderSpec;
pub use stage::Stage;
