//! Tokens land in their slots as in plain operations, and a bad call writes nothing.

use candle_core::{DType, Device};
use half::f16;

use super::*;
use crate::backend::cpu_level;
use crate::cache::kv_format::KvFormat;
use crate::cpu::Level;
use crate::random::{Random, assert_close, bits};

/// Arguments of one call.
struct Case {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    weights: Option<(Tensor, Tensor)>,
    slots: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
    pairs: usize,
    norms: bool,
}

const SHAPES: [Shape; 5] = [
    Shape { heads: 1, kv_heads: 1, head_dim: 2, value_dim: 2, pairs: 1, norms: false },
    Shape { heads: 4, kv_heads: 2, head_dim: 64, value_dim: 64, pairs: 32, norms: false },
    Shape { heads: 3, kv_heads: 3, head_dim: 80, value_dim: 80, pairs: 20, norms: true },
    Shape { heads: 2, kv_heads: 1, head_dim: 34, value_dim: 20, pairs: 17, norms: true },
    Shape { heads: 6, kv_heads: 3, head_dim: 12, value_dim: 12, pairs: 0, norms: false },
];
const BLOCKS: usize = 20;

impl Case {
    fn new(shape: Shape, slots: Vec<u32>) -> Self {
        let Shape { heads, kv_heads, head_dim, value_dim, pairs, norms } = shape;
        let mut random = Random::new(1);
        let tokens = slots.len();
        Self {
            q: random.tensor((tokens, heads, head_dim)),
            k: random.tensor((tokens, kv_heads, head_dim)),
            v: random.tensor((tokens, kv_heads, value_dim)),
            cos: random.tensor((tokens, pairs)),
            sin: random.tensor((tokens, pairs)),
            weights: norms.then(|| (random.tensor(head_dim), random.tensor(head_dim))),
            slots,
        }
    }

    fn new_rows(&self) -> Projections<'_> {
        Projections { q: &self.q, k: &self.k, v: &self.v }
    }

    fn rotation(&self) -> Rotation<'_> {
        let norms = self.weights.as_ref().map(|(query, key)| HeadNorms {
            query,
            key,
            eps: 1e-6,
            // One of the shapes with norms.
            after_rotation: self.q.dims()[2] == 34,
        });
        Rotation { cos: &self.cos, sin: &self.sin, norms }
    }

    fn at(&self, level: Level, cache: &(Tensor, Tensor)) -> Tensor {
        let cache = KvCache { k: &cache.0, v: &cache.1 };
        let shape = check(self.new_rows(), self.rotation(), cache, self.slots.len()).unwrap();
        cpu::kv_write(level, self.new_rows(), self.rotation(), cache, &self.slots, shape).unwrap()
    }

    fn queries_alone(&self, level: Level) -> Tensor {
        cpu::prepare_queries(level, &self.q, self.rotation()).unwrap()
    }

    fn plainly(&self, cache: &(Tensor, Tensor)) -> Tensor {
        let cache = KvCache { k: &cache.0, v: &cache.1 };
        portable::kv_write(self.new_rows(), self.rotation(), cache, &self.slots).unwrap()
    }

    /// One token as a call of its own.
    fn token(&self, index: usize) -> Self {
        let one = |t: &Tensor| t.narrow(0, index, 1).unwrap().copy().unwrap();
        Self {
            q: one(&self.q),
            k: one(&self.k),
            v: one(&self.v),
            cos: one(&self.cos),
            sin: one(&self.sin),
            weights: self.weights.clone(),
            slots: vec![self.slots[index]],
        }
    }
}

fn cache(format: KvFormat, shape: Shape) -> (Tensor, Tensor) {
    let zeros = |dims: [usize; 4]| Tensor::zeros(&dims, format.dtype(), &Device::Cpu).unwrap();
    let Shape { kv_heads, head_dim, value_dim, .. } = shape;
    (
        zeros(format.key_dims(BLOCKS, kv_heads, head_dim)),
        zeros(format.value_dims(BLOCKS, kv_heads, value_dim)),
    )
}

fn wide(tensor: &Tensor) -> Tensor {
    tensor.to_dtype(DType::F32).unwrap()
}

#[test]
fn tokens_land_in_their_slots_as_in_plain_operations() {
    for shape in SHAPES {
        let case = Case::new(shape, vec![95, 0, 33, 31, 32]);
        for (format, tolerance) in [
            (KvFormat::F32, 1e-5),
            (KvFormat::Bf16, 8e-3),
            (KvFormat::F16, 1e-3),
            (KvFormat::Fp8, 0.13),
        ] {
            let plain = cache(format, shape);
            let expected = case.plainly(&plain);
            for level in Level::available() {
                assert_close(&case.queries_alone(level), &expected, 1e-5);
            }
            for level in Level::available() {
                let ours = cache(format, shape);
                assert_close(&case.at(level, &ours), &expected, 1e-5);
                assert_close(&wide(&ours.0), &wide(&plain.0), tolerance);
                assert_eq!(bits(&wide(&ours.1)), bits(&wide(&plain.1)));
            }
        }
    }
}

