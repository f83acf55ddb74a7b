//! Paged attention with the heads and layers of a 0.5B model, beside what the machine can do:
//! bytes of cache per second for decoding next to plain reading, operations per second for a
//! prefill next to plain multiply-adds. Times are the best of several runs, for one layer.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark")]
#![expect(clippy::cast_precision_loss, reason = "figures to print")]

use std::hint::black_box;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use sconce::kernels::cache::kv_format::KvFormat;
use sconce::kernels::ceiling::Ceiling;
use sconce::kernels::paged_attention::{AttentionParams, PerHead, paged_attention};
use sconce::kernels::pool;
use sconce::kernels::step::Step;

const HEADS: usize = 14;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;
/// Each with a cache of its own, so that what is read comes from where it would in a model.
const LAYERS: usize = 24;
const FORMATS: [KvFormat; 4] = [KvFormat::Bf16, KvFormat::F16, KvFormat::F32, KvFormat::Q8_0];

fn best_of(runs: usize, mut work: impl FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64()
    };
    (0..runs).map(|_| time(&mut work)).fold(f64::INFINITY, f64::min)
}

/// A cache of random numbers; in the quantized one all bytes are 1.
fn cache(format: KvFormat, dims: [usize; 4]) -> Tensor {
    if format == KvFormat::Q8_0 {
        return Tensor::ones(&dims, DType::U8, &Device::Cpu).unwrap();
    }
    let random = Tensor::randn(0f32, 1.0, &dims, &Device::Cpu).unwrap();
    let cache = format.zeros(dims, &Device::Cpu).unwrap();
    cache.slice_set(&random.to_dtype(format.dtype()).unwrap(), 0, 0).unwrap();
    cache
}

/// Seconds for one layer: `sequences` of `context` positions, the last `queries` of them new and the first `shared` the
/// same blocks for all.
fn seconds(format: KvFormat, sequences: u32, context: u32, queries: u32, shared: u32) -> f64 {
    let per_sequence = context.div_ceil(32);
    let blocks = (sequences * per_sequence) as usize;
    let layer = |_| {
        let k = cache(format, format.key_dims(blocks, KV_HEADS, HEAD_DIM));
        (k, cache(format, format.value_dims(blocks, KV_HEADS, HEAD_DIM)))
    };
    let layers: Vec<(Tensor, Tensor)> = (0..LAYERS).map(layer).collect();
    let rows = (sequences * queries) as usize;
    let q = Tensor::randn(0f32, 1.0, (rows, HEADS, HEAD_DIM), &Device::Cpu).unwrap();
    let block = |s: u32, at: u32| if at < shared / 32 { at } else { s * per_sequence + at };
    let blocks = |s: u32| (0..per_sequence).map(|at| block(s, at)).collect();
    let step = Step {
        positions: (0..sequences).flat_map(|_| context - queries..context).collect(),
        block_tables: (0..sequences).map(blocks).collect(),
        cu_seqlens_q: (0..=sequences).map(|s| s * queries).collect(),
        context_lens: vec![context; sequences as usize],
        ..Step::default()
    };
    let params = AttentionParams::full(0.125);
    let all = best_of(7, || {
        for (k, v) in &layers {
            black_box(paged_attention(&q, k, v, &step, params, PerHead::default()).unwrap());
        }
    });
    all / LAYERS as f64
}

fn decode(read: f64) {
    for format in FORMATS {
        let mut shortest = None;
        for (sequences, context) in [(1, 128), (1, 512), (1, 1024), (1, 4096), (16, 512)] {
            let seconds = seconds(format, sequences, context, 1, 0);
            let positions = (sequences * context) as usize;
            let bytes = positions * 2 * KV_HEADS * format.head_bytes(HEAD_DIM);
            let rate = bytes as f64 / seconds / 1e9;
            let ratio = seconds / *shortest.get_or_insert(seconds);
            println!(
                "decode {format:?} {sequences}x{context}: {:.1} us, {rate:.1} GB/s ({:.0} % of \
                 {read:.1}), {ratio:.1} times 1x128",
                seconds * 1e6,
                100.0 * rate / read
            );
        }
    }
}

fn prefill(peak: f64) {
    for format in FORMATS {
        for context in [128, 512, 2048] {
            let seconds = seconds(format, 1, context, context, 0);
            let seen = f64::from(context) * f64::from(context + 1) / 2.0;
            let rate = seen * (4 * HEADS * HEAD_DIM) as f64 / seconds / 1e9;
            println!(
                "prefill {format:?} {context}: {:.0} us, {rate:.0} GFLOP/s ({:.0} % of {peak:.0})",
                seconds * 1e6,
                100.0 * rate / peak
            );
        }
    }
}

/// Sequences whose contexts begin with the same blocks, beside sequences that have blocks of their own.
fn behind_a_prefix() {
    for (queries, what) in [(1, "streams"), (11, "questions")] {
        let times = [4096, 0].map(|shared| seconds(KvFormat::Bf16, 16, 4128, queries, shared));
        println!(
            "16 {what} of {queries} tokens behind the same 4096 positions: {:.0} us, {:.2} of {:.0} us behind their own",
            times[0] * 1e6,
            times[0] / times[1],
            times[1] * 1e6
        );
    }
}

fn main() {
    // `cargo test --benches` runs this too, with nothing to measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    println!("{} threads", pool::threads());
    let ceiling = Ceiling::measure().unwrap();
    decode(ceiling.read_bytes / 1e9);
    prefill(ceiling.f32_operations / 1e9);
    behind_a_prefix();
}
