//! A selective scan: each channel keeps a vector whose elements fade by factors of their own and take
//! the channel's input in.
//!
//! Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, algorithm 2.
//! Lanes go along channels, so that sums over a channel's state need no order of their own.

use candle_core::{Result, Tensor, bail};

pub use self::args::Channels;
use self::args::NAME;
use crate::backend::Backend;
use crate::step::Step;

mod args;
mod cpu;
mod cuda;
mod portable;

/// For every token of a sequence, channel by channel, of rows `x [T, D]`, of `steps [T, D]`, and of
/// `vectors [T, 2 * N]` that hold `b` and then `c`, which all channels share:
///
/// `s = softplus(step)`, `state = e^(s * decay) * state + s * x * b`, `y = state c + skip * x`:
/// `[T, D]`. `states [slots, N * D]` are changed.
///
/// # Errors
///
/// Shapes or runs that don't fit; no state is changed then.
pub fn selective_scan(
    x: &Tensor,
    steps: &Tensor,
    vectors: &Tensor,
    channels: Channels<'_>,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let (size, _) = channels.decay.dims2()?;
    let (slots, kept) = states.dims2()?;
    let fits = width > 0
        && size > 0
        && channels.decay.dims() == [size, width]
        && channels.skip.dims() == [width]
        && steps.dims() == [rows, width]
        && vectors.dims() == [rows, 2 * size]
        && kept == size * width;
    if !fits {
        bail!(
            "{NAME}: rows of {width}, steps {:?}, vectors {:?}, decays {:?}, factors {:?} and states \
             of {kept}",
            steps.dims(),
            vectors.dims(),
            channels.decay.dims(),
            channels.skip.dims()
        );
    }
    let runs = || step.runs(NAME, rows, slots);
    match Backend::of(x.device()) {
        Backend::Cpu(level) => {
            cpu::selective_scan(level, [x, steps, vectors], channels, states, &runs()?)
        }
        Backend::Cuda => {
            step.check_runs(NAME, rows, slots)?;
            cuda::selective_scan([x, steps, vectors], channels, states, step)
        }
        Backend::Portable => {
            portable::selective_scan([x, steps, vectors], channels, states, &runs()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::super::runs::{Run, two_tokens};
    use super::*;
    use crate::cpu::Level;
    use crate::random::{Random, assert_close, bits, values};

    /// Learned numbers and inputs of a scan.
    struct Case {
        decay: Tensor,
        skip: Tensor,
        /// Inputs, steps and vectors.
        rows: [Tensor; 3],
    }

    impl Case {
        fn new(seed: u64, tokens: usize, [width, size]: [usize; 2]) -> Self {
            let mut random = Random::new(seed);
            Self {
                decay: random.tensor((size, width)).exp().unwrap().neg().unwrap(),
                skip: random.tensor(width),
                rows: [
                    random.tensor((tokens, width)),
                    random.tensor((tokens, width)),
                    random.tensor((tokens, 2 * size)),
                ],
            }
        }

        fn channels(&self) -> Channels<'_> {
            Channels { decay: &self.decay, skip: &self.skip }
        }

        /// What nobody has cleaned.
        fn states(&self, places: usize) -> Tensor {
            let kept = self.decay.elem_count();
            (Tensor::ones((places, kept), DType::F32, &Device::Cpu).unwrap() * f64::NAN).unwrap()
        }

        fn at(
            &self,
            level: Option<Level>,
            rows: &[Tensor; 3],
            states: &Tensor,
            runs: &[Run],
        ) -> Tensor {
            let rows = rows.each_ref();
            match level {
                Some(level) => cpu::selective_scan(level, rows, self.channels(), states, runs),
                None => portable::selective_scan(rows, self.channels(), states, runs),
            }
            .unwrap()
        }

        /// Its definition, for one sequence from its first token on: the sum over all tokens before
        /// of what is left of them.
        fn plain(&self) -> Vec<f32> {
            let (size, width) = self.decay.dims2().unwrap();
            let [decay, skip] = [&self.decay, &self.skip].map(values);
            let [x, steps, vectors] =
                self.rows.each_ref().map(|rows| rows.to_vec2::<f32>().unwrap());
            let step = |token: usize, d: usize| f64::from(steps[token][d]).exp().ln_1p();
            let mut out = Vec::new();
            for token in 0..x.len() {
                for d in 0..width {
                    let left = |from: usize| -> f64 {
                        let time: f64 = (from + 1..=token).map(|t| step(t, d)).sum();
                        let part = |n: usize| {
                            (time * f64::from(decay[n * width + d])).exp()
                                * f64::from(vectors[from][n])
                                * f64::from(vectors[token][size + n])
                        };
                        let read: f64 = (0..size).map(part).sum();
                        read * step(from, d) * f64::from(x[from][d])
                    };
                    let sum: f64 = (0..=token).map(left).sum();
                    let y = f64::from(skip[d]) * f64::from(x[token][d]) + sum;
                    #[expect(clippy::cast_possible_truncation, reason = "to compare")]
                    out.push(y as f32);
                }
            }
            out
        }
    }

    #[test]
    fn equals_its_definition_on_every_level_and_in_plain_operations() {
        for (seed, (tokens, shape)) in (0..).zip([(1, [1, 1]), (9, [32, 16]), (6, [21, 5])]) {
            let case = Case::new(seed, tokens, shape);
            let expected = Tensor::from_vec(case.plain(), (tokens, shape[0]), &Device::Cpu);
            let run = [Run { rows: 0..tokens, slot: 1, starts: true }];
            for level in Level::available().into_iter().map(Some).chain([None]) {
                let y = case.at(level, &case.rows, &case.states(3), &run);
                assert_close(&y, expected.as_ref().unwrap(), 2e-5);
            }
        }
    }

    #[test]
    fn is_the_same_whole_in_pieces_and_in_company() {
        let tokens = 11;
        let case = Case::new(4, tokens, [24, 6]);
        for level in Level::available().into_iter().map(Some).chain([None]) {
            let own = case.states(2);
            let run = [Run { rows: 0..tokens, slot: 0, starts: true }];
            let whole = case.at(level, &case.rows, &own, &run);
            for chunk in [1, 2, 5] {
                let shared = case.states(4);
                for first in (0..tokens).step_by(chunk) {
                    let count = chunk.min(tokens - first);
                    // Beside it, another sequence that begins again and again.
                    let rows = case.rows.each_ref().map(|all| {
                        Tensor::cat(&[all, &all.narrow(0, first, count).unwrap()], 0).unwrap()
                    });
                    let runs = [
                        Run { rows: 0..tokens, slot: 3, starts: true },
                        Run { rows: tokens..tokens + count, slot: 2, starts: first == 0 },
                    ];
                    let both = case.at(level, &rows, &shared, &runs);
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
        let case = Case::new(5, 2, [4, 3]);
        let [x, steps, vectors] = &case.rows;
        let step = two_tokens(0);
        let mut random = Random::new(6);
        let (states, wide) = (random.tensor((1, 12)), random.tensor((1, 13)));
        let before = bits(&states);
        let channels = case.channels();
        let refused = |x, steps, vectors, channels, states, step: &Step| {
            assert!(selective_scan(x, steps, vectors, channels, states, step).is_err());
        };
        refused(vectors, steps, vectors, channels, &states, &step);
        refused(x, vectors, vectors, channels, &states, &step);
        refused(x, steps, x, channels, &states, &step);
        refused(x, steps, vectors, Channels { skip: x, ..channels }, &states, &step);
        refused(x, steps, vectors, Channels { decay: x, ..channels }, &states, &step);
        refused(x, steps, vectors, channels, &wide, &step);
        refused(x, steps, vectors, channels, &states, &two_tokens(1));
        assert_eq!(bits(&states), before);
        assert!(selective_scan(x, steps, vectors, channels, &states, &step).is_ok());
        assert_ne!(bits(&states), before);
    }
}
