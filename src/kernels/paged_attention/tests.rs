//! Attention against plain candle on scattered blocks, and against itself under any chunking.

use candle_core::{DType, Device};

use super::cpu::Call;
use super::plan::{Heads, Plan};
use super::*;
use crate::cache::kv_element::{PerPosition, Stored, Vector};
use crate::cache::kv_format::KvFormat;
use crate::cpu::{Kernel, Level, Products};
use crate::floats::Floats;
use crate::kv_write::{KvCache, Projections, Rotation, kv_write};
use crate::random::{Random, assert_close, bits};

/// Sequences over one shuffled cache.
struct Case {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    step: Step,
    sinks: Option<Floats>,
    slopes: Option<Floats>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    sinks: bool,
    slopes: bool,
}

impl Shape {
    const fn new(heads: usize, kv_heads: usize, dim: usize) -> Self {
        Self { heads, kv_heads, key_dim: dim, value_dim: dim, sinks: false, slopes: false }
    }
}

const SHAPES: [Shape; 8] = [
    Shape::new(1, 1, 1),
    Shape::new(4, 4, 12),
    Shape::new(4, 2, 16),
    Shape::new(14, 2, 40),
    Shape::new(3, 1, 128),
    Shape { value_dim: 24, ..Shape::new(6, 1, 37) },
    Shape { sinks: true, ..Shape::new(6, 2, 20) },
    Shape { slopes: true, ..Shape::new(5, 5, 16) },
];

fn params(window: Option<usize>, softcap: Option<f32>) -> AttentionParams {
    AttentionParams { softcap, window, ..AttentionParams::full(0.3) }
}

fn variants() -> [AttentionParams; 6] {
    [
        params(None, None),
        params(Some(1), None),
        params(Some(20), None),
        params(Some(33), Some(2.0)),
        params(Some(10_000), None),
        AttentionParams { chunk: Some(24), ..params(None, None) },
    ]
}

/// Queries that see positions behind their own.
fn two_sided() -> [AttentionParams; 3] {
    [
        AttentionParams { ahead: usize::MAX, ..params(None, None) },
        AttentionParams { ahead: 20, ..params(Some(21), None) },
        AttentionParams { ahead: 3, ..params(Some(300), Some(2.0)) },
    ]
}

/// One number for each head.
fn floats(from: &[f32], map: impl Fn(f32) -> f32) -> Floats {
    let numbers: Vec<f32> = from.iter().map(|x| map(*x)).collect();
    Floats::of(Tensor::new(numbers, &Device::Cpu).unwrap()).unwrap()
}

/// A cache whose every slot was written with random numbers.
fn filled_cache(
    format: KvFormat,
    num_blocks: usize,
    shape: Shape,
    random: &mut Random,
) -> (Tensor, Tensor) {
    let Shape { kv_heads, key_dim, value_dim, .. } = shape;
    let zeros = |dims: [usize; 4]| Tensor::zeros(&dims, format.dtype(), &Device::Cpu).unwrap();
    let k = zeros(format.key_dims(num_blocks, kv_heads, key_dim));
    let v = zeros(format.value_dims(num_blocks, kv_heads, value_dim));
    let tokens = num_blocks * KV_BLOCK;
    let mut rows = |dim: usize| random.tensor((tokens, kv_heads, dim));
    let none = Tensor::zeros((tokens, 0), DType::F32, &Device::Cpu).unwrap();
    let slots: Vec<u32> = (0..u32::try_from(tokens).unwrap()).collect();
    let new = Projections { q: &rows(key_dim), k: &rows(key_dim), v: &rows(value_dim) };
    let rotation = Rotation { cos: &none, sin: &none, norms: None };
    kv_write(new, rotation, KvCache { k: &k, v: &v }, slots[..].into()).unwrap();
    (k, v)
}

