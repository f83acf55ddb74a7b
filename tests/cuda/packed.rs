//! Products with packed quantized matrices beside those of the CPU, which quantizes tokens alike.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use sconce::blocks::{Coded, Kind, dequantize};
use sconce::kernels::backend::Backend;
use sconce::kernels::experts::{DeviceExperts, ExpertLayers, Routing, Score};
use sconce::kernels::linear::{
    self, DeviceLayer, DeviceNorm, Layer, device_linear_add, device_linear_each,
    device_linear_gated, device_normed_linear_each, device_normed_linear_gated,
};
use sconce::kernels::norm::rms_norm;
use sconce::kernels::packed::{PackedMatrix, PackedOnDevice};
use sconce::kernels::pointwise::{Activation, Gating, gated_pairs};

use super::operations::{assert_close, random};
use crate::parity::device;

const KINDS: [GgmlDType; 8] = [
    GgmlDType::Q8_0,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];
/// Kinds that are codes and have kernels.
const CODED: [Coded; 6] =
    [Coded::Iq4Nl, Coded::Iq4Xs, Coded::Nvfp4, Coded::Mxfp4, Coded::Tq1_0, Coded::Tq2_0];

/// A matrix on the host, on the device, and its numbers.
struct Matrix {
    host: PackedMatrix,
    there: PackedOnDevice,
    numbers: Tensor,
}

impl Matrix {
    fn of(host: PackedMatrix, numbers: &Tensor) -> Self {
        let there = host.to_device(device()).unwrap();
        Self { host, there, numbers: numbers.to_device(device()).unwrap() }
    }

    fn quantized(kind: GgmlDType, rows: usize, columns: usize, seed: u64) -> Self {
        let numbers = random(seed, &[rows, columns]).to_device(&Device::Cpu).unwrap();
        let quantized = QTensor::quantize(&numbers, kind).unwrap();
        let host = PackedMatrix::from_quantized(&quantized).unwrap();
        Self::of(host, &quantized.dequantize(&Device::Cpu).unwrap())
    }

    /// Blocks of codes of gguf-py, as many as it takes.
    fn coded(kind: Coded, rows: usize, columns: usize) -> Self {
        let text = include_str!("../fixtures/blocks.json");
        let all: serde_json::Value = serde_json::from_str(text).unwrap();
        let hex = all[kind.name()]["blocks"].as_str().unwrap();
        let digits: Vec<u8> =
            hex.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
        let bytes = digits.chunks(2).map(|two| two[0] << 4 | two[1]);
        let count = rows * columns / kind.block_size() * kind.type_size();
        let blocks: Vec<u8> = bytes.cycle().take(count).collect();
        let mut numbers = vec![0.0; rows * columns];
        dequantize(kind, &blocks, &mut numbers);
        let host = PackedMatrix::pack(Kind::Coded(kind), rows, columns, &blocks, None).unwrap();
        Self::of(host, &Tensor::from_vec(numbers, (rows, columns), &Device::Cpu).unwrap())
    }

    fn each(rows: usize, blocks: usize) -> impl Iterator<Item = Self> {
        let quantized = KINDS.into_iter().zip(1..).map(move |(kind, seed)| {
            Self::quantized(kind, rows, blocks * kind.block_size().max(32), seed)
        });
        let coded = move |kind: Coded| Self::coded(kind, rows, blocks * kind.block_size());
        quantized.chain(CODED.into_iter().map(coded))
    }

    fn layer<'a>(&'a self, bias: Option<&'a Tensor>) -> DeviceLayer<'a> {
        DeviceLayer { weight: (&self.there).into(), bias }
    }

    /// The product on the CPU.
    fn expected(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let bias = bias.map(|bias| bias.to_vec1::<f32>().unwrap());
        let layer = Layer { matrix: &self.host, bias: bias.as_deref() };
        linear::linear(&x.to_device(&Device::Cpu).unwrap(), layer).unwrap()
    }
}

