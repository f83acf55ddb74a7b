//! Operations that read a sequence token by token, and keep states.

use candle_core::{DType, Device, Result, Tensor};

use super::super::pointwise::UnaryOp;
use super::super::pointwise::cuda::ElementwiseOp;
use super::super::recurrence::delta_rule::{self, Gates};
use super::super::recurrence::short_conv::Taps;
use super::super::recurrence::{Runs, state_space};
use super::super::step_tensors::{self, StepTensors};
use super::launch::{Address, Launch, narrow, output_buffer};
use super::layout::kernel_struct;
use super::source::{Source, source};

static SOURCE: Source = source!("cuda/recurrence");

/// Columns of a state that a warp has.
const COLUMNS: usize = 32;
/// Channels of a block of threads.
const CHANNELS: usize = 128;
/// Tokens of a tile of the convolution, if not fewer than it reads at once.
const TILE: usize = 16;
/// Tiles of a sequence that are computed at once.
const MOST_TILES: usize = 32;

kernel_struct! {
    /// Sequences, as kernels have them.
    struct Sequences {
        cu_seqlens: Address,
        positions: Address,
        slots: Address,
    }
}

/// The same as tensors, which must stay as long as kernels are started with them.
struct OnDevice {
    cu_seqlens: Tensor,
    positions: Tensor,
    slots: Tensor,
}

impl OnDevice {
    fn of(runs: Runs<'_>, device: &Device) -> Result<Self> {
        let moved = |host, part: fn(&StepTensors) -> &Tensor| {
            step_tensors::Numbers { host, on_device: runs.on_device.map(part) }.to_device(device)
        };
        Ok(Self {
            cu_seqlens: moved(runs.cu_seqlens_q, |step| &step.cu_seqlens_q)?,
            positions: moved(runs.positions, |step| &step.positions)?,
            slots: moved(runs.slots, |step| &step.state_slots)?,
        })
    }

    fn count(&self) -> Result<usize> {
        self.slots.dim(0)
    }

    fn addresses(&self) -> Result<Sequences> {
        Ok(Sequences {
            cu_seqlens: Address::of(&self.cu_seqlens, DType::U32)?,
            positions: Address::of(&self.positions, DType::U32)?,
            slots: Address::of(&self.slots, DType::U32)?,
        })
    }
}

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

/// As [`super::super::recurrence::short_conv::short_conv`], of checked arguments.
pub(in crate::kernels) fn short_conv(
    x: &Tensor,
    taps: Taps<'_>,
    states: &Tensor,
    runs: Runs<'_>,
) -> Result<Tensor> {
    let (rows, channels) = x.dims2()?;
    let device = x.device();
    let sequences = OnDevice::of(runs, device)?;
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
    let tiles = longest(runs).div_ceil(TILE.max(count - 1)).clamp(1, MOST_TILES);
    let grid = [sequences.count()?, channels.div_ceil(CHANNELS), tiles];
    let launch =
        Launch { source: &SOURCE, kernel: "short_conv", grid, threads: CHANNELS, shared: 0 };
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch.run(device, arguments)? };
    Ok(out)
}

/// Rows of the sequence that has most.
fn longest(runs: Runs<'_>) -> usize {
    let bounds = runs.cu_seqlens_q.windows(2);
    bounds.map(|bounds| (bounds[1] - bounds[0]) as usize).max().unwrap_or(0)
}

kernel_struct! {
    struct DeltaRule {
        qkv: Address,
        write: Address,
        decay: Address,
        rate: Address,
        bias: Address,
        states: Address,
        out: Address,
        sequences: Sequences,
        qkv_stride: u32,
        write_stride: u32,
        decay_stride: u32,
        keys: u32,
        values: u32,
        key_dim: u32,
        value_dim: u32,
        tiled: u32,
    }
}

/// As [`super::super::recurrence::delta_rule::delta_rule`], of checked arguments.
pub(in crate::kernels) fn delta_rule(
    qkv: &Tensor,
    gates: Gates<'_>,
    heads: delta_rule::Heads,
    states: &Tensor,
    runs: Runs<'_>,
) -> Result<Tensor> {
    let delta_rule::Heads { keys, values, key_dim, value_dim, tiled } = heads;
    let device = qkv.device();
    let sequences = OnDevice::of(runs, device)?;
    let out = output_buffer((qkv.dim(0)?, heads.outputs()), DType::F32, device)?;
    let (qkv, qkv_stride) = Address::of_rows(qkv)?;
    let (write, write_stride) = Address::of_rows(gates.write)?;
    let (decay, decay_stride) = Address::of_rows(gates.decay)?;
    let arguments = DeltaRule {
        qkv,
        write,
        decay,
        rate: Address::of(gates.rate, DType::F32)?,
        bias: Address::of(gates.bias, DType::F32)?,
        states: Address::to_write(states, DType::F32)?,
        out: Address::to_write(&out, DType::F32)?,
        sequences: sequences.addresses()?,
        qkv_stride,
        write_stride,
        decay_stride,
        keys: narrow(keys)?,
        values: narrow(values)?,
        key_dim: narrow(key_dim)?,
        value_dim: narrow(value_dim)?,
        tiled: u32::from(tiled),
    };
    let grid = [sequences.count()?, values, value_dim.div_ceil(COLUMNS)];
    let (kernel, shared) = form("delta_rule", key_dim, &[64, 128]);
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch(&kernel, grid, shared).run(device, arguments)? };
    Ok(out)
}

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

/// As [`super::super::recurrence::state_space::state_space`], of checked arguments.
pub(in crate::kernels) fn state_space(
    x: &Tensor,
    steps: &Tensor,
    heads: state_space::Heads<'_>,
    states: &Tensor,
    runs: Runs<'_>,
) -> Result<Tensor> {
    let (rows, count) = steps.dims2()?;
    let state_space::Heads { head_dim, state_size, groups, .. } = heads;
    let device = x.device();
    let sequences = OnDevice::of(runs, device)?;
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
    let (kernel, shared) = form("state_space", state_size, &[64, 128, 256]);
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch(&kernel, grid, shared).run(device, arguments)? };
    Ok(out)
}

/// The smallest form that columns of `rows` numbers fit, else the general one, and its shared memory.
fn form(operation: &str, rows: usize, sizes: &[usize]) -> (String, usize) {
    match sizes.iter().find(|size| rows <= **size) {
        Some(size) => (format!("{operation}_{size}"), 128 * size + 2304),
        None => (format!("{operation}_any"), 256 * rows.next_multiple_of(16) + 2304),
    }
}

fn launch(kernel: &str, grid: [usize; 3], shared: usize) -> Launch<'_> {
    Launch { source: &SOURCE, kernel, grid, threads: 256, shared }
}