impl Case {
    /// `(context, queries)` per sequence: the queries are the last positions.
    fn new(shape: Shape, format: KvFormat, sequences: &[(u32, u32)]) -> Self {
        let mut random = Random::new(9);
        let num_blocks: u32 = sequences.iter().map(|s| s.0.div_ceil(32)).sum::<u32>() + 2;
        let mut blocks: Vec<u32> = (0..num_blocks).collect();
        random.shuffle(&mut blocks);
        let Shape { heads, kv_heads, key_dim, .. } = shape;
        let rows: u32 = sequences.iter().map(|s| s.1).sum();
        let (k, v) = filled_cache(format, num_blocks as usize, shape, &mut random);
        assert_eq!(k.dims(), format.key_dims(num_blocks as usize, kv_heads, key_dim));
        let mut case = Self {
            q: random.tensor((rows as usize, heads, key_dim)),
            k,
            v,
            step: Step { cu_seqlens_q: vec![0], ..Step::default() },
            sinks: shape.sinks.then(|| floats(&random.floats(heads), |x| 4.0 * x)),
            slopes: shape.slopes.then(|| floats(&random.floats(heads), f32::abs)),
        };
        for (context, queries) in sequences {
            case.step.positions.extend(context - queries..*context);
            let needed = context.div_ceil(32) as usize;
            case.step.block_tables.push(blocks.split_off(blocks.len() - needed));
            case.step.cu_seqlens_q.push(u32::try_from(case.step.positions.len()).unwrap());
            case.step.context_lens.push(*context);
        }
        case
    }

    fn per_head(&self) -> PerHead<'_> {
        PerHead { sinks: self.sinks.as_ref(), slopes: self.slopes.as_ref() }
    }

    fn plainly(&self, params: AttentionParams) -> Tensor {
        let per_head = self.per_head();
        portable::paged_attention(&self.q, &self.k, &self.v, &self.step, params, per_head).unwrap()
    }

    fn at(&self, level: Level, params: AttentionParams) -> Tensor {
        self.on_threads(1, level, params)
    }

    fn on_threads(&self, threads: usize, level: Level, params: AttentionParams) -> Tensor {
        self.as_type(DType::F32, threads, level, params)
    }

    fn as_type(
        &self,
        dtype: DType,
        threads: usize,
        level: Level,
        params: AttentionParams,
    ) -> Tensor {
        let shape = check(&self.q, &self.k, &self.v, &self.step, params).unwrap();
        let per_head = self.per_head();
        let call = Call { level, threads, step: &self.step, params, per_head, shape, dtype };
        call.run(&self.q, &self.k, &self.v).unwrap()
    }

    fn checked(&self) -> Result<Tensor> {
        let params = params(None, None);
        paged_attention(&self.q, &self.k, &self.v, &self.step, params, self.per_head())
    }

    /// A sequence as a batch of its own.
    fn alone(&self, seq: usize) -> Self {
        let rows = self.step.rows(seq);
        Self {
            q: self.q.narrow(0, rows.start, rows.len()).unwrap(),
            k: self.k.clone(),
            v: self.v.clone(),
            step: Step {
                block_tables: vec![self.step.block_tables[seq].clone()],
                cu_seqlens_q: vec![0, u32::try_from(rows.len()).unwrap()],
                positions: self.step.positions[rows].to_vec(),
                context_lens: vec![self.step.context_lens[seq]],
                ..Step::default()
            },
            sinks: self.sinks.clone(),
            slopes: self.slopes.clone(),
        }
    }

    /// Rows `range` of sequence 0 as a batch of their own, the context ending with them.
    fn rows(&self, first: usize, count: usize) -> Self {
        let end = self.step.positions[first + count - 1] + 1;
        Self {
            q: self.q.narrow(0, first, count).unwrap(),
            k: self.k.clone(),
            v: self.v.clone(),
            step: Step {
                positions: self.step.positions[first..first + count].to_vec(),
                attention_ends: self
                    .step
                    .attention_ends
                    .get(first..first + count)
                    .unwrap_or_default()
                    .to_vec(),
                attention_starts: self
                    .step
                    .attention_starts
                    .get(first..first + count)
                    .unwrap_or_default()
                    .to_vec(),
                block_tables: vec![self.step.block_tables[0].clone()],
                cu_seqlens_q: vec![0, u32::try_from(count).unwrap()],
                context_lens: vec![end],
                ..Step::default()
            },
            sinks: self.sinks.clone(),
            slopes: self.slopes.clone(),
        }
    }
}

#[test]
fn mixed_batches_equal_plain_attention() {
    let sequences = [(70, 70), (1, 1), (33, 1), (100, 30), (64, 0), (32, 32), (600, 600)];
    for shape in SHAPES {
        for format in [KvFormat::F32, KvFormat::Bf16, KvFormat::F16, KvFormat::Fp8] {
            let mut case = Case::new(shape, format, &sequences);
            // Queries are rounded there where levels multiply pairs; softmax weights are too, to eight bits.
            let rounds = format == KvFormat::Bf16;
            if rounds {
                case.q = case.q.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
            }
            for params in variants().into_iter().chain(two_sided()) {
                let expected = case.plainly(params);
                for level in Level::tested() {
                    let pairs = rounds && level.multiplies_pairs();
                    let bound = if pairs { 1.0 / 256.0 } else { 1e-5 };
                    assert_close(&case.at(level, params), &expected, bound);
                }
            }
        }
    }
}

