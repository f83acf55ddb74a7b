//! The state space on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor};

use super::super::cuda::{COLUMNS, SequenceTensors, Sequences, THREADS, form};
use super::args::Heads;
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};
use crate::step::Step;

static SOURCE: Source = source!("recurrence/state_space/kernel");

kernel_struct! {
    struct StateSpace {
        x: Address,
        steps: Address,
        decay: Address,
        skip: Address,
        step_bias: Address,
        states: Address,
        out: Address,
        sequences: Sequences,
        x_stride: u32,
        steps_stride: u32,
        heads: u32,
        head_dim: u32,
        state_size: u32,
        groups: u32,
        least: f32,
        most: f32,
    }
}

/// See [`super::state_space`]; the arguments are checked.
pub(super) fn state_space(
    x: &Tensor,
    steps: &Tensor,
    heads: Heads<'_>,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, count) = steps.dims2()?;
    let Heads { head_dim, state_size, groups, .. } = heads;
    let device = x.device();
    let sequences = SequenceTensors::of(step, device)?;
    let out = output_buffer((rows, count * head_dim), DType::F32, device)?;
    let (x, x_stride) = Address::of_rows(x)?;
    let (steps, steps_stride) = Address::of_rows(steps)?;
    let [least, most] = heads.step_limits;
    let arguments = StateSpace {
        x,
        steps,
        decay: Address::of(heads.decay, DType::F32)?,
        skip: Address::of(heads.skip, DType::F32)?,
        step_bias: Address::of(heads.step_bias, DType::F32)?,
        states: Address::to_write(states, DType::F32)?,
        out: Address::to_write(&out, DType::F32)?,
        sequences: sequences.addresses()?,
        x_stride,
        steps_stride,
        heads: narrow(count)?,
        head_dim: narrow(head_dim)?,
        state_size: narrow(state_size)?,
        groups: narrow(groups)?,
        least,
        most,
    };
    let grid = [sequences.count()?, count, head_dim.div_ceil(COLUMNS)];
    let (kernel, shared) = form("state_space", state_size, &[64, 128, 256], 2);
    let launch = Launch { source: &SOURCE, kernel: &kernel, grid, threads: THREADS, shared };
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch.run(device, arguments)? };
    Ok(out)
}
