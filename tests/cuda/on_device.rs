//! What only a GPU's kernels do, beside what the host does instead. Nothing is tested where this
//! process has no such kernels.

use candle_core::Tensor;
use sconce::kernels::sample::DeviceLogits;
use sconce::sampling::on_device::sample_rows_on_device;
use sconce::sampling::params::SamplingParams;
use sconce::sampling::{SampledToken, SamplerState, SamplingError};

use crate::parity::device;

const VOCAB: usize = 1000;

/// Parameters that each use another part of the sampler.
fn all_params() -> Vec<SamplingParams> {
    let plain = |seed| SamplingParams { seed, ..SamplingParams::default() };
    vec![
        SamplingParams { temperature: 0.0, logprobs: Some(5), ..plain(1) },
        SamplingParams { temperature: 0.7, logprobs: Some(0), ..plain(2) },
        SamplingParams { top_k: 40, top_p: 0.9, logprobs: Some(20), ..plain(3) },
        SamplingParams { top_p: 0.3, ..plain(4) },
        SamplingParams { temperature: 3.0, top_p: 0.99, min_p: 0.01, ..plain(5) },
        SamplingParams { min_p: 0.2, presence_penalty: 1.0, frequency_penalty: 0.5, ..plain(6) },
        SamplingParams { repetition_penalty: 1.3, temperature: 0.2, ..plain(7) },
        SamplingParams { logit_bias: vec![(7, 4.0), (8, -3.0), (7, 1.0)], ..plain(8) },
    ]
}

fn states() -> Vec<SamplerState> {
    let state = |params| SamplerState::new(params, &[3, 4, 3], 3, vec![1, 2]);
    all_params().into_iter().map(state).collect()
}

type Drawn = Vec<Result<SampledToken, SamplingError>>;

fn logits(step: u64, rows: usize, vocab: usize) -> Tensor {
    let row = super::operations::random(50 + step, &[rows, vocab]);
    // Some of the numbers are equal.
    ((row * 40.0).unwrap().round().unwrap() / 4.0).unwrap()
}

#[test]
fn draws_on_a_device_are_those_of_the_host() {
    draw_on_both(12, VOCAB, 1);
}

/// More rows than a GPU has multiprocessors share these.
#[test]
fn draws_of_many_rows_are_those_of_the_host() {
    draw_on_both(2, VOCAB, 18);
}

/// Compares draws of some steps from a vocabulary of this size, for as many rows as there are parameters
/// or some times as many.
pub(super) fn draw_on_both(steps: u64, vocab: usize, times: usize) {
    let many = || (0..times).flat_map(|_| states()).collect::<Vec<_>>();
    let (mut here, mut there) = (many(), many());
    for step in 0..steps {
        let logits = logits(step, here.len(), vocab);
        let Ok(on_device) = DeviceLogits::new(logits.copy().unwrap()) else { return };
        assert!(there.iter().all(SamplerState::samples_on_device));
        // From the last row to the first.
        let mut rows: Vec<_> = there.iter_mut().zip(0..).collect();
        rows.reverse();
        let mut drawn = sample_rows_on_device(&on_device, rows, |_| ());
        drawn.reverse();
        let rows = logits.to_vec2::<f32>().unwrap();
        let expected: Drawn =
            here.iter_mut().zip(rows).map(|(state, mut row)| state.sample(&mut row)).collect();
        assert_eq!(drawn, expected, "step {step}");
    }
}

#[test]
fn rows_that_cannot_be_drawn_from_say_why_and_others_are_drawn() {
    let mut states = states();
    let mut rows = logits(0, states.len(), VOCAB).to_vec2::<f32>().unwrap();
    rows[1][17] = f32::NAN;
    rows[2].fill(f32::NEG_INFINITY);
    let Ok(on_device) = DeviceLogits::new(Tensor::new(rows.clone(), device()).unwrap()) else {
        return;
    };
    let mut here = self::states();
    let drawn = sample_rows_on_device(&on_device, states.iter_mut().zip(0..).collect(), |_| ());
    let expected: Drawn =
        here.iter_mut().zip(&mut rows).map(|(state, row)| state.sample(row)).collect();
    assert_eq!(drawn, expected);
    assert!(drawn[1].as_ref().unwrap_err().to_string().contains("logit 17 is NaN"));
    assert!(drawn[0].is_ok() && drawn[3].is_ok());
}
