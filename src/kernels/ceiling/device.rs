//! What a GPU can do at most.

use std::time::Instant;

use candle_core::{DType, Device, Result, Tensor};

/// Elements of what is copied: more than any cache holds.
const COPIED: usize = 256 << 20;
/// Rows and columns of the matrices that are multiplied.
const SIDE: usize = 8192;
/// Runs of each probe, of which the best counts.
pub(super) const RUNS: usize = 5;
/// Times that each probe does its work before it looks at the clock.
const REPEATS: usize = 8;

/// What a GPU can do at most.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCeiling {
    /// Bytes that a copy reads and writes in a second.
    pub copied_bytes: f64,
    /// Multiplications and additions in a second, of products of large bf16 matrices.
    pub bf16_operations: f64,
}

impl DeviceCeiling {
    /// Measures the rates, for about a second, with 2 GiB of the device's memory.
    ///
    /// # Errors
    ///
    /// No such memory; an operation that the device doesn't have.
    pub fn measure(device: &Device) -> Result<Self> {
        Self::of_sizes(device, COPIED, SIDE)
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    fn of_sizes(device: &Device, copied: usize, side: usize) -> Result<Self> {
        let [from, to] = [1.0f32, 2.0].map(|x| Tensor::full(x, copied, device));
        let (from, to) = (from?, to?);
        let copied_bytes = best_rate(device, || to.slice_set(&from, 0, 0))?;
        let matrix = Tensor::full(0.5f32, (side, side), device)?.to_dtype(DType::BF16)?;
        let products = best_rate(device, || matrix.matmul(&matrix).map(drop))?;
        Ok(Self {
            copied_bytes: copied_bytes * (2 * copied * DType::F32.size_in_bytes()) as f64,
            bf16_operations: products * 2.0 * (side as f64).powi(3),
        })
    }
}

/// How often `work` is done in a second, in the best of a few runs.
#[expect(clippy::cast_precision_loss, reason = "repeats are few")]
fn best_rate(device: &Device, work: impl Fn() -> Result<()>) -> Result<f64> {
    work()?;
    let mut best = 0.0f64;
    for _ in 0..RUNS {
        device.synchronize()?;
        let began = Instant::now();
        for _ in 0..REPEATS {
            work()?;
        }
        device.synchronize()?;
        best = best.max(REPEATS as f64 / began.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive() {
        let ceiling = DeviceCeiling::of_sizes(&Device::Cpu, 1 << 10, 16).unwrap();
        assert!(ceiling.copied_bytes > 0.0 && ceiling.bf16_operations > 0.0);
    }
}