#[test]
fn chunks_give_the_same_bits() {
    for shape in SHAPES {
        let whole = Case::new(shape, KvFormat::Bf16, &[(131, 131)]);
        for params in variants() {
            for level in Level::tested() {
                let all = whole.at(level, params);
                for chunk in [1, 5, 32, 33, 100] {
                    for first in (0..131).step_by(chunk) {
                        let count = chunk.min(131 - first);
                        let part = whole.rows(first, count).at(level, params);
                        let same = all.narrow(0, first, count).unwrap();
                        let what = format!("{shape:?} {params:?} {chunk} {}", level.name());
                        assert_eq!(bits(&part), bits(&same), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_that_see_behind_themselves_equal_plain_attention_in_any_chunk() {
    for shape in SHAPES {
        for format in [KvFormat::F32, KvFormat::F16] {
            let all = || Case::new(shape, format, &[(70, 70), (600, 600), (100, 30)]);
            let (plain, mut case) = (all(), all());
            let mut ends: Vec<u32> = case.step.positions.iter().map(|p| p + 1).collect();
            // The last is a picture of which the first tokens were computed before.
            for (rows, end) in [(20..52, 52), (70 + 240..70 + 300, 300), (670..685, 85)] {
                ends[rows].fill(end);
            }
            case.step.attention_ends = ends;
            // The second sees all from its beginning on, whatever the window is.
            let mut starts = case.step.positions.clone();
            starts[70 + 240..70 + 300].fill(200);
            case.step.attention_starts = starts;
            let causal = AttentionParams { to_named_end: false, ..params(None, None) };
            assert_eq!(bits(&case.plainly(causal)), bits(&plain.plainly(causal)));
            for params in variants().into_iter().chain([causal]) {
                let expected = case.plainly(params);
                for level in Level::tested() {
                    let whole = case.at(level, params);
                    assert_close(&whole, &expected, 1e-5);
                    for (first, count) in [(0, 20), (20, 32), (52, 18)] {
                        let part = case.rows(first, count).at(level, params);
                        let same = whole.narrow(0, first, count).unwrap();
                        assert_eq!(bits(&part), bits(&same), "{shape:?} {params:?} {first}");
                    }
                }
            }
        }
    }
}

#[test]
fn results_can_be_rounded_as_they_are_written() {
    for shape in SHAPES {
        let case = Case::new(shape, KvFormat::Bf16, &[(131, 131), (600, 3)]);
        let params = params(None, None);
        for level in Level::tested() {
            for threads in [1, 2] {
                let wide = case.on_threads(threads, level, params);
                let narrow = case.as_type(DType::BF16, threads, level, params);
                assert_eq!(narrow.dtype(), DType::BF16);
                let expected = wide.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
                assert_eq!(bits(&narrow.to_dtype(DType::F32).unwrap()), bits(&expected));
            }
        }
    }
}

#[test]
fn company_changes_no_bit() {
    for shape in SHAPES {
        let mixed = Case::new(shape, KvFormat::F32, &[(131, 40), (45, 45), (200, 1)]);
        let alone = mixed.rows(0, 40);
        for level in Level::tested() {
            let params = params(Some(50), None);
            let (mixed, alone) = (mixed.at(level, params), alone.at(level, params));
            assert_eq!(bits(&alone), bits(&mixed.narrow(0, 0, 40).unwrap()));
        }
    }
}

/// Sequences of which neighbours begin with the same blocks: two with two spans of the first's, one with one of
/// them, and one with none.
fn sharing(shape: Shape, format: KvFormat) -> Case {
    let mut case = Case::new(shape, format, &[(600, 1), (560, 4), (1100, 15), (700, 1), (530, 2)]);
    for (seq, shared) in [(1, 17), (2, 16), (3, 9)] {
        let blocks = case.step.block_tables[0][..shared].to_vec();
        case.step.block_tables[seq][..shared].copy_from_slice(&blocks);
    }
    case
}

#[test]
fn neighbours_that_begin_alike_are_read_together() {
    let together = |params: AttentionParams, most_rows: usize| {
        let case = sharing(SHAPES[2], KvFormat::F32);
        let heads = Heads { group: 2, kv: 2, dims: 32, most_rows };
        let plan = Plan::new(&case.step, params, heads, 1);
        let each = plan.queries.into_iter().map(|queries| (queries.seqs, queries.rows));
        each.collect::<Vec<_>>()
    };
    let alone = [(3..4, 20..21), (4..5, 21..23)];
    let all = together(params(None, None), 64);
    assert_eq!(all, [vec![(0..3, 0..20)], alone.to_vec()].concat());
    // Three rows of queries at most, wherever a sequence ends.
    let few = together(params(None, None), 6);
    assert_eq!((&few[..2], few.len()), (&[(0..2, 0..3), (1..3, 3..6)][..], 9));
    // Rows of the first two see the second span, those of the third don't.
    let near = together(params(Some(300), None), 64);
    assert_eq!(near, [vec![(0..2, 0..5), (2..3, 5..20)], alone.to_vec()].concat());
    assert_eq!(together(params(Some(20), None), 64).len(), 5);
    let behind = AttentionParams { ahead: 1, ..params(None, None) };
    assert_eq!(together(behind, 64).len(), 5);
}

#[test]
fn neighbours_that_begin_alike_have_the_bits_that_they_have_alone() {
    let shapes = [SHAPES[2], SHAPES[4], SHAPES[6], SHAPES[7], Shape::new(14, 2, 64)];
    for shape in shapes {
        for format in [KvFormat::F32, KvFormat::Bf16, KvFormat::F16, KvFormat::Fp8] {
            let mut case = sharing(shape, format);
            let rounds = format == KvFormat::Bf16;
            if rounds {
                case.q = case.q.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
            }
            for params in [params(None, None), params(Some(300), None), params(Some(33), None)] {
                let expected = case.plainly(params);
                for level in Level::tested() {
                    let together = case.at(level, params);
                    let pairs = rounds && level.multiplies_pairs();
                    assert_close(&together, &expected, if pairs { 1.0 / 256.0 } else { 1e-5 });
                    assert_eq!(bits(&case.on_threads(5, level, params)), bits(&together));
                    for seq in 0..case.step.context_lens.len() {
                        let rows = case.step.rows(seq);
                        let same = together.narrow(0, rows.start, rows.len()).unwrap();
                        let alone = case.alone(seq).at(level, params);
                        let what =
                            format!("{shape:?} {format:?} {params:?} {seq} {}", level.name());
                        assert_eq!(bits(&alone), bits(&same), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn positions_behind_a_query_are_never_read() {
    let shape = SHAPES[2];
    let case = Case::new(shape, KvFormat::F32, &[(40, 5)]);
    let mut poisoned = case.rows(0, 5);
    let block = case.step.block_tables[0][1] as usize;
    // `at` is the dimension of positions.
    let fill = |cache: &Tensor, at: usize| {
        let cache = cache.copy().unwrap();
        let poisoned = cache.narrow(0, block, 1).unwrap();
        let hidden = poisoned.narrow(at, 8, KV_BLOCK - 8).unwrap();
        let nan = (hidden.zeros_like().unwrap() + f64::NAN).unwrap();
        poisoned.slice_set(&nan, at, 8).unwrap();
        cache
    };
    (poisoned.k, poisoned.v) = (fill(&case.k, 3), fill(&case.v, 2));
    for level in Level::tested() {
        let params = params(None, None);
        assert_eq!(bits(&poisoned.at(level, params)), bits(&case.at(level, params)));
    }
}

#[test]
fn spans_are_merged_alike_by_any_chunk_and_any_number_of_threads() {
    for shape in [SHAPES[2], SHAPES[3], SHAPES[5], SHAPES[6], SHAPES[7]] {
        for context in [256, 257, 530, 775] {
            let whole = Case::new(shape, KvFormat::Bf16, &[(context, 40), (300, 1), (1024, 1)]);
            for window in [None, Some(1), Some(255), Some(300), Some(513)] {
                let params = params(window, None);
                let expected = whole.plainly(params);
                for level in Level::tested() {
                    let all = whole.at(level, params);
                    assert_close(&all, &expected, 1e-5);
                    assert_eq!(bits(&whole.on_threads(5, level, params)), bits(&all));
                    for chunk in [1, 19] {
                        for first in (0..40).step_by(chunk) {
                            let count = chunk.min(40 - first);
                            let part = whole.rows(first, count).on_threads(5, level, params);
                            let same = all.narrow(0, first, count).unwrap();
                            let what = format!("{shape:?} {context} {window:?} {chunk}");
                            assert_eq!(bits(&part), bits(&same), "{what} {}", level.name());
                        }
                    }
                }
            }
        }
    }
}

/// The same numbers as a quantized cache, in f32.
fn dequantized(level: Level, case: &Case, shape: Shape) -> Case {
    struct Read<'a> {
        keys: &'a [u8],
        values: &'a [u8],
        head_dim: usize,
        wide_keys: &'a mut [PerPosition],
        wide_values: &'a mut [Vector],
    }
    impl Kernel for Read<'_> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            u8::read_keys(l, self.keys, self.wide_keys);
            let rows = self.wide_values.chunks_exact_mut(self.head_dim / 16);
            for (offset, row) in rows.enumerate() {
                u8::read_value(l, self.values, self.head_dim, offset, row);
            }
        }
    }
    let head_dim = shape.key_dim;
    let (num_blocks, kv_heads, _, _) = case.k.dims4().unwrap();
    let bytes = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<u8>().unwrap();
    let (keys, values) = (bytes(&case.k), bytes(&case.v));
    let (mut k, mut v) = (Vec::new(), Vec::new());
    let head_block = KvFormat::Q8_0.head_len(head_dim) * KV_BLOCK;
    for (keys, values) in keys.chunks_exact(head_block).zip(values.chunks_exact(head_block)) {
        let mut wide_keys = vec![PerPosition::default(); head_dim];
        let mut wide_values = vec![Vector::default(); KV_BLOCK * head_dim / 16];
        level.run(Read {
            keys,
            values,
            head_dim,
            wide_keys: &mut wide_keys,
            wide_values: &mut wide_values,
        });
        k.extend_from_slice(wide_keys.as_flattened().as_flattened());
        v.extend_from_slice(wide_values.as_flattened());
    }
    let count = case.step.positions.len();
    let dims = |dims: [usize; 4]| candle_core::Shape::from_dims(&dims);
    let (k_dims, v_dims) = (
        dims(KvFormat::F32.key_dims(num_blocks, kv_heads, head_dim)),
        dims(KvFormat::F32.value_dims(num_blocks, kv_heads, head_dim)),
    );
    Case {
        k: Tensor::from_vec(k, k_dims, &Device::Cpu).unwrap(),
        v: Tensor::from_vec(v, v_dims, &Device::Cpu).unwrap(),
        ..case.rows(0, count)
    }
}

#[test]
fn a_quantized_cache_gives_the_bits_of_its_numbers_in_f32() {
    for shape in [Shape::new(4, 2, 32), Shape::new(14, 2, 64), Shape::new(3, 1, 96)] {
        for sequences in [(300, 1), (70, 70)] {
            let case = Case::new(shape, KvFormat::Q8_0, &[sequences]);
            for level in Level::tested() {
                let wide = dequantized(level, &case, shape);
                for params in variants() {
                    assert_eq!(bits(&case.at(level, params)), bits(&wide.at(level, params)));
                }
            }
        }
    }
}

#[test]
fn bad_batches_are_errors() {
    let good = || Case::new(SHAPES[2], KvFormat::F32, &[(40, 5), (10, 10)]);
    assert!(good().checked().is_ok());
    let refused = |change: fn(&mut Case), words: &str| {
        let mut case = good();
        change(&mut case);
        let message = case.checked().unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(|c| c.step.block_tables[1][0] = 99, "block 99 of a cache with 5 blocks");
    refused(|c| c.step.context_lens[0] = 65, "2 blocks for 65 positions");
    refused(|c| c.step.context_lens[1] = 9, "position 9 in a context of 9");
    refused(|c| c.step.cu_seqlens_q[1] = 16, "don't ascend");
    refused(|c| c.step.cu_seqlens_q[2] = 14, "don't ascend");
    refused(|c| c.step.cu_seqlens_q.truncate(1), "1 row bounds");
    refused(|c| c.step.positions.truncate(3), "3 positions");
    refused(|c| c.step.attention_ends = vec![1], "1 ends for");
    refused(|c| c.step.attention_starts = vec![1], "1 starts for 0 ends");
    refused(|c| c.step.attention_ends = vec![1000; c.step.positions.len()], "sees up to 1000");
    refused(|c| c.step.block_tables.truncate(1), "1 block tables");
    refused(|c| c.v = c.v.to_dtype(DType::BF16).unwrap(), "don't belong");
    refused(|c| c.sinks = Some(floats(&[0.0; 3], |x| x)), "3 numbers for 4 heads");
    refused(|c| c.q = c.q.narrow(1, 0, 3).unwrap(), "don't fit a cache");
    let none = AttentionParams { window: Some(0), ..params(None, None) };
    let case = good();
    assert!(
        paged_attention(&case.q, &case.k, &case.v, &case.step, none, PerHead::default()).is_err()
    );
}
