//! What kernels of recurrent layers have in common.

use candle_core::{DType, Device, Result, Tensor};

use super::runs::Runs;
use crate::cuda::launch::{Address, kernel_struct};
use crate::step_tensors::{Numbers, StepTensors};

/// Columns of a state that a block of threads takes.
pub(super) const COLUMNS: usize = 32;
/// Threads of a block that takes columns of a state.
pub(super) const THREADS: usize = 256;

kernel_struct! {
    /// Rows and states of sequences, as in `recurrence.cuh`.
    pub(super) struct Sequences {
        cu_seqlens: Address,
        positions: Address,
        slots: Address,
    }
}

/// Rows and states of sequences on the device; they must stay until kernels that read them were
/// launched.
pub(super) struct SequenceTensors {
    cu_seqlens: Tensor,
    positions: Tensor,
    slots: Tensor,
}

impl SequenceTensors {
    pub(super) fn of(runs: Runs<'_>, device: &Device) -> Result<Self> {
        let moved = |host, part: fn(&StepTensors) -> &Tensor| {
            Numbers { host, on_device: runs.on_device.map(part) }.to_device(device)
        };
        Ok(Self {
            cu_seqlens: moved(runs.cu_seqlens_q, |step| &step.cu_seqlens_q)?,
            positions: moved(runs.positions, |step| &step.positions)?,
            slots: moved(runs.slots, |step| &step.state_slots)?,
        })
    }

    pub(super) fn count(&self) -> Result<usize> {
        self.slots.dim(0)
    }

    pub(super) fn addresses(&self) -> Result<Sequences> {
        Ok(Sequences {
            cu_seqlens: Address::of(&self.cu_seqlens, DType::U32)?,
            positions: Address::of(&self.positions, DType::U32)?,
            slots: Address::of(&self.slots, DType::U32)?,
        })
    }
}

/// The smallest form of a kernel that columns of `rows` elements fit, else the general one, and its
/// shared memory.
pub(super) fn form(operation: &str, rows: usize, sizes: &[usize]) -> (String, usize) {
    match sizes.iter().find(|size| rows <= **size) {
        Some(size) => (format!("{operation}_{size}"), 128 * size + 2304),
        None => (format!("{operation}_any"), 256 * rows.next_multiple_of(16) + 2304),
    }
}
