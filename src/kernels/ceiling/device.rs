//! What a GPU can do at most.

use std::time::Instant;

use candle_core::{DType, Device, Result, Tensor};

/// Elements of what is copied: more than any cache holds.
const COPIED: usize = 256 << 20;
/// Rows and columns of the matrices that are multiplied.
const SIDE: usize = 8192;
/// Rows of such a matrix that differ.
const DIFFERENT_ROWS: usize = 1024;
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
        // The device's own copy, as fast as it can.
        let from = Tensor::full(1.0f32, copied, device)?;
        let copied_bytes = best_rate(device, || from.copy().map(drop))?;
        let matrix = matrix(side, device)?;
        let products = best_rate(device, || matrix.matmul(&matrix).map(drop))?;
        Ok(Self {
            copied_bytes: copied_bytes * (2 * copied * DType::F32.size_in_bytes()) as f64,
            bf16_operations: products * 2.0 * (side as f64).powi(3),
        })
    }
}

/// A square bf16 matrix of numbers whose bits differ: units that multiply equal numbers again and again
/// take less power, and so run faster than they do with weights.
fn matrix(side: usize, device: &Device) -> Result<Tensor> {
    // So many rows, again and again: no tile of a product is as high.
    let rows = side.min(DIFFERENT_ROWS);
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        #[expect(clippy::cast_precision_loss, reason = "24 bits")]
        let unit = (state >> 40) as f32 / (1u64 << 24) as f32;
        unit - 0.5
    };
    let numbers: Vec<f32> = std::iter::repeat_with(&mut next).take(rows * side).collect();
    let part = Tensor::from_vec(numbers, (rows, side), device)?.to_dtype(DType::BF16)?;
    let parts = vec![part; side.div_ceil(rows)];
    Tensor::cat(&parts, 0)?.narrow(0, 0, side)?.contiguous()
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

    #[test]
    fn multiplied_matrices_hold_many_different_numbers() {
        let matrix = matrix(64, &Device::Cpu).unwrap();
        assert_eq!((matrix.dims(), matrix.dtype()), (&[64, 64][..], DType::BF16));
        let numbers = matrix.to_dtype(DType::F32).unwrap().flatten_all().unwrap();
        let mut bits: Vec<u32> =
            numbers.to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
        bits.sort_unstable();
        bits.dedup();
        assert!(bits.len() > 1000, "{} of 4096", bits.len());
    }
}
