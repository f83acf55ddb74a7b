//! The learned part of a short convolution.

use candle_core::Tensor;

use crate::pointwise::Activation;

/// The operation's name in errors.
pub(super) const NAME: &str = "short_conv";

/// The learned part of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Taps<'a> {
    /// `[K, C]`: the factors of a token and of those before it, the oldest first.
    pub weight: &'a Tensor,
    /// `[C]`: added to the sums.
    pub bias: Option<&'a Tensor>,
    /// Applied to the sums.
    pub activation: Option<Activation>,
}
