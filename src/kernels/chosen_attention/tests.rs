//! Attention to chosen positions beside plain products, and beside attention to all of them.

use candle_core::{DType, Device};

use super::*;
use crate::indexer::SelectedBlocks;
use crate::kv_write::{KvCache, Projections, Rotation, kv_write};
use crate::random::{Random, assert_close, bits};

const KEY_DIM: usize = 64;
const VALUE_DIM: usize = 64;
const OWN: usize = 32;
const FORMATS: [KvFormat; 5] =
    [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Fp8, KvFormat::Q8_0];

/// Two sequences, of which the last 3 and 2 tokens are queries.
struct Case {
    q: Tensor,
    cache: [Tensor; 2],
    step: Step,
}

impl Case {
    /// Of 70 and 45 tokens, over a cache with one key head.
    fn new(format: KvFormat) -> Self {
        let step = Step {
            positions: vec![67, 68, 69, 43, 44],
            cu_seqlens_q: vec![0, 3, 5],
            context_lens: vec![70, 45],
            block_tables: vec![vec![4, 0, 5], vec![1, 3]],
            ..Step::default()
        };
        Self::of(format, step, (6, [3, 1]), Random::new(3))
    }

    /// Of 200 and 145 tokens, over a cache with two key heads.
    fn with_key_heads(format: KvFormat) -> Self {
        let step = Step {
            positions: vec![197, 198, 199, 143, 144],
            cu_seqlens_q: vec![0, 3, 5],
            context_lens: vec![200, 145],
            block_tables: vec![vec![4, 0, 5, 11, 10, 2, 7], vec![1, 3, 9, 6, 8]],
            ..Step::default()
        };
        Self::of(format, step, (12, [6, 2]), Random::new(4))
    }

    /// Random queries of some heads, over a cache with so many blocks and key heads.
    fn of(
        format: KvFormat,
        step: Step,
        (blocks, [heads, kv_heads]): (usize, [usize; 2]),
        mut random: Random,
    ) -> Self {
        let tokens = blocks * KV_BLOCK;
        let cache = [
            format.key_dims(blocks, kv_heads, KEY_DIM),
            format.value_dims(blocks, kv_heads, VALUE_DIM),
        ];
        let cache = cache.map(|dims| format.zeros(dims, &Device::Cpu).unwrap());
        let [k, v] = [KEY_DIM, VALUE_DIM].map(|dim| random.tensor((tokens, kv_heads, dim)));
        let none = Tensor::zeros((tokens, 0), DType::F32, &Device::Cpu).unwrap();
        let slots: Vec<u32> = (0..u32::try_from(tokens).unwrap()).collect();
        let rotation = Rotation { cos: &none, sin: &none, norms: None };
        let to = KvCache { k: &cache[0], v: &cache[1] };
        kv_write(Projections { q: &k, k: &k, v: &v }, rotation, to, slots[..].into()).unwrap();
        Self { q: random.tensor((5, heads, KEY_DIM)), cache, step }
    }

    fn chosen(&self, rows: Vec<Option<Vec<u32>>>) -> Result<Tensor> {
        let Self { q, cache: [k, v], step } = self;
        let (params, rows) = (AttentionParams::full(0.2), SelectedTokens::of_rows(rows));
        paged_attention_chosen(q, [k, v], step, params, PerHead::default(), (&rows, OWN))
    }

    fn whole(&self) -> Tensor {
        let Self { q, cache: [k, v], step } = self;
        let params = AttentionParams::full(0.2);
        let whole = paged_attention(q, k, v, step, params, PerHead::default()).unwrap();
        whole.narrow(2, 0, OWN).unwrap().contiguous().unwrap()
    }
}

#[test]
fn all_positions_chosen_give_the_bits_of_no_choice() {
    for format in FORMATS {
        let case = Case::new(format);
        let all = [68, 69, 70, 44, 45].map(|seen| Some((0..seen).collect())).to_vec();
        let some = vec![None, None, Some((0..70).collect()), None, Some((0..45).collect())];
        let whole = bits(&case.whole());
        for rows in [all, some, vec![None; 5], Vec::new()] {
            assert_eq!(bits(&case.chosen(rows).unwrap()), whole, "{format:?}");
        }
    }
}

#[test]
fn what_is_not_chosen_is_not_seen() {
    let case = Case::new(KvFormat::F32);
    let seen = [vec![0, 3, 40, 67], (5..50).collect(), vec![69], vec![1, 2], (0..44).collect()];
    let found = case.chosen(seen.clone().map(Some).to_vec()).unwrap();
    let keys = case.cache[0].squeeze(1).unwrap().transpose(1, 2).unwrap();
    let values = case.cache[1].squeeze(1).unwrap();
    for (row, positions) in seen.iter().enumerate() {
        let table = &case.step.block_tables[usize::from(row > 2)];
        let each = |cache: &Tensor| {
            let of = |position: &u32| {
                let block = table[*position as usize / KV_BLOCK] as usize;
                let block = cache.narrow(0, block, 1).unwrap().squeeze(0).unwrap();
                block.narrow(0, *position as usize % KV_BLOCK, 1).unwrap()
            };
            Tensor::cat(&positions.iter().map(of).collect::<Vec<_>>(), 0).unwrap()
        };
        let q = case.q.narrow(0, row, 1).unwrap().squeeze(0).unwrap();
        let scores = (q.matmul(&each(&keys).t().unwrap()).unwrap() * 0.2).unwrap();
        let largest = scores.max_keepdim(1).unwrap();
        let weights = scores.broadcast_sub(&largest).unwrap().exp().unwrap();
        let weights = weights.broadcast_div(&weights.sum_keepdim(1).unwrap()).unwrap();
        let values = each(&values).narrow(1, 0, OWN).unwrap().contiguous().unwrap();
        let expected = weights.matmul(&values).unwrap();
        assert_close(&found.narrow(0, row, 1).unwrap().squeeze(0).unwrap(), &expected, 1e-5);
    }
}

