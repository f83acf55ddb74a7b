//! A causal convolution along the tokens of a sequence, each channel on its own, over few tokens.
//!
//! Poli et al., "Hyena Hierarchy", 2023, section 3; Gu and Dao, "Mamba", 2023, figure 3.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor, bail};

use super::super::backend::cpu_level;
use super::super::cpu::{Kernel, LANES, Lanes, Level};
use super::super::fresh::{Parts, filled};
use super::super::pointwise::Activation;
use super::super::pointwise::cpu::activated;
use super::super::storage::{self, Rows};
use super::super::{cuda, pool, portable};
use super::lanes::{load_some, write_some};
use super::{Run, Runs};

const NAME: &str = "short_conv";
/// Channels of one chunk.
const CHUNK: usize = 16 * LANES;

/// The learned part of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Taps<'a> {
    /// `[K, C]`: the factors of a token and of those before it, the oldest first.
    pub weight: &'a Tensor,
    /// `[C]`
    pub bias: Option<&'a Tensor>,
    /// Of the sums.
    pub activation: Option<Activation>,
}

/// For every token `t` of a sequence `activation(bias + sum over j of weight[j] * x[t - K + 1 + j])`
/// of `x [T, C]`, where tokens before the first are zero. `states [slots, (K - 1) * C]` keeps the
/// last inputs of each sequence, oldest first.
///
/// # Errors
///
/// Shapes or runs that don't fit; no state is changed then.
pub fn short_conv(x: &Tensor, taps: Taps<'_>, states: &Tensor, runs: Runs<'_>) -> Result<Tensor> {
    let (rows, channels) = x.dims2()?;
    let (count, width) = taps.weight.dims2()?;
    let (places, kept) = states.dims2()?;
    let fits = width == channels && count >= 2 && kept == (count - 1) * channels;
    if !fits || taps.bias.is_some_and(|bias| bias.dims() != [channels]) {
        bail!(
            "{NAME}: {count} taps of {width} channels and states of {kept} for {channels} channels"
        );
    }
    if cuda::on(x.device()) {
        runs.check(NAME, rows, places)?;
        return cuda::recurrence::short_conv(x, taps, states, runs);
    }
    let runs = runs.of(NAME, rows, places)?;
    if portable::on(x.device()) {
        return portable::short_conv(x, taps, states, &runs);
    }
    short_conv_at(cpu_level(), x, taps, states, &runs)
}

