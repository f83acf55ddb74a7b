use candle_core::Device;

use super::super::random::{Random, assert_close, bits};
use super::*;

/// Sequences over one shuffled cache.
struct Case {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Vec<u32>,
    block_tables: Vec<Vec<u32>>,
    cu_seqlens_q: Vec<u32>,
    context_lens: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

const SHAPES: [Shape; 5] = [
    Shape { heads: 1, kv_heads: 1, head_dim: 1 },
    Shape { heads: 4, kv_heads: 4, head_dim: 12 },
    Shape { heads: 4, kv_heads: 2, head_dim: 16 },
    Shape { heads: 14, kv_heads: 2, head_dim: 40 },
    Shape { heads: 3, kv_heads: 1, head_dim: 128 },
];

fn params(window: Option<usize>, softcap: Option<f32>) -> AttentionParams {
    AttentionParams { scale: 0.3, softcap, window }
}

fn variants() -> [AttentionParams; 5] {
    [
        params(None, None),
        params(Some(1), None),
        params(Some(20), None),
        params(Some(33), Some(2.0)),
        params(Some(10_000), None),
    ]
}

impl Case {
    /// `(context, queries)` per sequence: the queries are the last positions.
    fn new(shape: Shape, dtype: DType, sequences: &[(u32, u32)]) -> Self {
        let mut random = Random::new(9);
        let num_blocks: u32 = sequences.iter().map(|s| s.0.div_ceil(32)).sum::<u32>() + 2;
        let mut blocks: Vec<u32> = (0..num_blocks).collect();
        random.shuffle(&mut blocks);
        let dims = (num_blocks as usize, KV_BLOCK, shape.kv_heads, shape.head_dim);
        let rows: u32 = sequences.iter().map(|s| s.1).sum();
        let mut case = Self {
            q: random.tensor((rows as usize, shape.heads, shape.head_dim)),
            k: random.tensor(dims).to_dtype(dtype).unwrap(),
            v: random.tensor(dims).to_dtype(dtype).unwrap(),
            positions: Vec::new(),
            block_tables: Vec::new(),
            cu_seqlens_q: vec![0],
            context_lens: Vec::new(),
        };
        for (context, queries) in sequences {
            case.positions.extend(context - queries..*context);
            let needed = context.div_ceil(32) as usize;
            case.block_tables.push(blocks.split_off(blocks.len() - needed));
            case.cu_seqlens_q.push(u32::try_from(case.positions.len()).unwrap());
            case.context_lens.push(*context);
        }
        case
    }

    fn ragged(&self) -> Ragged<'_> {
        Ragged {
            positions: &self.positions,
            block_tables: &self.block_tables,
            cu_seqlens_q: &self.cu_seqlens_q,
            context_lens: &self.context_lens,
        }
    }

    fn at(&self, level: Level, params: AttentionParams) -> Tensor {
        paged_attention_at(level, &self.q, &self.k, &self.v, self.ragged(), params).unwrap()
    }

    fn checked(&self) -> Result<Tensor> {
        paged_attention(&self.q, &self.k, &self.v, self.ragged(), params(None, None))
    }

    /// Rows `range` of sequence 0 as a batch of their own, the context ending with them.
    fn rows(&self, first: usize, count: usize) -> Self {
        let end = self.positions[first + count - 1] + 1;
        Self {
            q: self.q.narrow(0, first, count).unwrap(),
            k: self.k.clone(),
            v: self.v.clone(),
            positions: self.positions[first..first + count].to_vec(),
            block_tables: vec![self.block_tables[0].clone()],
            cu_seqlens_q: vec![0, u32::try_from(count).unwrap()],
            context_lens: vec![end],
        }
    }
}

#[test]
fn mixed_batches_equal_plain_attention() {
    let sequences = [(70, 70), (1, 1), (33, 1), (100, 30), (64, 0), (32, 32)];
    for shape in SHAPES {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let case = Case::new(shape, dtype, &sequences);
            for params in variants() {
                let expected =
                    portable::paged_attention(&case.q, &case.k, &case.v, case.ragged(), params);
                let expected = expected.unwrap();
                for level in Level::available() {
                    assert_close(&case.at(level, params), &expected, 1e-5);
                }
            }
        }
    }
}

#[test]
fn chunks_give_the_same_bits() {
    for shape in SHAPES {
        let whole = Case::new(shape, DType::BF16, &[(131, 131)]);
        for params in variants() {
            for level in Level::available() {
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
fn company_changes_no_bit() {
    for shape in SHAPES {
        let mixed = Case::new(shape, DType::F32, &[(131, 40), (45, 45), (200, 1)]);
        let alone = mixed.rows(0, 40);
        for level in Level::available() {
            let params = params(Some(50), None);
            let (mixed, alone) = (mixed.at(level, params), alone.at(level, params));
            assert_eq!(bits(&alone), bits(&mixed.narrow(0, 0, 40).unwrap()));
        }
    }
}

#[test]
fn positions_behind_a_query_are_never_read() {
    let shape = SHAPES[2];
    let case = Case::new(shape, DType::F32, &[(40, 5)]);
    let mut poisoned = case.rows(0, 5);
    let fill = |cache: &Tensor| {
        let mut values: Vec<f32> = cache.flatten_all().unwrap().to_vec1().unwrap();
        let block = case.block_tables[0][1] as usize;
        let row = shape.kv_heads * shape.head_dim;
        values[(block * KV_BLOCK + 8) * row..(block + 1) * KV_BLOCK * row].fill(f32::NAN);
        Tensor::from_vec(values, cache.shape(), &Device::Cpu).unwrap()
    };
    (poisoned.k, poisoned.v) = (fill(&case.k), fill(&case.v));
    for level in Level::available() {
        let params = params(None, None);
        assert_eq!(bits(&poisoned.at(level, params)), bits(&case.at(level, params)));
    }
}

#[test]
fn bad_batches_are_errors() {
    let good = || Case::new(SHAPES[2], DType::F32, &[(40, 5), (10, 10)]);
    assert!(good().checked().is_ok());
    let refused = |change: fn(&mut Case), words: &str| {
        let mut case = good();
        change(&mut case);
        let message = case.checked().unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(|c| c.block_tables[1][0] = 99, "block 99 of a cache with 5 blocks");
    refused(|c| c.context_lens[0] = 65, "2 blocks for 65 positions");
    refused(|c| c.context_lens[1] = 9, "position 9 in a context of 9");
    refused(|c| c.cu_seqlens_q[1] = 16, "don't ascend");
    refused(|c| c.cu_seqlens_q[2] = 14, "don't ascend");
    refused(|c| c.cu_seqlens_q.truncate(1), "1 row bounds");
    refused(|c| c.positions.truncate(3), "3 positions");
    refused(|c| c.block_tables.truncate(1), "1 block tables");
    refused(|c| c.v = c.v.to_dtype(DType::BF16).unwrap(), "differ");
    refused(|c| c.q = c.q.narrow(1, 0, 3).unwrap(), "don't fit a cache");
    let none = AttentionParams { window: Some(0), ..params(None, None) };
    let case = good();
    assert!(paged_attention(&case.q, &case.k, &case.v, case.ragged(), none).is_err());
}
