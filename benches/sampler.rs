//! Drawing one token from a vocabulary of 152k, by what the request asks for.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sconce::sampling::SamplerState;
use sconce::sampling::params::SamplingParams;

const VOCAB: u32 = 151_936;

/// Logits like a model's: most of them low, a few high.
fn logits() -> Vec<f32> {
    let noise = |i: u32| f32::from((i.wrapping_mul(2_654_435_761) >> 16) as u16) / 65_536.0;
    (0..VOCAB).map(|i| noise(i).powi(8) * 20.0).collect()
}

fn sampler(criterion: &mut Criterion) {
    let base = SamplingParams::default();
    let cases = [
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
    ];
    let logits = logits();
    let prompt: Vec<u32> = (0..500).map(|i| i * 37).collect();
    let mut group = criterion.benchmark_group("sampler");
    group.throughput(Throughput::Elements(u64::from(VOCAB)));
    for (name, params) in cases {
        let mut state = SamplerState::new(params, &prompt, 0, Vec::new());
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

criterion_group!(benches, sampler);
criterion_main!(benches);
