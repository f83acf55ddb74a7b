//! The selective scan on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor};

use super::super::cuda::{SequenceTensors, Sequences};
use super::args::Channels;
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};
use crate::step::Step;

static SOURCE: Source = source!("recurrence/selective_scan/kernel");

/// Channels of a block of threads.
const CHANNELS: usize = 64;

kernel_struct! {
    struct SelectiveScan {
        x: Address,
        steps: Address,
        vectors: Address,
        decay: Address,
        skip: Address,
        states: Address,
        out: Address,
        sequences: Sequences,
        x_stride: u32,
        steps_stride: u32,
        vectors_stride: u32,
        channels: u32,
        size: u32,
    }
}

/// See [`super::selective_scan`]; the arguments are checked.
pub(super) fn selective_scan(
    [x, steps, vectors]: [&Tensor; 3],
    channels: Channels<'_>,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let device = x.device();
    let sequences = SequenceTensors::of(step, device)?;
    let out = output_buffer((rows, width), DType::F32, device)?;
    let (x, x_stride) = Address::of_rows(x)?;
    let (steps, steps_stride) = Address::of_rows(steps)?;
    let (vectors, vectors_stride) = Address::of_rows(vectors)?;
    let arguments = SelectiveScan {
        x,
        steps,
        vectors,
        decay: Address::of(channels.decay, DType::F32)?,
        skip: Address::of(channels.skip, DType::F32)?,
        states: Address::to_write(states, DType::F32)?,
        out: Address::to_write(&out, DType::F32)?,
        sequences: sequences.addresses()?,
        x_stride,
        steps_stride,
        vectors_stride,
        channels: narrow(width)?,
        size: narrow(channels.decay.dim(0)?)?,
    };
    let grid = [sequences.count()?, width.div_ceil(CHANNELS), 1];
    let kernel = "selective_scan";
    let launch = Launch { source: &SOURCE, kernel, grid, threads: CHANNELS, shared: 0 };
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch.run(device, arguments)? };
    Ok(out)
}
