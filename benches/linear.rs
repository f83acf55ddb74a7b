//! Linear layers of a 0.5B model in every kind that has a packed form: bytes of weights per second
//! for few rows, operations per second for many, each beside what the machine can do at most,
//! measured in the same run.
//!
//! `cargo bench --bench linear`, or `-- q8_0` for one kind. `-- levels` (and a kind, if wanted) runs
//! it on every level of kernels that this machine has, one after the other; not on the scalar one,
//! which is there to test the others and takes an hour.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is a test")]
#![allow(clippy::print_stdout, reason = "the table is the result")]
#![allow(clippy::cast_precision_loss, reason = "rates")]

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};

use sconce::kernels::backend::cpu_level;
use sconce::kernels::ceiling::Ceiling;
use sconce::kernels::cpu::Level;
use sconce::kernels::linear::{Layer, linear};
use sconce::kernels::packed::PackedMatrix;
use sconce::kernels::pool;
use sconce_blocks::{Coded, Kind};

/// The first argument that asks for all levels.
const LEVELS: &str = "levels";
/// `(K, N)` of a gate projection.
const SHAPE: (usize, usize) = (896, 4864);
/// About the same size with rows that divide into blocks of 256.
const SHAPE_256: (usize, usize) = (1024, 4224);
/// Matrices that take turns: more than the caches hold.
const LAYERS: usize = 48;
const KINDS: [(&str, Kind); 24] = [
    ("f32", Kind::Ggml(GgmlDType::F32)),
    ("f16", Kind::Ggml(GgmlDType::F16)),
    ("bf16", Kind::Ggml(GgmlDType::BF16)),
    ("q8_0", Kind::Ggml(GgmlDType::Q8_0)),
    ("w8a8", Kind::W8A8),
    ("q6_k", Kind::Ggml(GgmlDType::Q6K)),
    ("q5_k", Kind::Ggml(GgmlDType::Q5K)),
    ("q5_1", Kind::Ggml(GgmlDType::Q5_1)),
    ("q5_0", Kind::Ggml(GgmlDType::Q5_0)),
    ("q4_k", Kind::Ggml(GgmlDType::Q4K)),
    ("q4_1", Kind::Ggml(GgmlDType::Q4_1)),
    ("q4_0", Kind::Ggml(GgmlDType::Q4_0)),
    ("iq4_xs", Kind::Coded(Coded::Iq4Xs)),
    ("iq4_nl", Kind::Coded(Coded::Iq4Nl)),
    ("nvfp4", Kind::Coded(Coded::Nvfp4)),
    ("iq3_s", Kind::Coded(Coded::Iq3S)),
    ("iq3_xxs", Kind::Coded(Coded::Iq3Xxs)),
    ("iq2_s", Kind::Coded(Coded::Iq2S)),
    ("iq2_xs", Kind::Coded(Coded::Iq2Xs)),
    ("iq2_xxs", Kind::Coded(Coded::Iq2Xxs)),
    ("tq2_0", Kind::Coded(Coded::Tq2_0)),
    ("tq1_0", Kind::Coded(Coded::Tq1_0)),
    ("iq1_m", Kind::Coded(Coded::Iq1M)),
    ("iq1_s", Kind::Coded(Coded::Iq1S)),
];
/// Rows whose figure is bandwidth.
const FEW: [usize; 3] = [1, 2, 4];
/// Rows whose figure is arithmetic.
const MANY: [usize; 4] = [16, 64, 256, 512];

