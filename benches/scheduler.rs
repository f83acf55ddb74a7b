//! One step of the scheduler, and the block pool below it, at the sizes of a busy server.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sconce::kv_cache::block_hash::BlockHash;
use sconce::kv_cache::{BLOCK_SIZE, BlockTable, KvCacheManager};
use sconce::scheduler::sequence::{Sequence, SequenceId};
use sconce::scheduler::stop::StopConditions;
use sconce::scheduler::{Beside, Scheduler, SchedulerConfig};

fn decoding(num_seqs: u32, context: u32) -> Scheduler {
    let config = SchedulerConfig {
        fixed_rope_length: None,
        keeps_state: false,
        lookahead: false,
        max_num_seqs: 256,
        num_slots: 256,
        max_num_batched_tokens: 1 << 20,
        max_model_len: 1 << 16,
    };
    let mut scheduler = Scheduler::new(config, KvCacheManager::new(1 << 16, true));
    for id in 0..num_seqs {
        let stop = StopConditions {
            max_tokens: usize::MAX,
            min_tokens: 0,
            eos_token_ids: Arc::from([]),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
        };
        let prompt = (0..context).map(|i| id * 100_000 + i).collect();
        scheduler.add(Sequence::new(SequenceId(u64::from(id)), prompt, stop, 0, None));
    }
    step(&mut scheduler);
    scheduler
}

fn step(scheduler: &mut Scheduler) {
    let output = scheduler.schedule(Beside::ANY);
    let sampled: Vec<_> =
        scheduler.plan(&output).filter(|p| p.samples).map(|p| (p.id, vec![7])).collect();
    black_box(scheduler.update(&output, &sampled));
}

fn scheduler_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler_step");
    for num_seqs in [1, 16, 64, 256] {
        group.throughput(Throughput::Elements(u64::from(num_seqs)));
        let scheduler = decoding(num_seqs, 500);
        group.bench_function(format!("{num_seqs} decodes"), |bencher| {
            bencher.iter_batched_ref(|| scheduler.clone(), step, BatchSize::LargeInput);
        });
    }
    group.finish();
}

fn block_pool(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("block_pool");
    let tokens: Vec<u32> = (0..4096).collect();
    group.throughput(Throughput::Elements(4096 / BLOCK_SIZE as u64));
    let hashes: Vec<_> = tokens
        .chunks_exact(BLOCK_SIZE)
        .scan(BlockHash::root(None), |hash, block| {
            *hash = hash.chain(block);
            Some(*hash)
        })
        .collect();
    group.bench_function("hash 4096 tokens", |bencher| {
        bencher.iter(|| {
            let root = BlockHash::root(None);
            tokens.chunks_exact(BLOCK_SIZE).fold(root, |hash, block| hash.chain(black_box(block)))
        });
    });
    group.bench_function("allocate, publish, release 4096 tokens", |bencher| {
        let mut cache = KvCacheManager::new(1 << 14, true);
        let mut table = BlockTable::default();
        bencher.iter(|| {
            let matched = cache.match_prefix(&hashes);
            assert!(cache.allocate(&mut table, &hashes[..matched], 4096));
            for (index, hash) in hashes.iter().enumerate() {
                cache.publish(&table, index, *hash);
            }
            cache.release(&mut table);
        });
    });
    group.finish();
}

criterion_group!(benches, scheduler_step, block_pool);
criterion_main!(benches);
