//! Paged attention with the heads of a 0.5B model: bytes of cache per second for decoding,
//! operations per second for a prefill.

use candle_core::{DType, Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sconce::kernels::KV_BLOCK;
use sconce::kernels::paged_attention::{AttentionParams, Ragged, paged_attention};

const HEADS: usize = 14;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;

/// `sequences` of `context` positions each, the last `queries` of them new.
fn run(c: &mut Criterion, group: &str, sequences: u32, context: u32, queries: u32) {
    let per_sequence = context.div_ceil(32);
    let blocks = (sequences * per_sequence) as usize;
    let cache = || {
        let dims = (blocks, KV_BLOCK, KV_HEADS, HEAD_DIM);
        Tensor::randn(0f32, 1.0, dims, &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap()
    };
    let (k, v) = (cache(), cache());
    let rows = (sequences * queries) as usize;
    let q = Tensor::randn(0f32, 1.0, (rows, HEADS, HEAD_DIM), &Device::Cpu).unwrap();
    let positions: Vec<u32> = (0..sequences).flat_map(|_| context - queries..context).collect();
    let block_tables: Vec<Vec<u32>> =
        (0..sequences).map(|s| (s * per_sequence..(s + 1) * per_sequence).collect()).collect();
    let cu_seqlens_q: Vec<u32> = (0..=sequences).map(|s| s * queries).collect();
    let context_lens = vec![context; sequences as usize];
    let ragged = Ragged {
        positions: &positions,
        block_tables: &block_tables,
        cu_seqlens_q: &cu_seqlens_q,
        context_lens: &context_lens,
    };
    let params = AttentionParams { scale: 0.125, softcap: None, window: None };
    let seen: u64 = positions.iter().map(|position| u64::from(*position) + 1).sum();
    let mut group = c.benchmark_group(group);
    group.throughput(match queries {
        1 => Throughput::Bytes(seen * 2 * 2 * (KV_HEADS * HEAD_DIM) as u64),
        _ => Throughput::Elements(seen * 4 * (HEADS * HEAD_DIM) as u64),
    });
    group.sample_size(20);
    let id = BenchmarkId::from_parameter(format!("{sequences}x{context}"));
    group.bench_function(id, |b| {
        b.iter(|| paged_attention(&q, &k, &v, ragged, params).unwrap());
    });
    group.finish();
}

fn benches(c: &mut Criterion) {
    for (sequences, context) in [(1, 256), (1, 2048), (16, 512)] {
        run(c, "attention decode", sequences, context, 1);
    }
    for (sequences, context) in [(1, 512), (1, 2048)] {
        run(c, "attention prefill", sequences, context, context);
    }
}

criterion_group!(all, benches);
criterion_main!(all);