fn main() {
    let mut wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if wanted.first().is_some_and(|first| first == LEVELS) {
        wanted.remove(0);
        return run_levels(&wanted);
    }
    let filter = wanted.first();
    let ceiling = Ceiling::measure().unwrap();
    println!(
        "{} threads, {}: read {:.1} GB/s; {:.0} GFLOP/s f32, {:.0} bf16, {:.0} int8",
        pool::threads(),
        cpu_level().name(),
        ceiling.read_bytes / 1e9,
        ceiling.f32_operations / 1e9,
        ceiling.bf16_operations / 1e9,
        ceiling.int8_operations / 1e9,
    );
    println!("kind, rows: GB/s of weights, or G operations/s (share of the ceiling)");
    for (name, kind) in KINDS {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        // Anew for each kind: the memory of a shared machine changes from one second to the next.
        let ceiling = Ceiling::measure().unwrap();
        let peak = match kind {
            Kind::Ggml(GgmlDType::F32 | GgmlDType::F16) => ceiling.f32_operations,
            Kind::Ggml(GgmlDType::BF16) => ceiling.bf16_operations,
            _ => ceiling.int8_operations,
        };
        let (k, n) = if kind.block_size() == 256 { SHAPE_256 } else { SHAPE };
        let layers: Vec<PackedMatrix> = (0..LAYERS).map(|_| random_matrix(kind, k, n)).collect();
        let bytes: usize = layers.iter().map(PackedMatrix::size_in_bytes).sum();
        let mut line = format!("{name:7} beside {:.1} GB/s", ceiling.read_bytes / 1e9);
        for m in FEW.into_iter().chain(MANY) {
            let x = Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu).unwrap();
            let seconds = best(|| {
                for matrix in &layers {
                    drop(linear(&x, Layer { matrix, bias: None }).unwrap());
                }
            });
            let (rate, most) = if FEW.contains(&m) {
                (bytes as f64 / seconds, ceiling.read_bytes)
            } else {
                ((2 * m * k * n * LAYERS) as f64 / seconds, peak)
            };
            let share = 100.0 * rate / most;
            write!(line, " | {m:3}: {:5.1} ({share:3.0} %)", rate / 1e9).unwrap();
        }
        println!("{line}");
    }
}

/// A level is chosen once per process, so each one gets a process of its own.
fn run_levels(wanted: &[String]) {
    for level in Level::available().into_iter().skip(1) {
        let mut this = Command::new(std::env::current_exe().unwrap());
        let status = this.args(wanted).env("SCONCE_KERNELS", level.name()).status().unwrap();
        assert!(status.success(), "{}: {status}", level.name());
    }
}

fn random_matrix(kind: Kind, k: usize, n: usize) -> PackedMatrix {
    match kind {
        Kind::Ggml(kind) => rounded_matrix(kind, k, n),
        Kind::Coded(_) | Kind::W8A8 => random_blocks(kind, k, n),
    }
}

/// Random codes with small scales, which stand first or last in a block.
fn random_blocks(kind: Kind, k: usize, n: usize) -> PackedMatrix {
    let count = n * k / kind.block_size() * kind.type_size();
    let random = Tensor::rand(0f32, 256.0, count, &Device::Cpu).unwrap();
    let mut bytes = random.to_dtype(DType::U8).unwrap().to_vec1::<u8>().unwrap();
    for block in bytes.chunks_exact_mut(kind.type_size()) {
        block[..2].copy_from_slice(&[0, 16]);
        block.last_chunk_mut::<2>().unwrap().copy_from_slice(&[0, 16]);
    }
    PackedMatrix::pack(kind, n, k, &bytes, None).unwrap()
}

fn rounded_matrix(kind: GgmlDType, k: usize, n: usize) -> PackedMatrix {
    let values = Tensor::randn(0f32, 0.02, (n, k), &Device::Cpu).unwrap();
    let values = values.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
    PackedMatrix::pack(GgmlDType::F32, n, k, &bytes, Some(kind)).unwrap()
}

/// Seconds of the fastest of several runs: other work on the machine only ever adds.
fn best(run: impl Fn()) -> f64 {
    let begun = Instant::now();
    let mut seconds = f64::INFINITY;
    let mut runs = 0;
    while runs < 3 || begun.elapsed() < Duration::from_millis(400) {
        let start = Instant::now();
        run();
        seconds = seconds.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    seconds
}
