//! A step's logits: on the host, row by row, or on the device that computed them.

use std::sync::{Mutex, PoisonError};

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Result, Tensor};

use crate::layers::forward::DeviceLogits;

/// Logits, `[num_rows, vocab_size]`: on the host, or on a device that can sample from them.
#[derive(Debug)]
pub enum Logits {
    /// On the host.
    Host(HostLogits),
    /// On a GPU.
    Device(DeviceLogits),
}

/// Logits on the host, `[num_rows, vocab_size]`.
#[derive(Clone, Debug, PartialEq)]
pub struct HostLogits {
    values: Vec<f32>,
    vocab_size: usize,
}

impl Logits {
    /// Takes over the logits that a model returned, `[num_rows, vocab_size]`, of which there is no
    /// other reference.
    pub(super) fn from_tensor(logits: Tensor) -> Result<Self> {
        match DeviceLogits::new(logits) {
            Ok(logits) => Ok(Self::Device(logits)),
            Err(logits) => HostLogits::from_tensor(logits).map(Self::Host),
        }
    }
}

impl HostLogits {
    /// A copy of some rows of a device's logits.
    pub fn of_rows(logits: &DeviceLogits, rows: &[u32]) -> Result<Self> {
        Self::from_tensor(logits.rows(rows)?)
    }

    /// Takes over the logits that a model returned, `[num_rows, vocab_size]`.
    pub(super) fn from_tensor(logits: Tensor) -> Result<Self> {
        let (_, vocab_size) = logits.dims2()?;
        let on_host = logits.to_dtype(DType::F32)?.to_device(&Device::Cpu)?;
        drop(logits);
        Ok(Self { values: values_of(&on_host)?, vocab_size })
    }

    /// The rows in order, each `[vocab_size]`.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.vocab_size)
    }
}

/// The elements of an f32 tensor on the CPU. Where the tensor is contiguous they are moved out of it,
/// and it can't be used any more.
fn values_of(tensor: &Tensor) -> Result<Vec<f32>> {
    let taken = Take::default();
    tensor.inplace_op1(&taken)?;
    match taken.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(values) => Ok(values),
        None => tensor.flatten_all()?.to_vec1(),
    }
}

/// Takes a tensor's memory away from it.
#[derive(Default)]
struct Take(Mutex<Option<Vec<f32>>>);

impl InplaceOp1 for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        if let CpuStorage::F32(values) = storage
            && layout.contiguous_offsets() == Some((0, values.len()))
        {
            let values = std::mem::take(values);
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(logits: Tensor) -> Vec<Vec<f32>> {
        HostLogits::from_tensor(logits).unwrap().rows_mut().map(|row| row.to_vec()).collect()
    }

    #[test]
    fn a_whole_tensor_gives_its_memory() {
        let values = vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let address = values.as_ptr();
        let tensor = Tensor::from_vec(values, (2, 3), &Device::Cpu).unwrap();
        let logits = HostLogits::from_tensor(tensor).unwrap();
        assert_eq!(logits.values.as_ptr(), address);
        assert_eq!(logits.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn parts_and_other_dtypes_are_copied() {
        let tensor = Tensor::arange(0f32, 12.0, &Device::Cpu).unwrap().reshape((4, 3)).unwrap();
        let part = tensor.narrow(0, 1, 2).unwrap();
        assert_eq!(rows(part), [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]);
        let turned = tensor.t().unwrap();
        assert_eq!(rows(turned)[1], [1.0, 4.0, 7.0, 10.0]);
        let half = tensor.to_dtype(DType::BF16).unwrap();
        assert_eq!(rows(half)[3], [9.0, 10.0, 11.0]);
    }
}
