//! Operations beside the same in plain candle operations, on whatever kernels this process has:
//! `SCONCE_TEST_DEVICE` names the device, as for the tests of whole models.

use candle_core::{DType, Device, Tensor};
use sconce::kernels::cache::kv_format::KvFormat;
use sconce::kernels::floats::Floats;
use sconce::kernels::kv_write::{
    self, HeadNorms, KvCache, Projections, Rotation, kv_write, prepare_queries,
};
use sconce::kernels::linear::{
    self, DeviceLayer, device_linear_add, device_linear_each, device_linear_gated,
};
use sconce::kernels::norm;
use sconce::kernels::paged_attention::{self, AttentionParams, PerHead, paged_attention};
use sconce::kernels::pointwise::{
    self, Activation, Gating, Xielu, gated_pairs, sigmoid, soft_cap, xielu,
};
use sconce::kernels::put_rows::put_rows;
use sconce::kernels::step::Step;

use crate::parity::device;

const ALL: [Activation; 5] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Relu,
    Activation::ReluSquared,
];

/// Numbers between -1 and 1 that differ with the seed.
pub(super) fn random(seed: u64, shape: &[usize]) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let count = shape.iter().product::<usize>();
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let numbers: Vec<f32> = std::iter::repeat_with(next).take(count).collect();
    Tensor::from_vec(numbers, shape, device()).unwrap()
}