fn short_conv_at(
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
    storage::read(NAME, x, |x, layout| {
        let x = Rows::of(NAME, x, layout)?;
        storage::write::<f32>(NAME, states, |states| {
            let states = Parts::new(states);
            let (weight, bias, activation) = (&weight[..], &bias[..], taps.activation);
            let conv = Conv { x, channels, weight, bias, activation, states: &states };
            let blocks = channels.div_ceil(CHUNK);
            let fill = |out: &Parts<'_, MaybeUninit<f32>>| {
                pool::for_each_chunk(runs.len() * blocks, |chunk| {
                    let (run, first) = (&runs[chunk / blocks], chunk % blocks * CHUNK);
                    let count = CHUNK.min(channels - first);
                    level.run(Block { conv, run, first, count, out });
                });
            };
            // SAFETY: the runs cover all rows, the blocks all channels, and `Block` writes all of
            // its own.
            out = unsafe { filled(rows * channels, fill) };
            Ok(())
        })
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

/// Some channels of one sequence.
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

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::super::super::random::{Random, assert_close, bits};
    use super::*;

    fn states(places: usize, kept: usize) -> Tensor {
        (Tensor::ones((places, kept), DType::F32, &Device::Cpu).unwrap() * f64::NAN).unwrap()
    }

    fn at(
        level: Option<Level>,
        x: &Tensor,
        taps: Taps<'_>,
        states: &Tensor,
        run: &[Run],
    ) -> Tensor {
        match level {
            Some(level) => short_conv_at(level, x, taps, states, run),
            None => portable::short_conv(x, taps, states, run),
        }
        .unwrap()
    }

    /// Its definition, for one sequence from its first token on.
    fn plain(x: &[Vec<f32>], weight: &[Vec<f32>], bias: &[f32], silu: bool) -> Vec<f32> {
        let one = |token: usize, channel: usize| {
            let tap = |j: usize| match (token + j + 1).checked_sub(weight.len()) {
                Some(from) => weight[j][channel] * x[from][channel],
                None => 0.0,
            };
            let sum = bias[channel] + (0..weight.len()).map(tap).sum::<f32>();
            if silu { sum / (1.0 + (-sum).exp()) } else { sum }
        };
        (0..x.len()).flat_map(|t| (0..bias.len()).map(move |c| one(t, c))).collect()
    }

    #[test]
    fn equals_its_definition_on_every_level_and_in_plain_operations() {
        let mut random = Random::new(1);
        for (tokens, channels, count) in [(1, 1, 2), (9, 40, 3), (5, 300, 4), (2, 17, 4)] {
            let x = random.tensor((tokens, channels));
            let (weight, bias) = (random.tensor((count, channels)), random.tensor(channels));
            for activation in [None, Some(Activation::Silu)] {
                let expected = plain(
                    &x.to_vec2().unwrap(),
                    &weight.to_vec2().unwrap(),
                    &bias.to_vec1().unwrap(),
                    activation.is_some(),
                );
                let expected =
                    Tensor::from_vec(expected, (tokens, channels), &Device::Cpu).unwrap();
                let taps = Taps { weight: &weight, bias: Some(&bias), activation };
                let run = [Run { rows: 0..tokens, slot: 1, starts: true }];
                for level in Level::available().into_iter().map(Some).chain([None]) {
                    let states = states(3, (count - 1) * channels);
                    assert_close(&at(level, &x, taps, &states, &run), &expected, 1e-5);
                }
            }
        }
    }

    #[test]
    fn is_the_same_whole_in_pieces_and_in_company() {
        let mut random = Random::new(2);
        let (tokens, channels, count) = (11, 70, 4);
        let x = random.tensor((tokens, channels));
        let weight = random.tensor((count, channels));
        let taps = Taps { weight: &weight, bias: None, activation: Some(Activation::Silu) };
        for level in Level::available().into_iter().map(Some).chain([None]) {
            let own = states(2, (count - 1) * channels);
            let whole = [Run { rows: 0..tokens, slot: 0, starts: true }];
            let whole = at(level, &x, taps, &own, &whole);
            for chunk in [1, 2, 5] {
                let shared = states(4, (count - 1) * channels);
                for first in (0..tokens).step_by(chunk) {
                    let count = chunk.min(tokens - first);
                    let part = x.narrow(0, first, count).unwrap();
                    // Beside it, another sequence that begins again and again.
                    let both = Tensor::cat(&[&x, &part], 0).unwrap();
                    let runs = [
                        Run { rows: 0..tokens, slot: 3, starts: true },
                        Run { rows: tokens..tokens + count, slot: 2, starts: first == 0 },
                    ];
                    let both = at(level, &both, taps, &shared, &runs);
                    let expected = whole.narrow(0, first, count).unwrap();
                    assert_eq!(bits(&both.narrow(0, tokens, count).unwrap()), bits(&expected));
                    assert_eq!(bits(&both.narrow(0, 0, tokens).unwrap()), bits(&whole));
                }
                let kept = |states: &Tensor, slot| bits(&states.narrow(0, slot, 1).unwrap());
                assert_eq!(kept(&shared, 2), kept(&own, 0));
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors_and_change_nothing() {
        let mut random = Random::new(3);
        let (x, weight) = (random.tensor((2, 8)), random.tensor((3, 8)));
        let taps = Taps { weight: &weight, bias: None, activation: None };
        let runs = Runs { cu_seqlens_q: &[0, 2], positions: &[0, 1], slots: &[0], on_device: None };
        let kept = random.tensor((1, 16));
        let before = bits(&kept);
        let narrow = random.tensor((2, 7));
        assert!(short_conv(&narrow, taps, &kept, runs).is_err());
        assert!(short_conv(&x, taps, &random.tensor((1, 8)), runs).is_err());
        assert!(short_conv(&x, Taps { bias: Some(&narrow), ..taps }, &kept, runs).is_err());
        assert!(short_conv(&x, taps, &kept, Runs { slots: &[1], ..runs }).is_err());
        assert_eq!(bits(&kept), before);
        assert!(short_conv(&x, taps, &kept, runs).is_ok());
        assert_ne!(bits(&kept), before);
    }
}
