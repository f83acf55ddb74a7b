//! Drawing from a vocabulary of 152k, by what the request asks for: one token, and those of
//! sixteen sequences together.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sconce::sampling::params::SamplingParams;
use sconce::sampling::{SamplerState, sample_rows};

const VOCAB: u32 = 151_936;

/// Logits like a model's: most of them low, a few high.
fn logits() -> Vec<f32> {
    let noise = |i: u32| f32::from((i.wrapping_mul(2_654_435_761) >> 16) as u16) / 65_536.0;
    (0..VOCAB).map(|i| noise(i).powi(8) * 20.0).collect()
}

fn cases() -> Vec<(&'static str, SamplingParams)> {
    let base = SamplingParams::default();
    vec![
        ("greedy", SamplingParams { temperature: 0.0, ..base.clone() }),
        ("temperature", base.clone()),
        ("top-k 40", SamplingParams { top_k: 40, ..base.clone() }),
        ("top-p 0.95", SamplingParams { top_p: 0.95, ..base.clone() }),
        ("top-k 40, top-p 0.95", SamplingParams { top_k: 40, top_p: 0.95, ..base.clone() }),
        ("min-p 0.05", SamplingParams { min_p: 0.05, ..base.clone() }),
        (
            "penalties",
            SamplingParams { repetition_penalty: 1.1, frequency_penalty: 0.5, ..base.clone() },
        ),
        ("20 logprobs", SamplingParams { logprobs: Some(20), ..base }),
    ]
}

fn state(params: SamplingParams) -> SamplerState {
    let prompt: Vec<u32> = (0..500).map(|i| i * 37).collect();
    SamplerState::new(params, &prompt, 0, Vec::new())
}

fn one_row(criterion: &mut Criterion) {
    let logits = logits();
    let mut group = criterion.benchmark_group("sampler");
    group.throughput(Throughput::Elements(u64::from(VOCAB)));
    for (name, params) in cases() {
        let mut state = state(params);
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || logits.clone(),
                |logits| state.sample(logits),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

const NO_DRAFTS: &[u32] = &[];

fn sixteen_rows(criterion: &mut Criterion) {
    let rows = vec![logits(); 16];
    let mut group = criterion.benchmark_group("sampler, 16 rows");
    group.throughput(Throughput::Elements(16 * u64::from(VOCAB)));
    for (name, params) in cases() {
        let mut states = vec![state(params); 16];
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || rows.clone(),
                |rows| {
                    let rows = rows.iter_mut().map(|row| vec![row.as_mut_slice()]);
                    sample_rows(
                        states.iter_mut().zip(rows).map(|(state, row)| (state, NO_DRAFTS, row)),
                    )
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, one_row, sixteen_rows);
criterion_main!(benches);
