//! Blocks of its context that each query of a sparse attention sees, chosen for each of the indexer's heads by itself.
//!
//! MiniMax, "MiniMax-M3", 2026. A few heads of queries meet one key of each token. A block's score is the largest
//! product of the query with a key of it, up to the query's own token; a head sees the blocks with the largest scores,
//! of equal ones the earlier, and always the last ones up to the query's own.
//!
//! The keys are those of a KV cache with one head. A block's score depends on its keys alone: the same whatever else is
//! computed.

use std::ops::Range;

use candle_core::{DType, Result, Tensor, bail};
use float8::F8E4M3;
use half::{bf16, f16};

use super::args::selects_on;
use super::queries::{Chooser, Query, best, chosen_rows};
use crate::backend::cpu_level;
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{PerPosition, Stored, Vector};
use crate::cache::kv_format::KvFormat;
use crate::cpu::{Kernel, LANES, Level, Products};
use crate::step::Step;
use crate::storage::read;

const NAME: &str = "select_blocks";

/// How many blocks a query sees, and which ones in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockChoice {
    /// Tokens of a block: a multiple of those of the cache's blocks.
    pub size: usize,
    /// Blocks that each head sees, at most.
    pub count: usize,
    /// How many of the last blocks up to the query's own are among them.
    pub local: usize,
}

impl BlockChoice {
    /// Whether the query at this position doesn't see all blocks up to its own.
    fn leaves_out(self, position: u32) -> bool {
        position as usize / self.size >= self.count
    }
}

/// The blocks that the queries of a step see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedBlocks {
    /// Of each row of the step and each head the blocks, ascending; `None`: all up to the row's own. Empty where all
    /// rows see all.
    rows: Vec<Option<Vec<Vec<u32>>>>,
    /// Tokens of a block.
    size: usize,
}

impl SelectedBlocks {
    /// All queries see all blocks up to their own.
    pub fn all() -> Self {
        Self::default()
    }

    /// The blocks that the heads of each row see.
    pub(crate) fn rows(&self) -> &[Option<Vec<Vec<u32>>>] {
        &self.rows
    }

    /// Tokens of a block.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

/// The blocks that each head of the `queries [T, H, D]` of a step, rotated and in f32, sees by the `keys` of a cache
/// with one head of as many elements.
///
/// # Errors
///
/// Shapes that don't fit, a row outside of its sequence, a block outside of the cache, or a device without kernels.
pub fn select_blocks(
    queries: &Tensor,
    keys: &Tensor,
    step: &Step,
    choice: BlockChoice,
) -> Result<SelectedBlocks> {
    let BlockChoice { size, count, .. } = choice;
    if count == 0 || size == 0 || !size.is_multiple_of(KV_BLOCK) {
        bail!("{NAME}: {count} blocks of {size} tokens, expected some of a multiple of {KV_BLOCK}");
    }
    let (rows, heads, dim) = queries.dims3()?;
    let format = KvFormat::of_cache(keys)?;
    let dims = keys.dims();
    if heads == 0 || queries.dtype() != DType::F32 || dims != format.key_dims(dims[0], 1, dim) {
        bail!("{NAME}: queries {:?} for keys {dims:?} of one head", queries.dims());
    }
    step.check_attention(rows, dims[0], false)?;
    if !step.positions.iter().any(|position| choice.leaves_out(*position)) {
        return Ok(SelectedBlocks::all());
    }
    if !selects_on(queries.device()) {
        bail!("{NAME}: blocks are selected on the CPU alone, there is no kernel for GPUs");
    }
    select(cpu_level(), queries, (keys, format), step, choice)
}

/// Selects with checked arguments.
fn select(
    level: Level,
    queries: &Tensor,
    (keys, format): (&Tensor, KvFormat),
    step: &Step,
    choice: BlockChoice,
) -> Result<SelectedBlocks> {
    let (_, heads, dim) = queries.dims3()?;
    let elements = queries.flatten_all()?.to_vec1::<f32>()?;
    let stored = format.head_len(dim) * KV_BLOCK;
    let call = Call { level, queries: &elements, heads, dim, keys, stored, step, choice };
    let rows = match format {
        KvFormat::F32 => call.run::<f32>(),
        KvFormat::F16 => call.run::<f16>(),
        KvFormat::Bf16 => call.run::<bf16>(),
        KvFormat::Fp8 => call.run::<F8E4M3>(),
        KvFormat::Q8_0 => call.run::<u8>(),
    }?;
    Ok(SelectedBlocks { rows, size: choice.size })
}

struct Call<'a> {
    level: Level,
    /// `[T, H, D]`
    queries: &'a [f32],
    heads: usize,
    dim: usize,
    keys: &'a Tensor,
    /// Stored elements of the keys of a block of the cache.
    stored: usize,
    step: &'a Step,
    choice: BlockChoice,
}

