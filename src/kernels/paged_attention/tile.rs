//! One tile: some query rows of one sequence, for one KV head and the query heads that share it,
//! over some spans of its context.

use std::ops::Range;

use super::args::{AttentionParams, PerHead, QueryPositions, SPAN, Visible};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::Stored;
use crate::cache::kv_format::CacheShape;
use crate::cpu::LANES;
#[cfg(target_arch = "x86_64")]
use crate::cpu::amx::Amx;

/// Vectors of a span's positions.
pub(super) const SPAN_VECTORS: usize = SPAN / LANES;

/// What all tiles of a call read.
pub(super) struct Operands<'a, S> {
    /// `[T, heads, key_dim]`
    pub(super) q: &'a [f32],
    pub(super) k: &'a [S],
    pub(super) v: &'a [S],
    pub(super) params: AttentionParams,
    pub(super) per_head: PerHead<'a>,
    pub(super) heads: usize,
    pub(super) shape: CacheShape,
    /// Whether the level has tile registers.
    #[cfg(target_arch = "x86_64")]
    pub(super) amx: Option<Amx>,
}

impl<S> Operands<'_, S> {
    /// Query heads that share a KV head.
    #[inline(always)]
    pub(super) fn group(&self) -> usize {
        self.heads / self.shape.kv_heads
    }
}

/// A tile; row `r` of the tile is query `r / group` and head `r % group` of the group.
pub(super) struct Tile<'a, S> {
    pub(super) operands: &'a Operands<'a, S>,
    /// Row of the first query in `q`.
    pub(super) first_row: usize,
    /// Rows before the tile's among those whose queries were rounded together.
    pub(super) rounded_before: usize,
    /// Positions of the tile's queries.
    pub(super) positions: QueryPositions<'a>,
    /// Tokens of their sequence.
    pub(super) context: usize,
    pub(super) blocks: &'a [u32],
    pub(super) kv_head: usize,
    pub(super) spans: Range<usize>,
}

impl<S: Stored> Tile<'_, S> {
    /// Rows of scores: a query for each head of the group.
    #[inline(always)]
    pub(super) fn rows(&self) -> usize {
        self.positions.len() * self.operands.group()
    }

    #[inline(always)]
    pub(super) fn visible(&self, row: usize) -> Visible {
        let query = row / self.operands.group();
        self.positions.visible(query, self.context, self.operands.params)
    }

    /// The stored keys of the tile's head in a block of the sequence.
    #[inline(always)]
    pub(super) fn keys(&self, block: usize) -> &[S] {
        self.stored(self.operands.k, self.operands.shape.key_block(), block)
    }

    /// The stored values of the tile's head in a block of the sequence.
    #[inline(always)]
    pub(super) fn values(&self, block: usize) -> &[S] {
        self.stored(self.operands.v, self.operands.shape.value_block(), block)
    }

    #[inline(always)]
    fn stored<'c>(&self, cache: &'c [S], len: usize, block: usize) -> &'c [S] {
        let Some(block) = self.blocks.get(block) else { return &[] };
        let first = (*block as usize * self.operands.shape.kv_heads + self.kv_head) * len;
        &cache[first..first + len]
    }
}

/// Whether a row sees anything of a block of the span.
#[inline(always)]
pub(super) fn meets(seen: &Range<usize>, block: usize) -> bool {
    let start = block * KV_BLOCK;
    seen.start < start + KV_BLOCK && seen.end > start && !seen.is_empty()
}

/// The part of a span's range that lies in the block at `start`, relative to it.
#[inline(always)]
pub(super) fn clipped(range: &Range<usize>, start: usize) -> Range<usize> {
    let clip = |position: usize| position.clamp(start, start + KV_BLOCK) - start;
    clip(range.start)..clip(range.end)
}

/// The positions of the block at `start` that all rows see; relative to it.
#[inline(always)]
pub(super) fn common(seen: &[Range<usize>], start: usize) -> Range<usize> {
    let mut common = 0..KV_BLOCK;
    for seen in seen {
        let seen = clipped(seen, start);
        common = common.start.max(seen.start)..common.end.min(seen.end);
    }
    common
}