/// On a GPU the tensor library has no kernels for 8-bit floats.
fn on_cpu(tensor: &Tensor) -> Tensor {
    tensor.to_device(&Device::Cpu).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    on_cpu(tensor).to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub(super) fn assert_close(ours: &Tensor, expected: &Tensor, tolerance: f32) {
    assert_eq!(ours.dims(), expected.dims());
    for (a, b) in floats(ours).into_iter().zip(floats(expected)) {
        // What is too large for f32 is infinite in both.
        assert!(
            a.to_bits() == b.to_bits() || (a - b).abs() <= tolerance * b.abs().max(1.0),
            "{a} is not {b}"
        );
    }
}

pub(super) fn layer<'a>(weight: &'a Tensor, bias: Option<&'a Tensor>) -> DeviceLayer<'a> {
    DeviceLayer { weight: weight.into(), bias }
}

#[test]
fn norms_equal_the_plain_ones() {
    for width in [1, 7, 64, 300] {
        let (x, residual) = (random(1, &[5, width]), random(2, &[5, width]));
        let (weight, bias) = (random(3, &[width]), random(4, &[width]));
        let plain = norm::portable::rms_norm(&x, &weight, 1e-5).unwrap();
        assert_close(&norm::rms_norm(&x, &weight, 1e-5).unwrap(), &plain, 1e-5);
        let sum = norm::rms_norm_add(&x, &weight, 1e-5, &residual).unwrap();
        assert_close(&sum, &(plain + residual).unwrap(), 1e-5);
        let plain = norm::portable::layer_norm(&x, &weight, &bias, 1e-5).unwrap();
        assert_close(&norm::layer_norm(&x, &weight, &bias, 1e-5).unwrap(), &plain, 1e-5);
    }
}

#[test]
fn functions_equal_the_plain_ones() {
    let x = (random(5, &[3, 171]) * 6.0).unwrap();
    let up = (random(6, &[3, 171]) * 3.0).unwrap();
    for activation in ALL {
        let plain = pointwise::portable::pointwise(activation, &x).unwrap();
        assert_close(&pointwise::pointwise(activation, &x).unwrap(), &plain, 1e-5);
    }
    let clamped = Gating::Clamped { alpha: 1.702, limit: 2.0 };
    for gating in ALL.map(Gating::from).into_iter().chain([clamped]) {
        let plain = pointwise::portable::gated(gating, &x, &up).unwrap();
        assert_close(&gated_pairs(gating, &x, &up).unwrap(), &plain, 1e-5);
    }
    assert_close(
        &soft_cap(1.5, &x).unwrap(),
        &pointwise::portable::soft_cap(1.5, &x).unwrap(),
        1e-5,
    );
    let numbers = Xielu { positive: 0.8, negative: 0.4, beta: 0.5 };
    assert_close(
        &xielu(numbers, &x).unwrap(),
        &pointwise::portable::xielu(numbers, &x).unwrap(),
        1e-5,
    );
    let silu = (sigmoid(&x).unwrap() * &x).unwrap();
    assert_close(&silu, &pointwise::portable::pointwise(Activation::Silu, &x).unwrap(), 1e-5);
}

#[test]
fn rows_reach_their_places() {
    let (to, from) = (random(40, &[5, 70]), random(41, &[3, 70]));
    put_rows(&to, &[4, 0, 2], &from).unwrap();
    let expected: Vec<Vec<f32>> = from.to_vec2().unwrap();
    let written: Vec<Vec<f32>> = to.to_vec2().unwrap();
    assert_eq!([&written[4], &written[0], &written[2]], [&expected[0], &expected[1], &expected[2]]);
    let untouched: Vec<Vec<f32>> = random(40, &[5, 70]).to_vec2().unwrap();
    assert_eq!([&written[1], &written[3]], [&untouched[1], &untouched[3]]);
    put_rows(&to, &[], &random(42, &[0, 70])).unwrap();
    assert!(put_rows(&to, &[5], &random(43, &[1, 70])).is_err());
}

/// Three tokens in scattered slots, with and without norms, in every format.
#[test]
fn keys_and_values_reach_their_slots() {
    let (heads, kv_heads, key_dim, value_dim) = (4, 2, 64, 32);
    let q = random(7, &[3, heads, key_dim]);
    // Parts of wider rows.
    let both = random(8, &[3, kv_heads * (key_dim + value_dim)]);
    let k = both.narrow(1, 0, kv_heads * key_dim).unwrap();
    let v = both.narrow(1, kv_heads * key_dim, kv_heads * value_dim).unwrap();
    let k = k.reshape((3, kv_heads, key_dim)).unwrap();
    let v = v.reshape((3, kv_heads, value_dim)).unwrap();
    let (cos, sin) = (random(9, &[3, 24]), random(10, &[3, 24]));
    let weights = [random(11, &[key_dim]), random(12, &[key_dim])];
    let slots = [70u32, 3, 71];
    let norms = |after_rotation| {
        let [query, key] = &weights;
        HeadNorms { query, key, eps: 1e-6, after_rotation }
    };
    for norms in [None, Some(norms(false)), Some(norms(true))] {
        let rotation = Rotation { cos: &cos, sin: &sin, norms };
        let queries =
            kv_write::portable::prepared(&q, rotation, norms.map(|norms| norms.query)).unwrap();
        let keys =
            kv_write::portable::prepared(&k, rotation, norms.map(|norms| norms.key)).unwrap();
        assert_close(&prepare_queries(&q, rotation).unwrap(), &queries, 1e-5);
        let halves = [KvFormat::F16, KvFormat::Bf16];
        for format in [KvFormat::F32, KvFormat::Fp8, KvFormat::Q8_0].into_iter().chain(halves) {
            let cache_k = format.zeros(format.key_dims(3, kv_heads, key_dim), device()).unwrap();
            let cache_v =
                format.zeros(format.value_dims(3, kv_heads, value_dim), device()).unwrap();
            let new = Projections { q: &q, k: &k, v: &v };
            let cache = KvCache { k: &cache_k, v: &cache_v };
            let ours = kv_write(new, rotation, cache, slots[..].into()).unwrap();
            assert_close(&ours, &queries, 1e-5);
            let [cache_k, cache_v] = [cache_k, cache_v].map(|cache| on_cpu(&cache));
            if format == KvFormat::Q8_0 {
                continue; // read by the attention below
            }
            let tolerance = match format {
                KvFormat::F32 => 1e-5,
                KvFormat::Fp8 => 0.07,
                _ => 1e-2,
            };
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            for (token, slot) in slots.iter().enumerate() {
                let (block, offset) = (*slot as usize / 32, *slot as usize % 32);
                let key = cache_k.get(block).unwrap().narrow(2, offset, 1).unwrap();
                let value = cache_v.get(block).unwrap().narrow(1, offset, 1).unwrap();
                found.extend([key.flatten_all().unwrap(), value.flatten_all().unwrap()]);
                expected.extend([&keys, &v].map(|x| x.get(token).unwrap().flatten_all().unwrap()));
            }
            let found = Tensor::cat(&found, 0).unwrap();
            assert_close(&found, &Tensor::cat(&expected, 0).unwrap(), tolerance);
            let written = |cache: &Tensor| floats(cache).iter().filter(|x| **x != 0.0).count();
            let all = written(&cache_k) + written(&cache_v);
            assert_eq!(all, written(&found), "{format:?}: others stay zero");
        }
    }
}

/// Weights of each type and awkward sizes, for one token and for many.
#[test]
fn products_equal_the_plain_ones() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for (tokens, inputs) in [(1, 64), (3, 200), (9, 72), (70, 40), (2, 13)] {
            // What meets half-precision weights is rounded to their type, so it should be already.
            let x = random(20, &[tokens, inputs]).to_dtype(dtype).unwrap();
            let x = x.to_dtype(DType::F32).unwrap();
            let weight = |seed, rows| random(seed, &[rows, inputs]).to_dtype(dtype).unwrap();
            let [a, b, c] = [weight(21, 33), weight(22, 16), weight(23, 33)];
            let (bias, residual) = (random(24, &[33]), random(25, &[tokens, 33]));
            let tolerance = 1e-4;
            let plain = |weight: &Tensor, bias| linear::portable::linear(&x, weight, bias).unwrap();
            let layers =
                [layer(&a, Some(&bias)), layer(&b, None), layer(&c, None), layer(&b, None)];
            let each = device_linear_each(&x, &layers).unwrap();
            assert_close(&each[0], &plain(&a, Some(&bias)), tolerance);
            assert_close(&each[1], &plain(&b, None), tolerance);
            assert_close(&each[3], &plain(&b, None), tolerance);
            let sum = device_linear_add(&x, layers[0], &residual, 0.5).unwrap();
            let expected = (&residual + (plain(&a, Some(&bias)) * 0.5).unwrap()).unwrap();
            assert_close(&sum, &expected, tolerance);
            let gating = Gating::Activation(Activation::Silu);
            let pair = [layers[0], layers[2]];
            let gated = device_linear_gated(&x, gating, pair, DType::F32).unwrap();
            // As the next layer would round it.
            let rounded = device_linear_gated(&x, gating, pair, dtype).unwrap();
            assert_eq!(floats(&rounded), floats(&gated.to_dtype(dtype).unwrap()), "{dtype:?}");
            // Layers of two types have no kernel together.
            let wide = c.to_dtype(DType::F32).unwrap();
            let mixed = [layers[0], layer(&wide, None)];
            let [rounded, gated] = [DType::BF16, DType::F32]
                .map(|to| device_linear_gated(&x, gating, mixed, to).unwrap());
            assert_eq!(floats(&rounded), floats(&gated.to_dtype(DType::BF16).unwrap()));
            let expected =
                pointwise::portable::gated(gating, &plain(&a, Some(&bias)), &plain(&c, None));
            assert_close(&gated, &expected.unwrap(), 10.0 * tolerance);
        }
    }
}

