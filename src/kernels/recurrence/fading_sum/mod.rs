//! A sum along a sequence whose elements fade by factors that each token says.
//!
//! De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language
//! Models", 2024, section 2.4.

use candle_core::{Result, Tensor, bail};

use super::runs::Run;
use crate::backend::Backend;
use crate::step::Step;
use crate::storage;

mod cuda;

/// The operation's name in errors.
const NAME: &str = "fading_sum";

/// `sum = decay * sum + x` for every token of a sequence, element by element, of rows `x [T, D]` and
/// `decays [T, D]`; the sums `[T, D]`. `states [slots, D]` are changed.
///
/// # Errors
///
/// Shapes or runs that don't fit; no state is changed then.
pub fn fading_sum(x: &Tensor, decays: &Tensor, states: &Tensor, step: &Step) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let (slots, kept) = states.dims2()?;
    if width == 0 || decays.dims() != x.dims() || kept != width {
        let decays = decays.dims();
        bail!("{NAME}: rows of {width}, decays {decays:?} and states of {kept}");
    }
    let runs = || step.runs(NAME, rows, slots);
    match Backend::of(x.device()) {
        Backend::Cpu(_) => on_cpu(x, decays, states, &runs()?),
        Backend::Cuda => {
            step.check_runs(NAME, rows, slots)?;
            cuda::fading_sum(x, decays, states, step)
        }
        Backend::Portable => portable(x, decays, states, &runs()?),
    }
}

fn on_cpu(x: &Tensor, decays: &Tensor, states: &Tensor, runs: &[Run]) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let [mut out, decays]: [Vec<f32>; 2] =
        [x.flatten_all()?.to_vec1()?, decays.flatten_all()?.to_vec1()?];
    storage::write::<f32>(NAME, states, |states| {
        for Run { rows, slot, starts } in runs {
            let state = &mut states[slot * width..(slot + 1) * width];
            if *starts {
                state.fill(0.0);
            }
            for row in rows.clone() {
                let own = row * width..(row + 1) * width;
                let tokens = out[own.clone()].iter_mut().zip(&decays[own]);
                for (sum, (x, decay)) in state.iter_mut().zip(tokens) {
                    *sum = decay * *sum + *x;
                    *x = *sum;
                }
            }
        }
        Ok(())
    })?;
    Tensor::from_vec(out, (rows, width), x.device())
}

/// The same in plain candle operations.
fn portable(x: &Tensor, decays: &Tensor, states: &Tensor, runs: &[Run]) -> Result<Tensor> {
    let mut outputs = Vec::new();
    for Run { rows, slot, starts } in runs {
        let kept = states.narrow(0, *slot, 1)?;
        let mut state = if *starts { kept.zeros_like()? } else { kept.copy()? };
        for row in rows.clone() {
            state = ((state * decays.narrow(0, row, 1)?)? + x.narrow(0, row, 1)?)?;
            outputs.push(state.clone());
        }
        states.slice_set(&state, 0, *slot)?;
    }
    if outputs.is_empty() { x.zeros_like() } else { Tensor::cat(&outputs, 0) }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::random::{Random, assert_close, bits, values};

    fn rows(tensor: &Tensor, first: usize, count: usize) -> Tensor {
        tensor.narrow(0, first, count).unwrap()
    }

    /// What nobody has cleaned.
    fn states(slots: usize, width: usize) -> Tensor {
        (Tensor::ones((slots, width), DType::F32, &Device::Cpu).unwrap() * f64::NAN).unwrap()
    }

    #[test]
    fn a_sum_is_what_is_left_of_all_tokens_and_the_same_in_pieces() {
        let (tokens, width) = (7, 5);
        let mut random = Random::new(3);
        let x = random.tensor((tokens, width));
        let decays = random.tensor((tokens, width)).abs().unwrap().neg().unwrap().exp().unwrap();
        let whole = [Run { rows: 0..tokens, slot: 1, starts: true }];
        let kept = states(3, width);
        let y = on_cpu(&x, &decays, &kept, &whole).unwrap();
        let (inputs, factors) = (values(&x), values(&decays));
        let plain = |at: usize| {
            let (token, channel) = (at / width, at % width);
            let left = |from: usize| -> f64 {
                let factor = |t: usize| f64::from(factors[t * width + channel]);
                let fading: f64 = (from + 1..=token).map(factor).product();
                fading * f64::from(inputs[from * width + channel])
            };
            #[expect(clippy::cast_possible_truncation, reason = "to compare")]
            let sum = (0..=token).map(left).sum::<f64>() as f32;
            sum
        };
        let expected: Vec<f32> = (0..tokens * width).map(plain).collect();
        let expected = Tensor::from_vec(expected, (tokens, width), &Device::Cpu).unwrap();
        assert_close(&y, &expected, 1e-5);
        assert_close(&portable(&x, &decays, &states(3, width), &whole).unwrap(), &expected, 1e-5);

        let other = states(3, width);
        let mut parts = Vec::new();
        for (first, count) in [(0, 2), (2, 1), (3, 4)] {
            let run = [Run { rows: 0..count, slot: 1, starts: first == 0 }];
            let [x, decays] = [&x, &decays].map(|all| rows(all, first, count));
            parts.push(on_cpu(&x, &decays, &other, &run).unwrap());
        }
        assert_eq!(bits(&Tensor::cat(&parts, 0).unwrap()), bits(&y));
        assert_eq!(bits(&rows(&other, 1, 1)), bits(&rows(&kept, 1, 1)));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let x = Tensor::zeros((2, 4), DType::F32, &Device::Cpu).unwrap();
        let (step, other) = (Step::default(), Tensor::zeros((1, 3), DType::F32, &Device::Cpu));
        let other = other.unwrap();
        assert!(fading_sum(&x, &other, &x, &step).is_err());
        assert!(fading_sum(&x, &x, &other, &step).is_err());
        // No sequence has the rows.
        assert!(fading_sum(&x, &x, &x, &step).is_err());
    }
}
