//! What kernels of recurrent layers have in common.

use candle_core::{DType, Device, Result, Tensor};

use crate::cuda::launch::{Address, kernel_struct};
use crate::step::Step;

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
    pub(super) fn of(step: &Step, device: &Device) -> Result<Self> {
        Ok(Self {
            cu_seqlens: step.row_bounds().to_device(device)?,
            positions: step.token_positions().to_device(device)?,
            slots: step.states().to_device(device)?,
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
/// shared memory, where a token is prepared as so many vectors.
pub(super) fn form(
    operation: &str,
    rows: usize,
    sizes: &[usize],
    vectors: usize,
) -> (String, usize) {
    if let Some(size) = sizes.iter().find(|size| rows <= **size) {
        return (format!("{operation}_{size}"), 64 * vectors * size + 2304);
    }
    (format!("{operation}_any"), (64 * vectors + 128) * rows.next_multiple_of(16) + 2304)
}