#[test]
fn company_and_order_change_no_bit() {
    let mut slots: Vec<u32> = (7..7 + 500).collect();
    for (shape, format) in [
        (SHAPES[1], KvFormat::Bf16),
        (SHAPES[1], KvFormat::Q8_0),
        (SHAPES[2], KvFormat::F16),
        (SHAPES[2], KvFormat::Fp8),
        (SHAPES[3], KvFormat::F32),
    ] {
        for shuffled in [false, true] {
            if shuffled {
                Random::new(4).shuffle(&mut slots);
            }
            let all = Case::new(shape, slots.clone());
            for level in Level::available() {
                let (together, alone) = (cache(format, shape), cache(format, shape));
                let queries = all.at(level, &together);
                for i in 0..slots.len() {
                    let one = all.token(i).at(level, &alone);
                    assert_eq!(bits(&one), bits(&queries.narrow(0, i, 1).unwrap()));
                }
                assert_eq!(bits(&wide(&together.0)), bits(&wide(&alone.0)));
                assert_eq!(bits(&wide(&together.1)), bits(&wide(&alone.1)));
            }
        }
    }
}

#[test]
fn projections_may_be_parts_of_one_tensor() {
    let shape = SHAPES[1];
    let case = Case::new(shape, vec![3, 40, 41]);
    let joined = Tensor::cat(&[&case.q, &case.k, &case.v], 1).unwrap();
    let part = |first, count| joined.narrow(1, first, count).unwrap();
    let parts = Case { q: part(0, 4), k: part(4, 2), v: part(6, 2), ..case.token(0) };
    let parts = Case { cos: case.cos.clone(), sin: case.sin.clone(), ..parts };
    let parts = Case { slots: case.slots.clone(), ..parts };
    let (ours, expected) = (cache(KvFormat::F32, shape), cache(KvFormat::F32, shape));
    let (a, b) = (parts.at(cpu_level(), &ours), case.at(cpu_level(), &expected));
    assert_eq!(bits(&a), bits(&b));
    assert_eq!(bits(&ours.0), bits(&expected.0));
    assert_eq!(bits(&ours.1), bits(&expected.1));
}

/// Reads a quantized value row back.
fn read_value(cache: &Tensor, head_dim: usize, slot: usize) -> Vec<f32> {
    let bytes: Vec<u8> = cache.flatten_all().unwrap().to_vec1().unwrap();
    let width = head_dim / 32 * 34;
    let groups = bytes[slot * width..(slot + 1) * width].chunks_exact(34);
    let group = |group: &[u8]| {
        let scale = f16::from_le_bytes([group[0], group[1]]).to_f32();
        let number = move |x: &u8| f32::from(x.cast_signed()) * scale;
        group[2..].iter().map(number).collect::<Vec<f32>>()
    };
    groups.flat_map(group).collect()
}

#[test]
fn quantized_numbers_are_within_half_a_step() {
    let shape =
        Shape { heads: 1, kv_heads: 1, head_dim: 64, value_dim: 64, pairs: 0, norms: false };
    let special = [0.0, 1e-9, 3e-5, 1.0, 100.0, 6e4];
    for level in Level::available() {
        for size in special {
            let mut case = Case::new(shape, vec![5]);
            case.v = (case.v * size).unwrap();
            let cache = cache(KvFormat::Q8_0, shape);
            case.at(level, &cache);
            let exact: Vec<f32> = case.v.flatten_all().unwrap().to_vec1().unwrap();
            let stored = read_value(&cache.1, 64, 5);
            for (exact, stored) in exact.chunks(32).zip(stored.chunks(32)) {
                let largest = exact.iter().fold(0f32, |a, b| a.max(b.abs()));
                for (exact, stored) in exact.iter().zip(stored) {
                    // f16 has no numbers below 6e-8.
                    let step = (largest / 127.0).max(6e-8 * 127.0);
                    assert!((exact - stored).abs() <= 0.51 * step, "{exact} as {stored}");
                }
            }
        }
        let mut case = Case::new(shape, vec![5]);
        let mut values: Vec<f32> = vec![1.0; 64];
        values[40] = f32::INFINITY;
        case.v = Tensor::from_vec(values, (1, 1, 64), &Device::Cpu).unwrap();
        let cache = cache(KvFormat::Q8_0, shape);
        case.at(level, &cache);
        let stored = read_value(&cache.1, 64, 5);
        assert!(stored[..32].iter().all(|x| (x - 1.0).abs() < 1e-3));
        assert!(stored[32..].iter().all(|x| x.is_nan()));
    }
}

#[test]
fn a_bad_slot_or_shape_is_an_error_and_nothing_is_written() {
    let shape = SHAPES[1];
    let ours = cache(KvFormat::F32, shape);
    let refused = |change: fn(&mut Case), words: &str| {
        let mut case = Case::new(shape, vec![1, 2]);
        change(&mut case);
        let kv = KvCache { k: &ours.0, v: &ours.1 };
        let slots = case.slots[..].into();
        let error = kv_write(case.new_rows(), case.rotation(), kv, slots).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(|c| c.slots[1] = 640, "slot 640 of a cache with 640 slots");
    refused(|c| c.slots.truncate(1), "expected [1, 2, 64]");
    refused(|c| c.k = c.k.narrow(1, 0, 1).unwrap(), "expected [2, 2, 64]");
    refused(|c| c.v = c.v.narrow(0, 0, 1).unwrap(), "expected [2, 2, 64]");
    refused(|c| c.cos = c.cos.narrow(0, 0, 1).unwrap(), "don't fit 2 tokens");
    refused(|c| c.q = c.q.narrow(2, 0, 32).unwrap(), "no cache for heads of 32");
    assert!(bits(&ours.0).iter().chain(&bits(&ours.1)).all(|bits| *bits == 0));
    let other = cache(KvFormat::Bf16, shape);
    let case = Case::new(shape, vec![1]);
    let mixed = KvCache { k: &ours.0, v: &other.1 };
    assert!(kv_write(case.new_rows(), case.rotation(), mixed, case.slots[..].into()).is_err());
}
