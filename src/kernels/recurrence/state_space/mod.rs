//! A selective state space: each head keeps a matrix that fades by a factor of the token's own and
//! takes the token in.
//!
//! Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through
//! Structured State Space Duality", 2024, in its recurrent form. Lanes go along the elements of a
//! head, so that sums over its state need no order of their own; some tokens are taken at once, so
//! that a state is read and written once for all of them, each still one after the other.

use candle_core::{Result, Tensor, bail};

pub use self::args::Heads;
use self::args::NAME;
use crate::backend::Backend;
use crate::step::Step;

mod args;
mod cpu;
mod cuda;
mod portable;

impl Heads<'_> {
    /// The number of heads, once shapes and sizes were checked against each other.
    fn count(&self) -> Result<usize> {
        let heads = self.decay.dims1()?;
        let same = self.skip.dims() == [heads] && self.step_bias.dims() == [heads];
        let sizes = self.head_dim > 0 && self.state_size > 0 && heads > 0;
        if !same || !sizes || self.groups == 0 || !heads.is_multiple_of(self.groups) {
            bail!(
                "{NAME}: {heads} heads of {}, {:?} shares and {:?} biases, {} groups with states \
                 of {}",
                self.head_dim,
                self.skip.dims(),
                self.step_bias.dims(),
                self.groups,
                self.state_size
            );
        }
        Ok(heads)
    }
}

