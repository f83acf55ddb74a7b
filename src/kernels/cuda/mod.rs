//! The driver of the CUDA kernels: launches, memory, graphs, and what several GPUs exchange.
//!
//! Work goes to the stream of the tensors' device and nothing waits for it. The kernels lie in the
//! folders of their operations. The same sources compiled for the host (`on_host`) run in tests, so
//! that shapes, indices and results are tested where there is no GPU; what is left for one to show is
//! speed, and that its compiler agrees. Without CUDA other files stand for the device and for NCCL,
//! and every call of theirs is an error.

pub mod collective;
pub mod graph;
pub mod settings;

#[cfg_attr(not(feature = "cuda"), path = "absent.rs")]
mod device;
pub(super) mod launch;
pub(super) mod layout;
#[cfg_attr(not(feature = "nccl"), path = "no_nccl.rs")]
mod nccl;
mod on_host;
#[cfg(feature = "cuda")]
mod pinned;
pub(super) mod source;
