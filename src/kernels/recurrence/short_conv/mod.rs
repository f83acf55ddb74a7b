//! A causal convolution along the tokens of a sequence, each channel on its own, over few tokens.
//!
//! Poli et al., "Hyena Hierarchy", 2023, section 3; Gu and Dao, "Mamba", 2023, figure 3.

use candle_core::{Result, Tensor, bail};

use self::args::NAME;
pub use self::args::Taps;
use crate::backend::Backend;
use crate::step::Step;

mod args;
mod cpu;
mod cuda;
mod portable;

/// For every token `t` of a sequence `activation(bias + sum over j of weight[j] * x[t - K + 1 + j])`
/// of `x [T, C]`, where tokens before the first are zero. `states [slots, (K - 1) * C]` keeps the
/// last inputs of each sequence, oldest first.
///
/// # Errors
///
/// Shapes or runs that don't fit; no state is changed then.
pub fn short_conv(x: &Tensor, taps: Taps<'_>, states: &Tensor, step: &Step) -> Result<Tensor> {
    let (rows, channels) = x.dims2()?;
    let (count, width) = taps.weight.dims2()?;
    let (slots, kept) = states.dims2()?;
    let fits = width == channels && count >= 2 && kept == (count - 1) * channels;
    if !fits || taps.bias.is_some_and(|bias| bias.dims() != [channels]) {
        bail!(
            "{NAME}: {count} taps of {width} channels and states of {kept} for {channels} channels"
        );
    }
    match Backend::of(x.device()) {
        Backend::Cpu(level) => {
            cpu::short_conv(level, x, taps, states, &step.runs(NAME, rows, slots)?)
        }
        Backend::Cuda => {
            step.check_runs(NAME, rows, slots)?;
            cuda::short_conv(x, taps, states, step)
        }
        Backend::Portable => portable::short_conv(x, taps, states, &step.runs(NAME, rows, slots)?),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::super::runs::{Run, two_tokens};
    use super::*;
    use crate::cpu::Level;
    use crate::pointwise::Activation;
    use crate::random::{Random, assert_close, bits};

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
            Some(level) => cpu::short_conv(level, x, taps, states, run),
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
        let step = two_tokens(0);
        let kept = random.tensor((1, 16));
        let before = bits(&kept);
        let narrow = random.tensor((2, 7));
        assert!(short_conv(&narrow, taps, &kept, &step).is_err());
        assert!(short_conv(&x, taps, &random.tensor((1, 8)), &step).is_err());
        assert!(short_conv(&x, Taps { bias: Some(&narrow), ..taps }, &kept, &step).is_err());
        assert!(short_conv(&x, taps, &kept, &two_tokens(1)).is_err());
        assert_eq!(bits(&kept), before);
        assert!(short_conv(&x, taps, &kept, &step).is_ok());
        assert_ne!(bits(&kept), before);
    }
}
