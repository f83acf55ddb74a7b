//! The learned part of a selective scan.

use candle_core::Tensor;

/// The operation's name in errors.
pub(super) const NAME: &str = "selective_scan";

/// The learned vectors of a selective scan.
#[derive(Clone, Copy, Debug)]
pub struct Channels<'a> {
    /// `[N, D]`: the logarithms of the decays of each channel's states per unit of time, below zero.
    pub decay: &'a Tensor,
    /// `[D]`: the factor of the input that is added to the output.
    pub skip: &'a Tensor,
}
