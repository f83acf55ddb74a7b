//! What is selected beside scores that are added up plainly, over numbers that every format stores exactly and
//! of which many scores are equal.

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::cpu::Level;
use crate::kv_write::{KvCache, Projections, Rotation, kv_write};
use crate::random::{Random, values};

/// Elements of a value before the key.
const FIRST: usize = 32;
const KEY_DIM: usize = 32;
const FORMATS: [KvFormat; 5] =
    [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Fp8, KvFormat::Q8_0];

/// Sequences over one shuffled cache.
struct Case {
    queries: Tensor,
    weights: Tensor,
    values: Tensor,
    dim: usize,
    step: Step,
    /// Of each sequence the keys in order of position.
    keys: Vec<Vec<Vec<f32>>>,
}

fn integers(random: &mut Random, shape: (usize, usize, usize)) -> Tensor {
    let count = shape.0 * shape.1 * shape.2;
    #[expect(clippy::cast_precision_loss, reason = "small integers")]
    let numbers: Vec<f32> = (0..count).map(|_| random.below(17) as f32 - 8.0).collect();
    Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
}

impl Case {
    /// `(context, queries)` per sequence: the queries are the last positions.
    fn new(format: KvFormat, heads: usize, dim: usize, sequences: &[(u32, u32)]) -> Self {
        let mut random = Random::new(5);
        let num_blocks: u32 = sequences.iter().map(|own| own.0.div_ceil(32)).sum::<u32>() + 2;
        let mut blocks: Vec<u32> = (0..num_blocks).collect();
        random.shuffle(&mut blocks);
        let tokens = num_blocks as usize * KV_BLOCK;
        let written = integers(&mut random, (tokens, 1, FIRST + dim));
        let written = if format == KvFormat::Q8_0 {
            // A scale of one.
            let largest = Tensor::full(127f32, (tokens, 1, 1), &Device::Cpu).unwrap();
            let groups = written.reshape((tokens, (FIRST + dim) / GROUP, GROUP)).unwrap();
            let largest = largest.broadcast_as((tokens, (FIRST + dim) / GROUP, 1)).unwrap();
            let rest = groups.narrow(2, 1, GROUP - 1).unwrap();
            Tensor::cat(&[largest, rest], 2).unwrap().reshape((tokens, 1, FIRST + dim)).unwrap()
        } else {
            written
        };
        let zeros = |dims: [usize; 4]| Tensor::zeros(&dims, format.dtype(), &Device::Cpu).unwrap();
        let k = zeros(format.key_dims(num_blocks as usize, 1, KEY_DIM));
        let v = zeros(format.value_dims(num_blocks as usize, 1, FIRST + dim));
        let none = Tensor::zeros((tokens, 0), DType::F32, &Device::Cpu).unwrap();
        let others = Tensor::zeros((tokens, 1, KEY_DIM), DType::F32, &Device::Cpu).unwrap();
        let new = Projections { q: &others, k: &others, v: &written };
        let rotation = Rotation { cos: &none, sin: &none, norms: None };
        let slots: Vec<u32> = (0..u32::try_from(tokens).unwrap()).collect();
        kv_write(new, rotation, KvCache { k: &k, v: &v }, slots[..].into()).unwrap();

        let rows: usize = sequences.iter().map(|own| own.1 as usize).sum();
        let written = values(&written);
        let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
        let mut keys = Vec::new();
        for (context, queries) in sequences {
            let table = blocks.split_off(blocks.len() - context.div_ceil(32) as usize);
            let key = |position: usize| {
                let slot = table[position / KV_BLOCK] as usize * KV_BLOCK + position % KV_BLOCK;
                written[slot * (FIRST + dim) + FIRST..][..dim].to_vec()
            };
            keys.push((0..*context as usize).map(key).collect());
            step.positions.extend(context - queries..*context);
            step.cu_seqlens_q.push(u32::try_from(step.positions.len()).unwrap());
            step.context_lens.push(*context);
            step.block_tables.push(table);
        }
        Self {
            queries: integers(&mut random, (rows, heads, dim)),
            weights: integers(&mut random, (rows, heads, 1)).squeeze(2).unwrap(),
            values: v,
            dim,
            step,
            keys,
        }
    }