/// A cache of random numbers for contexts of these lengths, each block somewhere.
struct Paged {
    k: Tensor,
    v: Tensor,
    tables: Vec<Vec<u32>>,
}

impl Paged {
    fn new(format: KvFormat, [heads, key, value]: [usize; 3], contexts: &[u32]) -> Self {
        let blocks: u32 = contexts.iter().map(|context| context.div_ceil(32)).sum();
        let tokens = blocks as usize * 32;
        let zeros = |dims| format.zeros(dims, device()).unwrap();
        let k = zeros(format.key_dims(blocks as usize, heads, key));
        let v = zeros(format.value_dims(blocks as usize, heads, value));
        let none = Tensor::zeros((tokens, 0), DType::F32, device()).unwrap();
        let rotation = Rotation { cos: &none, sin: &none, norms: None };
        let rows = |seed, dim| random(seed, &[tokens, heads, dim]);
        let new = Projections { q: &rows(1, key), k: &rows(2, key), v: &rows(3, value) };
        let slots: Vec<u32> = (0..u32::try_from(tokens).unwrap()).collect();
        kv_write(new, rotation, KvCache { k: &k, v: &v }, slots[..].into()).unwrap();
        let mut free: Vec<u32> =
            (0..blocks).rev().step_by(2).chain((0..blocks).rev().skip(1).step_by(2)).collect();
        let tables = contexts
            .iter()
            .map(|context| free.split_off(free.len() - context.div_ceil(32) as usize))
            .collect();
        Self { k, v, tables }
    }
}

