//! Linear layers of a 0.5B model: bytes of weights per second for one row, operations per second
//! for many. Beside the machine's read bandwidth and peak these say how far there is to go.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sconce::kernels::linear::linear;
use sconce::kernels::packed::PackedMatrix;

/// `(K, N)`: the gate projection and, larger than the caches, the output head.
const SHAPES: [(usize, usize); 2] = [(896, 4864), (896, 151_936)];

fn matrices(k: usize, n: usize) -> Vec<(&'static str, PackedMatrix)> {
    let weight = Tensor::randn(0f32, 1.0, (n, k), &Device::Cpu).unwrap();
    let dense = |dtype| PackedMatrix::from_dense(&weight.to_dtype(dtype).unwrap()).unwrap();
    let quantized =
        |kind| PackedMatrix::from_quantized(&QTensor::quantize(&weight, kind).unwrap()).unwrap();
    vec![
        ("f32", dense(DType::F32)),
        ("bf16", dense(DType::BF16)),
        ("q8_0", quantized(GgmlDType::Q8_0)),
        ("q4_0", quantized(GgmlDType::Q4_0)),
    ]
}

fn benches(c: &mut Criterion) {
    for (k, n) in SHAPES {
        for (name, matrix) in matrices(k, n) {
            let mut group = c.benchmark_group(format!("linear {name} {k}x{n}"));
            group.sample_size(10);
            for m in [1usize, 16, 128] {
                if m > 1 && n > 100_000 {
                    continue;
                }
                let x = Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu).unwrap();
                group.throughput(match m {
                    1 => Throughput::Bytes(matrix.size_in_bytes() as u64),
                    _ => Throughput::Elements((2 * m * k * n) as u64),
                });
                group.bench_function(BenchmarkId::from_parameter(m), |b| {
                    b.iter(|| linear(&x, &matrix, None).unwrap());
                });
            }
            group.finish();
        }
    }
}

criterion_group!(all, benches);
criterion_main!(all);
