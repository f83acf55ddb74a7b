//! The parts a model is built from, on candle tensors.

pub mod forward;