fn per_head([sinks, slopes]: &[Floats; 2]) -> PerHead<'_> {
    PerHead { sinks: Some(sinks), slopes: Some(slopes) }
}

#[test]
fn attention_equals_the_plain_one() {
    let full = AttentionParams::full(0.15);
    let variants = [
        full,
        AttentionParams { window: Some(40), softcap: Some(2.0), ..full },
        AttentionParams { chunk: Some(48), ..full },
    ];
    let two_sided = [
        AttentionParams { ahead: usize::MAX, ..full },
        AttentionParams { ahead: 9, window: Some(8), ..full },
        AttentionParams { to_named_end: false, ..full },
    ];
    // Contexts, and how many of their last positions are queries.
    let contexts = [700u32, 5, 33, 290];
    let queries = [1u32, 5, 20, 1];
    let positions: Vec<u32> = contexts
        .iter()
        .zip(queries)
        .flat_map(|(context, count)| context - count..*context)
        .collect();
    let ends = queries.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    let cu_seqlens_q: Vec<u32> = std::iter::once(0).chain(ends).collect();
    let shapes = [
        (KvFormat::F32, [8, 2, 24, 40]),
        (KvFormat::Bf16, [8, 2, 64, 64]),
        (KvFormat::F16, [7, 1, 128, 128]),
        (KvFormat::Q8_0, [4, 4, 32, 64]),
        (KvFormat::Q8_0, [6, 2, 128, 128]),
        (KvFormat::Fp8, [4, 4, 40, 64]),
        (KvFormat::Fp8, [8, 2, 80, 80]),
        (KvFormat::Bf16, [40, 1, 80, 80]),
    ];
    for (format, [heads, kv_heads, key, value]) in shapes {
        let paged = Paged::new(format, [kv_heads, key, value], &contexts);
        // What a quantized cache holds can't be read plainly: a cache of f32 stands for it.
        let exact = Paged::new(KvFormat::F32, [kv_heads, key, value], &contexts);
        let plain = if format == KvFormat::Q8_0 { &exact } else { &paged };
        let q = random(30, &[positions.len(), heads, key]);
        let step = Step {
            positions: positions.clone(),
            block_tables: paged.tables.clone(),
            cu_seqlens_q: cu_seqlens_q.clone(),
            context_lens: contexts.to_vec(),
            ..Step::default()
        };
        let (sinks, slopes) = (random(31, &[heads]), random(32, &[heads]).abs().unwrap());
        let floats = [&sinks, &slopes].map(|own| Floats::of(own.clone()).unwrap());
        let floats_on_cpu = [&sinks, &slopes].map(|own| Floats::of(on_cpu(own)).unwrap());
        let plain = [&q, &plain.k, &plain.v].map(on_cpu);
        let none = PerHead::default();
        // Two sequences have rows that see some behind themselves, the last one sees more than its window.
        let mut named = step.clone();
        named.attention_ends = positions.iter().map(|position| position + 1).collect();
        named.attention_ends[1..4].fill(3);
        named.attention_ends[8..20].fill(30);
        named.attention_starts = positions.clone();
        named.attention_starts[26] = 100;
        let compare = |step: &Step, params, [own, on_cpu]: [PerHead<'_>; 2]| {
            let ours = paged_attention(&q, &paged.k, &paged.v, step, params, own);
            let [q, k, v] = &plain;
            let expected =
                paged_attention::portable::paged_attention(q, k, v, step, params, on_cpu);
            let tolerance = if format == KvFormat::F32 { 2e-5 } else { 1.2e-2 };
            assert_close(&ours.unwrap(), &expected.unwrap(), tolerance);
        };
        for params in variants.into_iter().chain(two_sided) {
            compare(&named, params, [none, none]);
        }
        for params in variants {
            for both in [[none, none], [per_head(&floats), per_head(&floats_on_cpu)]] {
                compare(&step, params, both);
            }
        }
    }
}
