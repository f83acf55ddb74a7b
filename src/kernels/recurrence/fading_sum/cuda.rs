//! The fading sum on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor};

use super::super::cuda::{SequenceTensors, Sequences};
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};
use crate::step::Step;

static SOURCE: Source = source!("recurrence/fading_sum/kernel");

/// Channels of a block of threads.
const CHANNELS: usize = 64;

kernel_struct! {
    struct FadingSum {
        x: Address,
        decays: Address,
        states: Address,
        out: Address,
        sequences: Sequences,
        x_stride: u32,
        decays_stride: u32,
        channels: u32,
    }
}

/// See [`super::fading_sum`]; the arguments are checked.
pub(super) fn fading_sum(
    x: &Tensor,
    decays: &Tensor,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let device = x.device();
    let sequences = SequenceTensors::of(step, device)?;
    let out = output_buffer((rows, width), DType::F32, device)?;
    let (x, x_stride) = Address::of_rows(x)?;
    let (decays, decays_stride) = Address::of_rows(decays)?;
    let arguments = FadingSum {
        x,
        decays,
        states: Address::to_write(states, DType::F32)?,
        out: Address::to_write(&out, DType::F32)?,
        sequences: sequences.addresses()?,
        x_stride,
        decays_stride,
        channels: narrow(width)?,
    };
    let grid = [sequences.count()?, width.div_ceil(CHANNELS), 1];
    let kernel = "fading_sum";
    let launch = Launch { source: &SOURCE, kernel, grid, threads: CHANNELS, shared: 0 };
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch.run(device, arguments)? };
    Ok(out)
}
