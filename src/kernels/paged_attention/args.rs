//! What attention is asked for, and what a query sees.

use std::ops::Range;

use crate::floats::Floats;
use crate::step::Step;

/// The operation's name in errors.
pub(super) const NAME: &str = "paged_attention";
/// Positions of a span, which are reduced on their own before spans are merged.
pub(super) const SPAN: usize = 256;

/// Parameters of attention that all queries of a call share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Factor of the scores, commonly `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// The cap of `cap * tanh(score / cap)`, applied to scaled scores.
    pub softcap: Option<f32>,
    /// A query sees this many positions, its own included; at least 1.
    pub window: Option<usize>,
    /// A query sees no position before the last multiple of this; at least 1.
    pub chunk: Option<usize>,
    /// A query sees so many positions behind its own too, as far as there are any: none where tokens
    /// are continued, all where a whole text is read at once.
    pub ahead: usize,
    /// Whether a query sees up to the end that the step names for it, if it names one.
    pub to_named_end: bool,
}

impl AttentionParams {
    /// Parameters of plain causal attention: no soft-cap, no window, no chunks.
    pub fn full(scale: f32) -> Self {
        let (softcap, window, chunk) = (None, None, None);
        Self { scale, softcap, window, chunk, ahead: 0, to_named_end: true }
    }

    /// The first position that a query at `position` sees.
    #[inline(always)]
    pub(super) fn first_seen(self, position: u32) -> usize {
        let end = position as usize + 1;
        let start = end.saturating_sub(self.window.unwrap_or(end));
        let chunk = self.chunk.map_or(0, |chunk| position as usize / chunk * chunk);
        start.max(chunk)
    }
}

/// Learned vectors `[H]` with an element for each query head.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerHead<'a> {
    /// A score that queries have besides those of positions, for a value of zero: Xiao et al.,
    /// "Efficient Streaming Language Models with Attention Sinks", 2023.
    pub sinks: Option<&'a Floats>,
    /// What a score loses with each position between query and key: Press et al., "Train Short,
    /// Test Long", 2021.
    pub slopes: Option<&'a Floats>,
}

/// The positions that one query sees.
#[derive(Clone, Copy)]
pub(super) struct Visible {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where queries of one sequence are, and how far they see behind themselves.
#[derive(Clone, Copy)]
pub(super) struct QueryPositions<'a> {
    positions: &'a [u32],
    /// As long, or empty: see [`Step::attention_ends`].
    ends: &'a [u32],
    /// As long, or empty: see [`Step::attention_starts`].
    starts: &'a [u32],
}

impl<'a> QueryPositions<'a> {
    /// Those of the rows of a step.
    pub(super) fn of(step: &'a Step, rows: Range<usize>) -> Self {
        let ends = step.attention_ends.get(rows.clone()).unwrap_or_default();
        let starts = step.attention_starts.get(rows.clone()).unwrap_or_default();
        Self { positions: &step.positions[rows], ends, starts }
    }

    /// Number of queries.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.positions.len()
    }

    /// The position of query `index`.
    #[inline(always)]
    pub(super) fn position(self, index: usize) -> u32 {
        self.positions[index]
    }

    /// The positions, if no query sees more behind its own than all do.
    #[cfg(feature = "metal")]
    pub(super) fn alike(self) -> Option<&'a [u32]> {
        self.ends.is_empty().then_some(self.positions)
    }

    /// The positions that query `index` sees of a sequence of `context` tokens.
    #[inline(always)]
    pub(super) fn visible(self, index: usize, context: usize, params: AttentionParams) -> Visible {
        let position = self.positions[index];
        let end = (position as usize + 1).saturating_add(params.ahead);
        let named = self.ends.get(index).filter(|_| params.to_named_end);
        let end = named.map_or(end, |own| end.max(*own as usize));
        let end = end.min(context);
        let first = params.first_seen(position);
        let named = self.starts.get(index).filter(|_| params.to_named_end);
        let first = named.map_or(first, |own| first.min(*own as usize));
        // A query behind all that can be seen may see nothing of its window.
        Visible { start: first.min(end), end }
    }
}

impl Visible {
    /// The positions in `range`, relative to its start.
    #[inline(always)]
    pub(super) fn within(self, range: Range<usize>) -> Range<usize> {
        let Range { start, end } = range;
        self.start.clamp(start, end) - start..self.end.clamp(start, end) - start
    }

    /// The spans that hold any of the positions; one where there are none.
    #[inline(always)]
    pub(super) fn spans(self) -> Range<usize> {
        let first = self.start / SPAN;
        first..self.end.div_ceil(SPAN).max(first + 1)
    }
}