impl Call<'_> {
    fn run<S: Stored>(&self) -> Result<Vec<Option<Vec<Vec<u32>>>>> {
        let stored = read(NAME, self.keys);
        let keys = stored.contiguous::<S>()?;
        Ok(chosen_rows(&Blocks { call: self, keys }, self.step))
    }
}

/// What chooses blocks.
struct Blocks<'a, S> {
    call: &'a Call<'a>,
    keys: &'a [S],
}

impl<S: Stored> Chooser for Blocks<'_, S> {
    /// Of each head the blocks, ascending.
    type Chosen = Vec<Vec<u32>>;

    const RUN: usize = 8;

    fn heads(&self) -> usize {
        self.call.heads
    }

    fn parts(&self, seen: usize) -> usize {
        seen.div_ceil(self.call.choice.size)
    }

    fn count(&self) -> usize {
        self.call.choice.count
    }

    fn score(&self, query: Query<'_>, blocks: Range<usize>, out: &mut [f32]) {
        let Query { row, seen, table, .. } = query;
        let Call { level, queries, heads, dim, stored, choice, .. } = *self.call;
        let own = &queries[row * heads * dim..(row + 1) * heads * dim];
        let (keys, pages) = (self.keys, choice.size / KV_BLOCK);
        level.run(Scores { own, dim, keys, stored, table, pages, seen, blocks, out });
    }

    fn choose(&self, _: Query<'_>, scores: &[f32]) -> Vec<Vec<u32>> {
        let Call { heads, choice: BlockChoice { count, local, .. }, .. } = *self.call;
        let blocks = scores.len() / heads;
        let of_head = |head: usize| {
            let kept = |block: usize| block + local >= blocks;
            let own = scores[head..].iter().step_by(heads).enumerate();
            let own = own.map(|(i, score)| if kept(i) { f32::INFINITY } else { *score });
            best(&own.collect::<Vec<f32>>(), count)
        };
        (0..heads).map(of_head).collect()
    }
}

/// The scores that one query's heads give to some blocks.
struct Scores<'a, S> {
    /// `[heads, dim]`
    own: &'a [f32],
    dim: usize,
    keys: &'a [S],
    /// Stored elements of the keys of a block of the cache.
    stored: usize,
    table: &'a [u32],
    /// Blocks of the cache in one that is chosen.
    pages: usize,
    /// Tokens up to the query's own.
    seen: usize,
    blocks: Range<usize>,
    /// `[blocks, heads]`
    out: &'a mut [f32],
}

impl<S: Stored> Kernel for Scores<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { own, dim, keys, stored, table, pages, seen, blocks, out } = self;
        let heads = own.len() / dim;
        let mut page_keys = vec![PerPosition::default(); dim];
        for (block, out) in blocks.zip(out.chunks_exact_mut(heads)) {
            out.fill(f32::NEG_INFINITY);
            let last = seen.div_ceil(KV_BLOCK).min((block + 1) * pages);
            let first = block * pages;
            for (page, at) in (first..).zip(&table[first..last]) {
                let at = *at as usize * stored;
                S::read_keys(l, &keys[at..at + stored], &mut page_keys);
                let count = (seen - page * KV_BLOCK).min(KV_BLOCK);
                for (query, best) in own.chunks_exact(dim).zip(&mut *out) {
                    let products = products(l, query, &page_keys);
                    let products = &products.as_flattened()[..count];
                    *best = products.iter().copied().fold(*best, f32::max);
                }
            }
        }
    }
}

/// Products of a query with the keys of a block of the cache.
#[inline(always)]
fn products<L: Products>(l: L, query: &[f32], keys: &[PerPosition]) -> PerPosition {
    let mut sums = [l.splat(0.0); KV_BLOCK / LANES];
    for (x, keys) in query.iter().zip(keys) {
        let x = l.splat(*x);
        for (sum, key) in sums.iter_mut().zip(keys) {
            *sum = l.mul_add(l.load(key), x, *sum);
        }
    }
    let mut all = [Vector::default(); KV_BLOCK / LANES];
    for (sum, to) in sums.into_iter().zip(&mut all) {
        l.store(sum, to);
    }
    all
}

