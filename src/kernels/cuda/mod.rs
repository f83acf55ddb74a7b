//! Our operations on NVIDIA GPUs: one `.cu` file per operation, and beside it the function that
//! checks its arguments and launches it.
//!
//! Work goes to the stream of the tensors' device and nothing waits for it. The same sources
//! compiled for the host ([`on_host`]) run in tests, so that shapes, indices and numbers are tested
//! where there is no GPU; what is left for one to show is speed, and that its compiler agrees.

use candle_core::Device;

use super::backend::Backend;

pub(super) mod attention;
pub(super) mod experts;
mod launch;
pub(super) mod linear;
pub(super) mod norms;
pub(super) mod on_host;
pub(super) mod pointwise;
pub(super) mod recurrence;
pub(super) mod rope;
pub(super) mod sample;

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "nccl")]
mod nccl;
#[cfg(not(feature = "nccl"))]
mod no_nccl;
#[cfg(feature = "cuda")]
mod products;

#[cfg(not(feature = "cuda"))]
pub(super) use absent::{Graph, half_product, prepare, record};
#[cfg(feature = "cuda")]
pub(super) use device::{Graph, prepare, record};
#[cfg(feature = "nccl")]
pub(super) use nccl::Nccl;
#[cfg(not(feature = "nccl"))]
pub(super) use no_nccl::Nccl;
#[cfg(feature = "cuda")]
pub(super) use products::half_product;

/// Whether operations on tensors of this device are these.
pub(super) fn on(device: &Device) -> bool {
    Backend::is_cuda(device)
}