    fn queries(&self) -> IndexQueries<'_> {
        IndexQueries { queries: &self.queries, weights: &self.weights }
    }

    fn keys(&self) -> IndexKeys<'_> {
        IndexKeys { values: &self.values, first: FIRST, dim: self.dim, pools: None }
    }

    /// By plain sums, and a stable sort of all tokens up to the query's own.
    fn plainly(&self, count: usize) -> Vec<Option<Vec<u32>>> {
        let (heads, dim) = (self.weights.dim(1).unwrap(), self.dim);
        let (queries, weights) = (values(&self.queries), values(&self.weights));
        let mut rows = Vec::new();
        for (seq, keys) in self.keys.iter().enumerate() {
            for row in self.step.rows(seq) {
                let seen = self.step.positions[row] as usize + 1;
                let score = |key: &Vec<f32>| -> f32 {
                    let of_head = |head: usize| {
                        let query = &queries[(row * heads + head) * dim..][..dim];
                        let product: f32 = query.iter().zip(key).map(|(a, b)| a * b).sum();
                        weights[row * heads + head] * product.max(0.0)
                    };
                    (0..heads).map(of_head).sum()
                };
                let scores: Vec<f32> = keys[..seen].iter().map(score).collect();
                let mut order: Vec<u32> = (0..u32::try_from(seen).unwrap()).collect();
                // Zeros have one sign here.
                let at = |position: &u32| scores[*position as usize] + 0.0;
                order.sort_by(|a, b| at(b).partial_cmp(&at(a)).unwrap());
                order.truncate(count);
                order.sort_unstable();
                rows.push((seen > count).then_some(order));
            }
        }
        rows
    }
}

