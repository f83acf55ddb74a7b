//! Operations at sizes that real models have and tiny ones don't: more elements than 32 bits count,
//! inputs that don't fit in shared memory, a block of as many threads as there can be.

use candle_core::{DType, IndexOp, Tensor};
use sconce::kernels::cache::kv_format::KvFormat;
use sconce::kernels::kv_write::{KvCache, Projections, Rotation, kv_write};
use sconce::kernels::linear::{self, device_linear_add, device_linear_each, device_linear_gated};
use sconce::kernels::paged_attention::{AttentionParams, PerHead, paged_attention};
use sconce::kernels::pointwise::{self, Activation, Gating};
use sconce::kernels::step::Step;

use super::on_device::draw_on_both;
use super::operations::{assert_close, layer, random};
use crate::parity::device;

#[test]
fn draws_from_a_real_vocabulary_are_those_of_the_host() {
    draw_on_both(2, 151_936, 1);
}

/// A sequence in the first blocks of a small cache and in the last ones of a large cache, whose memory
/// nobody touches but where it is.
#[test]
fn a_sequence_past_4_gib_of_a_cache_is_the_same() {
    let (heads, kv_heads, dim, context) = (8, 4, 128, 70u32);
    let rows = |seed, heads| random(seed, &[context as usize, heads, dim]);
    let [q, k, v] = [rows(1, heads), rows(2, kv_heads), rows(3, kv_heads)];
    let none = Tensor::zeros((context as usize, 0), DType::F32, device()).unwrap();
    let rotation = Rotation { cos: &none, sin: &none, norms: None };
    for format in [KvFormat::F32, KvFormat::Bf16, KvFormat::Q8_0, KvFormat::Fp8] {
        let attended = |blocks: usize, table: [u32; 3]| {
            let zeros = |dims| format.zeros(dims, device()).unwrap();
            let cache_k = zeros(format.key_dims(blocks, kv_heads, dim));
            let cache_v = zeros(format.value_dims(blocks, kv_heads, dim));
            let slots: Vec<u32> =
                (0..context).map(|at| table[at as usize / 32] * 32 + at % 32).collect();
            let new = Projections { q: &q, k: &k, v: &v };
            kv_write(new, rotation, KvCache { k: &cache_k, v: &cache_v }, slots[..].into())
                .unwrap();
            let step = Step {
                // One form of the kernel for few queries, another for many.
                positions: (0..context).collect(),
                block_tables: vec![table.to_vec()],
                cu_seqlens_q: vec![0, context],
                context_lens: vec![context],
                ..Step::default()
            };
            let last =
                Step { positions: vec![context - 1], cu_seqlens_q: vec![0, 1], ..step.clone() };
            [(&step, q.clone()), (&last, q.i(context as usize - 1..).unwrap())].map(|(step, q)| {
                let params = AttentionParams::full(0.1);
                let out = paged_attention(&q, &cache_k, &cache_v, step, params, PerHead::default());
                out.unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
            })
        };
        let bytes = format.zeros(format.key_dims(1, kv_heads, dim), device()).unwrap();
        let bytes = bytes.elem_count() * bytes.dtype().size_in_bytes();
        let blocks = (1usize << 32) / bytes + 10;
        let last = u32::try_from(blocks).unwrap() - 1;
        assert_eq!(attended(blocks, [last, 3, last - 2]), attended(8, [5, 3, 7]), "{format:?}");
    }
}

/// Inputs of all tokens don't fit in shared memory and are staged; rows are more than a block has.
#[test]
fn products_of_many_tokens_with_long_rows_equal_the_plain_ones() {
    for (dtype, tokens, inputs) in [
        (DType::BF16, 64, 2056),
        (DType::BF16, 25, 4096),
        (DType::F16, 33, 1544),
        (DType::BF16, 5, 14_336),
    ] {
        let x = random(20, &[tokens, inputs]).to_dtype(dtype).unwrap();
        let x = x.to_dtype(DType::F32).unwrap();
        let weight = |seed, rows| random(seed, &[rows, inputs]).to_dtype(dtype).unwrap();
        let [a, b, c] = [weight(21, 35), weight(22, 16), weight(23, 35)];
        let (bias, residual) = (random(24, &[35]), random(25, &[tokens, 35]));
        let plain = |weight: &Tensor, bias| linear::portable::linear(&x, weight, bias).unwrap();
        let layers = [layer(&a, Some(&bias)), layer(&b, None), layer(&c, None)];
        // Sums of so many numbers of either sign; what is relative is their length.
        let tolerance = 1e-3;
        let each = device_linear_each(&x, &layers).unwrap();
        assert_close(&each[0], &plain(&a, Some(&bias)), tolerance);
        assert_close(&each[1], &plain(&b, None), tolerance);
        let sum = device_linear_add(&x, layers[0], &residual, 0.5).unwrap();
        let expected = (&residual + (plain(&a, Some(&bias)) * 0.5).unwrap()).unwrap();
        assert_close(&sum, &expected, tolerance);
        let gating = Gating::Activation(Activation::Silu);
        let gated = device_linear_gated(&x, gating, [layers[0], layers[2]], DType::F32).unwrap();
        let expected =
            pointwise::portable::gated(gating, &plain(&a, Some(&bias)), &plain(&c, None));
        assert_close(&gated, &expected.unwrap(), 30.0 * tolerance);
    }
}
