//! Token by token to text, and text through stop strings.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sconce::text::detokenizer::Detokenizer;
use sconce::text::stop_strings::StopStrings;
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;

fn tokenizer() -> Arc<Tokenizer> {
    let files = sconce::demo::files();
    let (_, json) = files.iter().find(|(name, _)| *name == "tokenizer.json").expect("embedded");
    let config = TokenizerConfig::default();
    Arc::new(Tokenizer::from_json(json, &config).expect("the embedded tokenizer loads"))
}

fn detokenizer(criterion: &mut Criterion) {
    let tokenizer = tokenizer();
    let text = "Once upon a time a brave fox named Kestrel wanted to learn to count. ".repeat(30);
    let ids = tokenizer.encode(&text, false).expect("plain text");
    let mut group = criterion.benchmark_group("detokenizer");
    group.throughput(Throughput::Elements(ids.len() as u64));
    group.bench_function("push", |bencher| {
        bencher.iter_batched_ref(
            || Detokenizer::new(tokenizer.clone(), true),
            |detokenizer| {
                for id in &ids {
                    black_box(detokenizer.push(*id));
                }
            },
            BatchSize::SmallInput,
        );
    });
    let stops = ["\n\nUser:".to_owned(), "Kestrel wanted to fly".to_owned()];
    group.bench_function("stop strings", |bencher| {
        bencher.iter_batched_ref(
            || StopStrings::new(stops.to_vec(), false),
            |stops| {
                for piece in text.split_inclusive(' ') {
                    black_box(stops.push(piece));
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, detokenizer);
criterion_main!(benches);