/// Whether this process has CUDA kernels, which alone read matrices like these.
fn have_kernels() -> bool {
    Backend::of(device()).is_cuda()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let numbers: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

#[test]
fn rows_come_back_as_their_numbers_to_the_bit() {
    if !have_kernels() {
        return;
    }
    for matrix in Matrix::each(131, 2) {
        let kind = matrix.host.kind();
        let all = matrix.there.widen(DType::F32).unwrap();
        // Zero times a negative scale keeps its sign nowhere.
        let zero = |tensor: &Tensor| bits(&(tensor + 0.0).unwrap());
        assert_eq!(zero(&all), zero(&matrix.numbers), "{kind:?}");
        let ids = Tensor::new(&[130u32, 0, 17, 64, 17], device()).unwrap();
        let expected = matrix.numbers.index_select(&ids, 0).unwrap();
        assert_eq!(zero(&matrix.there.embed(&ids).unwrap()), zero(&expected), "{kind:?}");
        let rounded = matrix.there.widen(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
        let expected = matrix.numbers.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
        assert_eq!(zero(&rounded), zero(&expected), "{kind:?}");
    }
}

/// Every kind, for one token, for a few that each block quantizes, for some and for many, of which a block
/// takes 64.
#[test]
fn products_equal_those_of_the_cpu() {
    if !have_kernels() {
        return;
    }
    for matrix in Matrix::each(75, 3) {
        let columns = matrix.host.columns();
        let (bias, other) = (random(24, &[75]), random(26, &[75]));
        for tokens in [1, 3, 9, 70] {
            let x = random(20, &[tokens, columns]);
            let expected = matrix.expected(&x, Some(&bias));
            let tolerance = 1e-4;
            let layers = [matrix.layer(Some(&bias)), matrix.layer(None)];
            let each = device_linear_each(&x, &layers).unwrap();
            assert_close(&each[0], &expected, tolerance);
            assert_close(&each[1], &matrix.expected(&x, None), tolerance);
            let residual = random(25, &[tokens, 75]);
            let sum = device_linear_add(&x, layers[0], &residual, 0.5).unwrap();
            let expected = (&residual.to_device(&Device::Cpu).unwrap() + expected * 0.5).unwrap();
            assert_close(&sum, &expected, tolerance);
            let gating = Gating::Activation(Activation::Silu);
            let pair = [layers[0], matrix.layer(Some(&other))];
            let gated = device_linear_gated(&x, gating, pair, DType::F32).unwrap();
            let up = device_linear_each(&x, &[pair[1]]).unwrap();
            let expected = gated_pairs(gating, &each[0], &up[0]).unwrap();
            assert_close(&gated, &expected, tolerance);
        }
    }
}

/// Rows that are longer than what a block stages at a time, and so many that two tiles share a block.
#[test]
fn products_of_staged_tokens_equal_those_of_the_cpu() {
    if !have_kernels() {
        return;
    }
    for (kind, tokens, rows, columns) in [
        (GgmlDType::Q4K, 8, 20, 14_336),
        (GgmlDType::Q8_0, 30, 40, 1568),
        (GgmlDType::Q4_0, 9, 16_400, 64),
    ] {
        let matrix = Matrix::quantized(kind, rows, columns, 7);
        let x = random(20, &[tokens, columns]);
        let each = device_linear_each(&x, &[matrix.layer(None)]).unwrap();
        assert_close(&each[0], &matrix.expected(&x, None), 2e-4);
    }
}

/// Alone, among a few and among many: the same bits, whichever form of the kernel it is, and whoever
/// quantizes.
#[test]
fn a_token_in_company_has_the_bits_that_it_has_alone() {
    if !have_kernels() {
        return;
    }
    let matrices =
        [(GgmlDType::Q6K, 1024), (GgmlDType::Q5K, 256), (GgmlDType::Q4_1, 96)].into_iter();
    for (kind, columns) in matrices {
        let matrix = Matrix::quantized(kind, 33, columns, 9);
        let x = random(20, &[131, columns]);
        let product = |x: &Tensor| device_linear_each(x, &[matrix.layer(None)]).unwrap().remove(0);
        let all = product(&x);
        for (first, count) in [(0, 1), (5, 2), (60, 8), (70, 17), (1, 64), (0, 65)] {
            let some = product(&x.narrow(0, first, count).unwrap());
            let expected = all.narrow(0, first, count).unwrap();
            assert_eq!(bits(&some), bits(&expected), "{kind:?}: {count} tokens");
        }
    }
}

/// Few rows are normalized on their way into a product: the same bits as by a kernel of its own.
#[test]
fn products_normalize_few_rows_as_norms_do() {
    if !have_kernels() {
        return;
    }
    let gating = Gating::Activation(Activation::Silu);
    let packed = [GgmlDType::Q4K, GgmlDType::Q8_0].map(|kind| Matrix::quantized(kind, 40, 768, 3));
    let dense =
        [DType::BF16, DType::F16].map(|dtype| random(4, &[40, 768]).to_dtype(dtype).unwrap());
    let layers = packed.each_ref().map(|matrix| matrix.layer(None)).into_iter();
    let layers = layers.chain(dense.each_ref().map(|dense| super::operations::layer(dense, None)));
    let weight = random(5, &[768]);
    let norm = DeviceNorm { weight: &weight, eps: 1e-5 };
    for layer in layers {
        for tokens in 1..=4 {
            let x = random(20, &[tokens, 768]);
            let pair = [layer, layer];
            let each = device_normed_linear_each(&x, norm, &pair).unwrap();
            let gated = device_normed_linear_gated(&x, norm, gating, pair, DType::F32).unwrap();
            // More rows go through a norm of their own.
            assert_eq!((each.is_some(), gated.is_some()), (tokens < 4, tokens < 4));
            let (Some(each), Some(gated)) = (each, gated) else { continue };
            let normalized = rms_norm(&x, &weight, 1e-5).unwrap();
            let expected = device_linear_each(&normalized, &pair).unwrap();
            assert_eq!(bits(&each[0]), bits(&expected[0]), "{tokens} of {layer:?}");
            assert_eq!(bits(&each[1]), bits(&expected[1]));
            let expected = device_linear_gated(&normalized, gating, pair, DType::F32).unwrap();
            assert_eq!(bits(&gated), bits(&expected));
        }
    }
}

/// Layers of several kinds, as files mix them, and one that isn't quantized.
#[test]
fn layers_of_different_kinds_have_one_input() {
    if !have_kernels() {
        return;
    }
    let [a, b] = [GgmlDType::Q4K, GgmlDType::Q6K].map(|kind| Matrix::quantized(kind, 40, 512, 3));
    let dense = random(4, &[24, 512]);
    let dense = super::operations::layer(&dense, None);
    for tokens in [2, 12] {
        let x = random(20, &[tokens, 512]);
        let layers = [a.layer(None), a.layer(None), b.layer(None), dense, b.layer(None)];
        let each = device_linear_each(&x, &layers).unwrap();
        let widths: Vec<usize> = each.iter().map(|y| y.dim(1).unwrap()).collect();
        assert_eq!(widths, [40, 40, 40, 24, 40]);
        assert_close(&each[1], &a.expected(&x, None), 1e-4);
        assert_close(&each[2], &b.expected(&x, None), 1e-4);
        assert_close(&each[4], &b.expected(&x, None), 1e-4);
        // A gate of another kind than its up has no kernel with it.
        let gating = Gating::Activation(Activation::GeluTanh);
        let gated = device_linear_gated(&x, gating, [layers[0], layers[2]], DType::F32).unwrap();
        assert_close(&gated, &gated_pairs(gating, &each[0], &each[2]).unwrap(), 1e-3);
    }
}

/// Experts of quantized weights, chosen on the device; some get no token, and downs are of another kind.
#[test]
fn experts_equal_those_of_the_cpu_one_by_one() {
    if !have_kernels() {
        return;
    }
    let (count, per_token, hidden, inner) = (9, 3, 256, 96);
    let matrices = |kind, rows, columns, seed: u64| {
        let one = |i: u64| Matrix::quantized(kind, rows, columns, 100 * seed + i);
        (0..count as u64).map(one).collect::<Vec<_>>()
    };
    let gates = matrices(GgmlDType::Q4K, inner, hidden, 1);
    let ups = matrices(GgmlDType::Q4K, inner, hidden, 2);
    let downs = matrices(GgmlDType::Q5_0, hidden, inner, 3);
    let biases: Vec<Tensor> = (0..count as u64).map(|i| random(300 + i, &[inner])).collect();
    let layers: Vec<ExpertLayers<'_>> = (0..count)
        .map(|i| ExpertLayers {
            gate: Some(gates[i].layer(Some(&biases[i]))),
            up: ups[i].layer(Some(&biases[count - 1 - i])),
            down: downs[i].layer(None),
        })
        .collect();
    let experts = DeviceExperts::new(device(), &layers, [None, None]).unwrap();
    let experts = experts.expect("there are kernels");
    let routing = Routing {
        score: Score::Softmax,
        experts_per_token: per_token,
        groups: None,
        renormalize: true,
        scale: 1.5,
    };
    let gating = Gating::Activation(Activation::Silu);
    for tokens in [1, 3, 40, 200] {
        assert!(experts.takes(tokens, routing, false));
        let [x, residual] = [11, 12].map(|seed| random(seed, &[tokens, hidden]));
        // The last expert is nobody's choice.
        let scores = (random(13, &[tokens, count]) * 4.0).unwrap();
        let mut rows: Vec<Vec<f32>> = scores.to_vec2().unwrap();
        for row in &mut rows {
            row[count - 1] = -1e4;
        }
        let scores = Tensor::new(rows.clone(), device()).unwrap();
        for weighs_inputs in [false, true] {
            let ours = experts
                .forward_add(
                    [&x, &scores, &residual],
                    routing,
                    Some(gating),
                    |x| Ok(x.clone()),
                    (0.5, weighs_inputs),
                )
                .unwrap();
            let mut expected: Vec<Vec<f32>> = residual.to_vec2().unwrap();
            for (token, scores) in rows.iter().enumerate() {
                let x = x.narrow(0, token, 1).unwrap();
                for (expert, weight) in routing.choose(scores.clone(), None) {
                    let weight = f64::from(weight);
                    let x = if weighs_inputs { (&x * weight).unwrap() } else { x.clone() };
                    let own = [(&gates, expert), (&ups, count - 1 - expert)];
                    let [gate, up] = own.map(|(all, bias)| {
                        all[expert].expected(&x, Some(&biases[bias])).to_device(device()).unwrap()
                    });
                    let inner = gated_pairs(gating, &gate, &up).unwrap();
                    let y = downs[expert].expected(&inner, None);
                    let factor = if weighs_inputs { 0.5 } else { 0.5 * weight };
                    let y: Vec<Vec<f32>> = (y * factor).unwrap().to_vec2().unwrap();
                    for (sum, y) in expected[token].iter_mut().zip(&y[0]) {
                        *sum += y;
                    }
                }
            }
            assert_close(&ours, &Tensor::new(expected, &Device::Cpu).unwrap(), 3e-3);
        }
    }
}
