//! What attention is asked for, and what a query sees.

use std::ops::Range;

use crate::floats::Floats;

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
}

impl AttentionParams {
    /// Parameters of plain causal attention: no soft-cap, no window, no chunks.
    pub fn full(scale: f32) -> Self {
        Self { scale, softcap: None, window: None, chunk: None, ahead: 0 }
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

impl Visible {
    /// The positions that a query at `position` sees of a sequence of `context` tokens.
    #[inline(always)]
    pub(super) fn of(position: u32, context: usize, params: AttentionParams) -> Self {
        let end = (position as usize + 1).saturating_add(params.ahead).min(context);
        Self { start: params.first_seen(position), end }
    }

    /// The positions in `range`, relative to its start.
    #[inline(always)]
    pub(super) fn within(self, range: Range<usize>) -> Range<usize> {
        let Range { start, end } = range;
        self.start.clamp(start, end) - start..self.end.clamp(start, end) - start
    }

    /// The spans that hold any of the positions.
    #[inline(always)]
    pub(super) fn spans(self) -> Range<usize> {
        self.start / SPAN..self.end.div_ceil(SPAN)
    }
}
