//! The delta rule on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor};

use super::super::cuda::{COLUMNS, SequenceTensors, Sequences, THREADS, form};
use super::args::{Gates, Heads};
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};
use crate::step::Step;

static SOURCE: Source = source!("recurrence/delta_rule/kernel");

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
        write_scale: f32,
        bounded: u32,
        bound: f32,
    }
}

/// See [`super::delta_rule`]; the arguments are checked.
pub(super) fn delta_rule(
    qkv: &Tensor,
    gates: Gates<'_>,
    heads: Heads,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let Heads { keys, values, key_dim, value_dim, tiled } = heads;
    let device = qkv.device();
    let sequences = SequenceTensors::of(step, device)?;
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
        write_scale: gates.write_scale,
        bounded: u32::from(gates.bound.is_some()),
        bound: gates.bound.unwrap_or(0.0),
    };
    let grid = [sequences.count()?, values, value_dim.div_ceil(COLUMNS)];
    let (operation, vectors) =
        if gates.is_by_element(heads) { ("delta_rule_each", 3) } else { ("delta_rule", 2) };
    let (kernel, shared) = form(operation, key_dim, &[64, 128], vectors);
    let launch = Launch { source: &SOURCE, kernel: &kernel, grid, threads: THREADS, shared };
    // SAFETY: shapes, ranges and slots were checked.
    unsafe { launch.run(device, arguments)? };
    Ok(out)
}