/// For every token of a sequence, head by head, of rows `x [T, H * P + 2 * G * N]` that hold inputs
/// `u`, then the vectors `b` and `c` of groups, and of `steps [T, H]`:
///
/// `s = clamp(softplus(step + step_bias), step_limits)`, `state = e^(s * decay) * state + s * b u^T`,
/// `y = state^T c + skip * u`: `[T, H * P]`. `states [slots, H * N * P]` are changed.
///
/// # Errors
///
/// Shapes or runs that don't fit; no state is changed then.
pub fn state_space(
    x: &Tensor,
    steps: &Tensor,
    heads: Heads<'_>,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let count = heads.count()?;
    let (slots, kept) = states.dims2()?;
    let vectors = 2 * heads.groups * heads.state_size;
    let fits = width == count * heads.head_dim + vectors
        && steps.dims() == [rows, count]
        && kept == count * heads.head_dim * heads.state_size;
    if !fits {
        bail!(
            "{NAME}: rows of {width}, steps {:?} and states of {kept} for {count} heads of {}",
            steps.dims(),
            heads.head_dim
        );
    }
    match Backend::of(x.device()) {
        Backend::Cpu(level) => {
            cpu::state_space(level, x, steps, heads, states, &step.runs(NAME, rows, slots)?)
        }
        Backend::Cuda => {
            step.check_runs(NAME, rows, slots)?;
            cuda::state_space(x, steps, heads, states, step)
        }
        Backend::Portable => {
            portable::state_space(x, steps, heads, states, &step.runs(NAME, rows, slots)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::super::lanes::softplus;
    use super::super::runs::{Run, two_tokens};
    use super::*;
    use crate::cpu::Level;
    use crate::random::{Random, assert_close, bits, values};

    /// Learned numbers and inputs of a state space.
    struct Case {
        decay: Tensor,
        skip: Tensor,
        step_bias: Tensor,
        x: Tensor,
        steps: Tensor,
        limits: [f32; 2],
        /// Heads, elements of each, rows of its state, groups.
        shape: [usize; 4],
    }

    impl Case {
        fn new(seed: u64, tokens: usize, shape: [usize; 4], limits: [f32; 2]) -> Self {
            let [heads, head_dim, state_size, groups] = shape;
            let mut random = Random::new(seed);
            let width = heads * head_dim + 2 * groups * state_size;
            Self {
                decay: random.tensor(heads).exp().unwrap().neg().unwrap(),
                skip: random.tensor(heads),
                step_bias: random.tensor(heads),
                x: random.tensor((tokens, width)),
                steps: random.tensor((tokens, heads)),
                limits,
                shape,
            }
        }

        fn heads(&self) -> Heads<'_> {
            let Self { decay, skip, step_bias, limits: step_limits, .. } = self;
            let [_, head_dim, state_size, groups] = self.shape;
            let step_limits = *step_limits;
            Heads { decay, skip, step_bias, step_limits, head_dim, state_size, groups }
        }

        /// What nobody has cleaned.
        fn states(&self, places: usize) -> Tensor {
            let [heads, head_dim, state_size, _] = self.shape;
            let kept = heads * head_dim * state_size;
            (Tensor::ones((places, kept), DType::F32, &Device::Cpu).unwrap() * f64::NAN).unwrap()
        }

        fn at(
            &self,
            level: Option<Level>,
            [x, steps]: [&Tensor; 2],
            states: &Tensor,
            runs: &[Run],
        ) -> Tensor {
            match level {
                Some(level) => cpu::state_space(level, x, steps, self.heads(), states, runs),
                None => portable::state_space(x, steps, self.heads(), states, runs),
            }
            .unwrap()
        }

        /// Its definition, for one sequence from its first token on: the sum over all tokens before
        /// of what is left of them.
        fn plain(&self) -> Vec<f32> {
            let [heads, head_dim, state_size, groups] = self.shape;
            let [decay, skip, bias] = [&self.decay, &self.skip, &self.step_bias].map(values);
            let x: Vec<Vec<f32>> = self.x.to_vec2().unwrap();
            let steps: Vec<Vec<f32>> = self.steps.to_vec2().unwrap();
            let step = |token: usize, head: usize| {
                let step = f64::from(steps[token][head] + bias[head]).exp().ln_1p();
                step.clamp(f64::from(self.limits[0]), f64::from(self.limits[1]))
            };
            let mut out = Vec::new();
            for (token, row) in x.iter().enumerate() {
                for head in 0..heads {
                    let write = heads * head_dim + head * groups / heads * state_size;
                    let read = write + groups * state_size;
                    let left = |from: usize| {
                        let time: f64 = (from + 1..=token).map(|t| step(t, head)).sum();
                        (time * f64::from(decay[head])).exp() * step(from, head)
                    };
                    let score = |from: usize| -> f64 {
                        let pair = |n| f64::from(x[from][write + n]) * f64::from(row[read + n]);
                        (0..state_size).map(pair).sum()
                    };
                    for own in head * head_dim..(head + 1) * head_dim {
                        let taken = |from| left(from) * score(from) * f64::from(x[from][own]);
                        let around = f64::from(skip[head] * row[own]);
                        let y = around + (0..=token).map(taken).sum::<f64>();
                        #[expect(clippy::cast_possible_truncation, reason = "to compare")]
                        out.push(y as f32);
                    }
                }
            }
            out
        }
    }

    const ANY: [f32; 2] = [0.0, f32::INFINITY];

    #[test]
    fn equals_its_definition_on_every_level_and_in_plain_operations() {
        let shapes =
            [(1, [1, 1, 1, 1], ANY), (9, [4, 16, 8, 2], ANY), (6, [6, 20, 5, 3], [0.2, 1.5])];
        for (seed, (tokens, shape, limits)) in (0..).zip(shapes) {
            let case = Case::new(seed, tokens, shape, limits);
            let width = shape[0] * shape[1];
            let expected = Tensor::from_vec(case.plain(), (tokens, width), &Device::Cpu).unwrap();
            let run = [Run { rows: 0..tokens, slot: 1, starts: true }];
            for level in Level::available().into_iter().map(Some).chain([None]) {
                let y = case.at(level, [&case.x, &case.steps], &case.states(3), &run);
                assert_close(&y, &expected, 2e-5);
            }
        }
    }

    #[test]
    fn is_the_same_whole_in_pieces_and_in_company() {
        let tokens = 11;
        let case = Case::new(4, tokens, [4, 24, 6, 2], ANY);
        for level in Level::available().into_iter().map(Some).chain([None]) {
            let own = case.states(2);
            let run = [Run { rows: 0..tokens, slot: 0, starts: true }];
            let whole = case.at(level, [&case.x, &case.steps], &own, &run);
            for chunk in [1, 2, 5] {
                let shared = case.states(4);
                for first in (0..tokens).step_by(chunk) {
                    let count = chunk.min(tokens - first);
                    // Beside it, another sequence that begins again and again.
                    let [x, steps] = [&case.x, &case.steps].map(|all| {
                        Tensor::cat(&[all, &all.narrow(0, first, count).unwrap()], 0).unwrap()
                    });
                    let runs = [
                        Run { rows: 0..tokens, slot: 3, starts: true },
                        Run { rows: tokens..tokens + count, slot: 2, starts: first == 0 },
                    ];
                    let both = case.at(level, [&x, &steps], &shared, &runs);
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
        let case = Case::new(5, 2, [2, 4, 3, 1], ANY);
        let step = two_tokens(0);
        let mut random = Random::new(6);
        let (states, wide) = (random.tensor((1, 24)), random.tensor((1, 25)));
        let before = bits(&states);
        let heads = case.heads();
        let refused = |x, steps, heads, states, step: &Step| {
            assert!(state_space(x, steps, heads, states, step).is_err());
        };
        refused(&case.steps, &case.steps, heads, &states, &step);
        refused(&case.x, &case.x, heads, &states, &step);
        refused(&case.x, &case.steps, Heads { groups: 3, ..heads }, &states, &step);
        refused(&case.x, &case.steps, Heads { groups: 0, ..heads }, &states, &step);
        refused(&case.x, &case.steps, Heads { state_size: 4, ..heads }, &states, &step);
        refused(&case.x, &case.steps, Heads { skip: &case.x, ..heads }, &states, &step);
        refused(&case.x, &case.steps, heads, &wide, &step);
        refused(&case.x, &case.steps, heads, &states, &two_tokens(1));
        assert_eq!(bits(&states), before);
        assert!(state_space(&case.x, &case.steps, heads, &states, &step).is_ok());
        assert_ne!(bits(&states), before);
    }

    #[test]
    fn time_steps_are_the_softplus_of_their_numbers() {
        for (x, expected) in [(0.0, std::f32::consts::LN_2), (-10.0, 4.539_89e-5), (30.0, 30.0)] {
            assert!((softplus(x) - expected).abs() <= expected * 1e-5, "{x}");
        }
        assert_eq!(softplus(f32::NEG_INFINITY).to_bits(), 0);
    }
}
