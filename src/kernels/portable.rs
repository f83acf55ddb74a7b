//! Every hot operation in plain candle operations: the oracle of the kernels, and what runs on a
//! device that has no kernel of ours, or anywhere if `SCONCE_KERNELS` is `portable`.
//!
//! Nothing here is fast; all of it is short. Sums may be taken in another order when there are
//! more rows, so what is computed beside a sequence may show in the last bits.

use candle_core::Device;

use super::backend::Backend;

mod delta_rule;
mod short_conv;
mod state_space;

pub(super) use delta_rule::delta_rule;
pub(super) use short_conv::short_conv;
pub(super) use state_space::state_space;

/// Whether operations on tensors of this device are these.
pub fn on(device: &Device) -> bool {
    !matches!(Backend::of(device), Backend::Cpu(_))
}
