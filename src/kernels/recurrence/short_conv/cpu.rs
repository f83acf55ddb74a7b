//! The short convolution on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use super::super::lanes::{load_some, write_some};
use super::super::runs::Run;
use super::args::{NAME, Taps};
use crate::cpu::{Kernel, LANES, Lanes, Level};
use crate::fresh::{Parts, filled};
use crate::pointwise::Activation;
use crate::pointwise::cpu::activated;
use crate::pool;
use crate::storage::{Rows, read, write};

/// Channels of one chunk.
const CHUNK: usize = 16 * LANES;

/// The convolution by the kernels of a level, with checked arguments.
pub(super) fn short_conv(
    level: Level,
    x: &Tensor,
    taps: Taps<'_>,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (rows, channels) = x.dims2()?;
    let weight = taps.weight.flatten_all()?.to_vec1::<f32>()?;
    let bias = match taps.bias {
        Some(bias) => bias.to_vec1::<f32>()?,
        None => vec![0.0; channels],
    };
    let mut out = Vec::new();
    let input = read(NAME, x);
    let inputs = input.rows()?;
    write::<f32>(NAME, states, |states| {
        let states = Parts::new(states);
        let (weight, bias, activation) = (&weight[..], &bias[..], taps.activation);
        let conv = Conv { x: inputs, channels, weight, bias, activation, states: &states };
        let blocks = channels.div_ceil(CHUNK);
        let fill = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_chunk(runs.len() * blocks, |chunk| {
                let (run, first) = (&runs[chunk / blocks], chunk % blocks * CHUNK);
                let count = CHUNK.min(channels - first);
                level.run(Block { conv, run, first, count, out });
            });
        };
        // SAFETY: the runs cover all rows, the blocks all channels, and `Block` writes all of its
        // own.
        out = unsafe { filled(rows * channels, fill) };
        Ok(())
    })?;
    Tensor::from_vec(out, (rows, channels), x.device())
}

#[derive(Clone, Copy)]
struct Conv<'a> {
    x: Rows<'a>,
    channels: usize,
    weight: &'a [f32],
    bias: &'a [f32],
    activation: Option<Activation>,
    states: &'a Parts<'a, f32>,
}

/// A chunk of the channels of one sequence.
struct Block<'a> {
    conv: Conv<'a>,
    run: &'a Run,
    first: usize,
    count: usize,
    out: &'a Parts<'a, MaybeUninit<f32>>,
}

impl Kernel for Block<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { conv, run, first, count, out } = self;
        let taps = conv.weight.len() / conv.channels;
        let state = run.slot * (taps - 1) * conv.channels + first;
        let part = |row: usize| {
            let start = state + row * conv.channels;
            // SAFETY: no other block has these channels of this slot, and of this one only one row
            // is in use at a time.
            unsafe { conv.states.part(start..start + count) }
        };
        if run.starts {
            for row in 0..taps - 1 {
                part(row).fill(0.0);
            }
        }
        // The input that came `back` tokens before row `token` of the run.
        let input = |token: usize, back: usize| match token.checked_sub(back) {
            Some(token) => &conv.x.row(run.rows.start + token)[first..first + count],
            None => &*part(taps - 1 + token - back),
        };
        for token in 0..run.rows.len() {
            let start = (run.rows.start + token) * conv.channels + first;
            // SAFETY: runs don't overlap, nor do the channels of blocks.
            let out = unsafe { out.part(start..start + count) };
            for lane in (0..count).step_by(LANES) {
                let end = count.min(lane + LANES);
                let mut sum = load_some(l, &conv.bias[first + lane..first + end]);
                for tap in 0..taps {
                    let weight = tap * conv.channels + first;
                    let weight = load_some(l, &conv.weight[weight + lane..weight + end]);
                    let input = load_some(l, &input(token, taps - 1 - tap)[lane..end]);
                    sum = l.mul_add(input, weight, sum);
                }
                if let Some(activation) = conv.activation {
                    sum = activated(l, activation, sum);
                }
                write_some(l, sum, &mut out[lane..end]);
            }
        }
        let tokens = run.rows.len();
        for row in 0..taps - 1 {
            // Row `row` is to hold the input before the next token by `taps - 1 - row`.
            let back = taps - 1 - row;
            if tokens >= back {
                part(row).copy_from_slice(input(tokens, back));
            } else {
                let later = part(row + tokens).to_vec();
                part(row).copy_from_slice(&later);
            }
        }
    }
}
