//! Which token comes next: logits and a request's parameters in, one token id out.

pub mod logprobs;
pub mod params;
