//! Why no token could be sampled.

/// The model's numbers can't be sampled from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// A logit is NaN, or none is finite.
    #[error("the model produced no usable logits: {0}")]
    BadLogits(String),
    /// The device failed.
    #[error("drawing failed: {0}")]
    Device(String),
    /// The grammar can't go on.
    #[error("the grammar failed: {0}")]
    Grammar(String),
}