#[test]
fn the_largest_scores_are_selected_and_of_equal_ones_the_earlier() {
    let sequences = [(600, 3), (5, 5), (70, 40), (41, 1), (40, 1)];
    for format in FORMATS {
        let [dims, heads] =
            if format == KvFormat::Q8_0 { [[32, 64], [3, 20]] } else { [[4, 40], [2, 17]] };
        for (dim, heads) in dims.into_iter().zip(heads) {
            let case = Case::new(format, heads, dim, &sequences);
            let expected = case.plainly(40);
            assert!(expected.iter().filter(|row| row.is_some()).count() > 20);
            for level in Level::available() {
                let found = cpu::select(level, case.queries(), case.keys(), format, &case.step, 40)
                    .unwrap();
                assert_eq!(found.rows(), expected, "{format:?} {heads} {dim} {}", level.name());
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case::new(KvFormat::F32, 2, 8, &[(70, 2)]);
    let select = |queries, keys, step: &Step, count| {
        select_tokens(queries, keys, step, count).unwrap_err().to_string()
    };
    assert!(select(case.queries(), case.keys(), &case.step, 0).contains("nothing to see"));
    let wide = IndexKeys { dim: 9, ..case.keys() };
    assert!(select(case.queries(), wide, &case.step, 5).contains("keys of 9 elements"));
    let behind = IndexKeys { first: FIRST + 1, ..case.keys() };
    assert!(select(case.queries(), behind, &case.step, 5).contains("behind 33 ones"));
    let mut step = case.step.clone();
    step.block_tables[0].truncate(1);
    assert!(select(case.queries(), case.keys(), &step, 5).contains("1 blocks for 70"));
    assert!(select_tokens(case.queries(), case.keys(), &case.step, 5).is_ok());
}

/// What each query sees of pools whose keys are made plainly, in f64.
fn pooled_plainly(
    case: &Case,
    offsets: &[f32],
    size: usize,
    count: usize,
) -> Vec<Option<Vec<u32>>> {
    // The case's keys are keys and gates.
    let dim = case.dim / 2;
    let heads = case.weights.dim(1).unwrap();
    let (queries, weights) = (values(&case.queries), values(&case.weights));
    let mut rows = Vec::new();
    for (seq, keys) in case.keys.iter().enumerate() {
        let pool_key = |pool: &[Vec<f32>]| -> Vec<f64> {
            let element = |at: usize| {
                let gate =
                    |place: usize| f64::from(pool[place][dim + at] + offsets[place * dim + at]);
                let weights: Vec<f64> = (0..size).map(|place| gate(place).exp()).collect();
                let weighted =
                    weights.iter().zip(pool).map(|(weight, key)| weight * f64::from(key[at]));
                weighted.sum::<f64>() / weights.iter().sum::<f64>()
            };
            (0..dim).map(element).collect()
        };
        for row in case.step.rows(seq) {
            let seen = case.step.positions[row] as usize + 1;
            let score = |key: Vec<f64>| -> f64 {
                let of_head = |head: usize| {
                    let query = &queries[(row * heads + head) * dim..][..dim];
                    let product: f64 = query.iter().zip(&key).map(|(a, b)| f64::from(*a) * b).sum();
                    f64::from(weights[row * heads + head]) * product.max(0.0)
                };
                (0..heads).map(of_head).sum()
            };
            let pools = keys[..seen].chunks_exact(size);
            let mut scored: Vec<(f64, usize)> = pools.map(pool_key).map(score).zip(0..).collect();
            if scored.len() <= count {
                rows.push(None);
                continue;
            }
            let whole = scored.len() * size;
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut chosen: Vec<usize> = scored[..count].iter().map(|one| one.1).collect();
            chosen.sort_unstable();
            let tokens = chosen.into_iter().flat_map(|pool| pool * size..(pool + 1) * size);
            rows.push(Some(
                tokens.chain(whole..seen).map(|at| u32::try_from(at).unwrap()).collect(),
            ));
        }
    }
    rows
}

#[test]
fn whole_pools_with_the_largest_scores_and_what_is_behind_them_are_seen() {
    let sequences = [(600, 3), (5, 5), (70, 40), (95, 17)];
    for (dim, heads, size) in [(32, 20, 16), (32, 3, 5), (64, 17, 1)] {
        for format in FORMATS {
            let case = Case::new(format, heads, 2 * dim, &sequences);
            let mut random = Random::new(11);
            let queries = random.tensor((case.step.positions.len(), heads, dim));
            let case = Case { queries, ..case };
            let offsets = random.tensor((size, dim));
            let count = 64 / size;
            let expected = pooled_plainly(&case, &values(&offsets), size, count);
            assert!(expected.iter().filter(|row| row.is_some()).count() > 10);
            let keys =
                IndexKeys { dim, pools: Some(KeyPools { offsets: &offsets }), ..case.keys() };
            for level in Level::available() {
                let found =
                    cpu::select(level, case.queries(), keys, format, &case.step, count * size);
                assert_eq!(found.unwrap().rows(), expected, "{format:?} {size} {}", level.name());
            }
            let found = select_tokens(case.queries(), keys, &case.step, count * size).unwrap();
            assert_eq!(found.rows(), expected);
        }
    }
}

#[test]
fn pools_that_do_not_fit_are_refused() {
    let case = Case::new(KvFormat::F32, 2, 16, &[(70, 2)]);
    let queries = case.queries.narrow(2, 0, 8).unwrap().contiguous().unwrap();
    let select = |count, offsets: &Tensor| {
        let keys = IndexKeys { dim: 8, pools: Some(KeyPools { offsets }), ..case.keys() };
        let queries = IndexQueries { queries: &queries, weights: &case.weights };
        select_tokens(queries, keys, &case.step, count)
    };
    let mut random = Random::new(3);
    assert!(select(10, &random.tensor((4, 8))).is_err());
    assert!(select(12, &random.tensor((4, 7))).is_err());
    assert!(select(12, &random.tensor((4, 8))).is_ok());
}
