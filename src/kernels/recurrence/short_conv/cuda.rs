//! The short convolution on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor};

use super::super::cuda::{SequenceTensors, Sequences};
use super::args::Taps;
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};
use crate::pointwise::UnaryOp;
use crate::pointwise::cuda::ElementwiseOp;
use crate::step::Step;

static SOURCE: Source = source!("recurrence/short_conv/kernel");

/// Channels of a block of threads.
const CHANNELS: usize = 128;
/// Tokens of a tile of the convolution, if not fewer than it reads at once.
const TILE: usize = 16;
/// Tiles of a sequence that are computed at once.
const MOST_TILES: usize = 32;

kernel_struct! {
    struct ShortConv {
        x: Address,
        weight: Address,
        bias: Address,
        states: Address,
        out: Address,
        sequences: Sequences,
        x_stride: u32,
        channels: u32,
        taps: u32,
        activation: ElementwiseOp,
    }
}

/// See [`super::short_conv`]; the arguments are checked.
pub(super) fn short_conv(
    x: &Tensor,
    taps: Taps<'_>,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, channels) = x.dims2()?;
    let device = x.device();
    let sequences = SequenceTensors::of(step, device)?;
    let out = output_buffer((rows, channels), DType::F32, device)?;
    let (x, x_stride) = Address::of_rows(x)?;
    let count = taps.weight.dim(0)?;
    let arguments = ShortConv {
        x,
        weight: Address::of(taps.weight, DType::F32)?,
        bias: Address::of_some(taps.bias, DType::F32)?,
        states: Address::to_write(states, DType::F32)?,
        out: Address::to_write(&out, DType::F32)?,
        sequences: sequences.addresses()?,
        x_stride,
        channels: narrow(channels)?,
        taps: narrow(count)?,
        activation: taps
            .activation
            .map_or(ElementwiseOp::NONE, |own| UnaryOp::Activation(own).into()),
    };
    let tiles = longest(step).div_ceil(TILE.max(count - 1)).clamp(1, MOST_TILES);
    let grid = [sequences.count()?, channels.div_ceil(CHANNELS), tiles];
    let launch =
        Launch { source: &SOURCE, kernel: "short_conv", grid, threads: CHANNELS, shared: 0 };
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch.run(device, arguments)? };
    Ok(out)
}

/// Rows of the sequence that has most.
fn longest(step: &Step) -> usize {
    let bounds = step.cu_seqlens_q.windows(2);
    bounds.map(|bounds| (bounds[1] - bounds[0]) as usize).max().unwrap_or(0)
}