#[test]
fn choices_that_do_not_fit_are_refused() {
    let case = Case::new(KvFormat::F32);
    let refused = |first: Vec<u32>, count: usize| {
        let mut rows = vec![None; count];
        rows[0] = Some(first);
        case.chosen(rows).unwrap_err().to_string()
    };
    assert!(refused(vec![0], 4).contains("for 4 queries"));
    for wrong in [vec![], vec![68], vec![3, 2], vec![2, 2]] {
        assert!(refused(wrong, 5).contains("the query at 67"));
    }
}

#[test]
fn all_blocks_chosen_give_the_bits_of_no_choice() {
    for format in FORMATS {
        let Case { q, cache: [k, v], step } = Case::with_key_heads(format);
        let params = AttentionParams::full(0.2);
        let whole = paged_attention(&q, &k, &v, &step, params, PerHead::default()).unwrap();
        let all = |seen: u32| Some(vec![(0..seen.div_ceil(64)).collect::<Vec<u32>>(); 2]);
        let every = [198, 199, 200, 144, 145].map(all).to_vec();
        let some = vec![None, all(199), None, None, all(145)];
        for rows in [every, some, vec![None; 5]] {
            let chosen = SelectedBlocks::of_rows(rows, 64);
            let found = paged_attention_blocks(&q, [&k, &v], &step, params, &chosen).unwrap();
            assert_eq!(bits(&found), bits(&whole), "{format:?}");
        }
    }
}

#[test]
fn each_key_head_sees_its_own_blocks() {
    let Case { q, cache: [k, v], step } = Case::with_key_heads(KvFormat::F32);
    let params = AttentionParams::full(0.2);
    let seen: Vec<Option<Vec<Vec<u32>>>> = vec![
        Some(vec![vec![0, 3], vec![1, 2]]),
        None,
        Some(vec![vec![2, 3], vec![3]]),
        Some(vec![vec![0], vec![0, 1, 2]]),
        Some(vec![vec![1, 2]]),
    ];
    let chosen = SelectedBlocks::of_rows(seen.clone(), 64);
    let found = paged_attention_blocks(&q, [&k, &v], &step, params, &chosen).unwrap();
    for head in 0..2 {
        // The same positions, one by one, over a cache of this head alone.
        let own = |cache: &Tensor| cache.narrow(1, head, 1).unwrap().contiguous().unwrap();
        let rows = seen.iter().zip(&step.positions).map(|(blocks, position)| {
            let blocks = blocks.as_ref()?;
            let blocks = &blocks[head * blocks.len() / 2];
            let tokens = blocks.iter().flat_map(|block| block * 64..(block + 1) * 64);
            Some(tokens.filter(|token| token <= position).collect())
        });
        let rows = SelectedTokens::of_rows(rows.collect());
        let q = q.narrow(1, head * 3, 3).unwrap().contiguous().unwrap();
        let (per_head, cache) = (PerHead::default(), [&own(&k), &own(&v)]);
        let expected =
            paged_attention_chosen(&q, cache, &step, params, per_head, (&rows, VALUE_DIM)).unwrap();
        assert_close(&found.narrow(1, head * 3, 3).unwrap(), &expected, 1e-6);
    }
}

#[test]
fn blocks_that_can_not_be_seen_are_errors() {
    let Case { q, cache: [k, v], step } = Case::with_key_heads(KvFormat::F32);
    let run = |blocks: Vec<Vec<u32>>, rows: usize, params| {
        let mut all = vec![None; rows];
        all[rows - 1] = Some(blocks);
        let chosen = SelectedBlocks::of_rows(all, 64);
        paged_attention_blocks(&q, [&k, &v], &step, params, &chosen)
    };
    let params = AttentionParams::full(0.2);
    assert!(run(vec![vec![0, 1]], 5, params).is_ok());
    // Behind the query, in no order, none, for three heads of two, of another step, beside a window.
    assert!(run(vec![vec![0, 3]], 5, params).is_err());
    assert!(run(vec![vec![1, 0]], 5, params).is_err());
    assert!(run(vec![vec![]], 5, params).is_err());
    assert!(run(vec![vec![0]; 3], 5, params).is_err());
    assert!(run(vec![vec![0]], 4, params).is_err());
    assert!(run(vec![vec![0]], 5, AttentionParams { window: Some(3), ..params }).is_err());
}
