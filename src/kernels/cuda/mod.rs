//! Our operations on NVIDIA GPUs: one `.cu` file per operation, and beside it the function that
//! checks its arguments and launches it.
//!
//! Work goes to the stream of the tensors' device and nothing waits for it. The same sources
//! compiled for the host ([`on_host`]) run in tests, so that shapes, indices and numbers are tested
//! where there is no GPU; what is left for one to show is speed, and that its compiler agrees.

pub mod collective;
pub mod graph;
pub mod settings;

pub(super) mod launch;
pub(super) mod layout;
mod on_host;
pub(super) mod source;

#[cfg_attr(not(feature = "cuda"), path = "absent.rs")]
mod device;
#[cfg_attr(not(feature = "nccl"), path = "no_nccl.rs")]
mod nccl;