#[cfg(test)]
impl SelectedBlocks {
    pub(crate) fn of_rows(rows: Vec<Option<Vec<Vec<u32>>>>, size: usize) -> Self {
        Self { rows, size }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::kv_write::{KvCache, Projections, Rotation, kv_write};
    use crate::random::Random;

    const HEADS: usize = 3;
    const DIM: usize = 32;
    const FORMATS: [KvFormat; 4] = [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Fp8];

    /// Small whole numbers, which every format but one stores exactly.
    fn integers(random: &mut Random, shape: (usize, usize, usize)) -> Tensor {
        let count = shape.0 * shape.1 * shape.2;
        #[expect(clippy::cast_precision_loss, reason = "small integers")]
        let numbers: Vec<f32> = (0..count).map(|_| random.below(17) as f32 - 8.0).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
    }

    /// Two sequences of 300 and 200 tokens, of which the last 3 and 2 are queries.
    struct Case {
        queries: Tensor,
        keys: Tensor,
        written: Vec<Vec<f32>>,
        step: Step,
    }

    impl Case {
        fn new(format: KvFormat) -> Self {
            let mut random = Random::new(7);
            let mut table: Vec<u32> = (0..18).collect();
            random.shuffle(&mut table);
            let tokens = table.len() * KV_BLOCK;
            let written = integers(&mut random, (tokens, 1, DIM));
            let zeros = |dims: [usize; 4]| format.zeros(dims, &Device::Cpu).unwrap();
            let keys = zeros(format.key_dims(table.len(), 1, DIM));
            let values = zeros(format.value_dims(table.len(), 1, DIM));
            let none = Tensor::zeros((tokens, 0), DType::F32, &Device::Cpu).unwrap();
            let rotation = Rotation { cos: &none, sin: &none, norms: None };
            let slots: Vec<u32> = (0..u32::try_from(tokens).unwrap()).collect();
            let new = Projections { q: &written, k: &written, v: &written };
            let to = KvCache { k: &keys, v: &values };
            kv_write(new, rotation, to, slots[..].into()).unwrap();
            let step = Step {
                positions: vec![297, 298, 299, 198, 199],
                cu_seqlens_q: vec![0, 3, 5],
                context_lens: vec![300, 200],
                block_tables: vec![table[..10].to_vec(), table[10..17].to_vec()],
                ..Step::default()
            };
            let queries = integers(&mut random, (5, HEADS, DIM));
            let written = written.squeeze(1).unwrap().to_vec2().unwrap();
            Self { queries, keys, written, step }
        }

        fn select(&self, level: Level, format: KvFormat, choice: BlockChoice) -> SelectedBlocks {
            select(level, &self.queries, (&self.keys, format), &self.step, choice).unwrap()
        }

        /// The blocks of a row and a head, by scores that are added up plainly.
        fn expected(&self, row: usize, head: usize, choice: BlockChoice) -> Vec<u32> {
            let query: Vec<f32> =
                self.queries.get(row).unwrap().get(head).unwrap().to_vec1().unwrap();
            let (table, own) =
                (&self.step.block_tables[usize::from(row > 2)], self.step.positions[row] as usize);
            let score = |position: usize| {
                let slot = table[position / KV_BLOCK] as usize * KV_BLOCK + position % KV_BLOCK;
                query.iter().zip(&self.written[slot]).map(|(a, b)| a * b).sum::<f32>()
            };
            let blocks = 0..=own / choice.size;
            let mut scored: Vec<(f32, usize)> = blocks
                .map(|block| {
                    let tokens = block * choice.size..=own.min((block + 1) * choice.size - 1);
                    let best = tokens.map(score).fold(f32::MIN, f32::max);
                    let kept = block + choice.local > own / choice.size;
                    (if kept { f32::INFINITY } else { best }, block)
                })
                .collect();
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            scored.truncate(choice.count);
            let mut blocks: Vec<u32> =
                scored.into_iter().map(|(_, block)| u32::try_from(block).unwrap()).collect();
            blocks.sort_unstable();
            blocks
        }
    }

    #[test]
    fn blocks_with_the_largest_scores_and_the_last_ones_are_seen() {
        for format in FORMATS {
            let case = Case::new(format);
            for (size, count, local) in [(32, 4, 1), (64, 3, 0), (32, 5, 2), (96, 2, 1)] {
                let choice = BlockChoice { size, count, local };
                for level in Level::available() {
                    let found = case.select(level, format, choice);
                    for (row, heads) in found.rows().iter().enumerate() {
                        let heads = heads.as_ref().unwrap();
                        for (head, blocks) in heads.iter().enumerate() {
                            assert_eq!(*blocks, case.expected(row, head, choice), "{format:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn who_has_no_more_blocks_than_are_seen_sees_all() {
        let case = Case::new(KvFormat::F32);
        let choose = |count| {
            let choice = BlockChoice { size: 32, count, local: 1 };
            select_blocks(&case.queries, &case.keys, &case.step, choice)
        };
        assert_eq!(choose(10).unwrap(), SelectedBlocks::all());
        let some = choose(7).unwrap();
        assert!(some.rows()[..3].iter().all(Option::is_some));
        assert!(some.rows()[3..].iter().all(Option::is_none));
        assert!(choose(0).is_err());
        let odd = BlockChoice { size: 40, count: 2, local: 1 };
        assert!(select_blocks(&case.queries, &case.keys, &case.step, odd).is_err());
        let narrow = case.queries.narrow(2, 0, 16).unwrap();
        let choice = BlockChoice { size: 32, count: 2, local: 1 };
        assert!(select_blocks(&narrow, &case.keys, &case.step, choice).is_err());
    }
}
