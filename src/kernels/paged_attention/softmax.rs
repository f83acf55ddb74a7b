//! How a row's scores of a span become softmax weights, relative to the largest of them.

use std::ops::Range;

use half::bf16;

use super::args::SPAN;
use super::tile::Tile;
use crate::cache::kv_element::{Stored, Vector};
use crate::cpu::{LANES, Lanes, math};

/// The scores that a row sees of a span, and what makes their weights: `e^(factor * score - largest)`.
pub(super) struct Softmax<'a> {
    /// The vectors that hold them; what else these hold is `-inf`.
    scores: &'a mut [Vector],
    factor: f32,
    /// The largest score times the factor.
    pub(super) largest: f32,
}

impl Softmax<'_> {
    /// Replaces the scores by their weights, and returns the sum of these.
    #[inline(always)]
    pub(super) fn weigh<L: Lanes>(self, l: L) -> f32 {
        let mut total = l.splat(0.0);
        for score in self.scores {
            let scaled = l.mul(l.load(score), l.splat(self.factor));
            let weights = math::exp(l, l.sub(scaled, l.splat(self.largest)));
            total = l.add(total, weights);
            l.store(weights, score);
        }
        l.sum(total)
    }

    /// Rounds the weights to `to`, and returns their sum before that. They keep eight bits, for which a shorter
    /// exponential will do.
    #[inline(always)]
    pub(super) fn weigh_narrow<L: Lanes>(self, l: L, to: &mut [bf16]) -> f32 {
        let mut total = l.splat(0.0);
        for (score, to) in self.scores.iter().zip(to.as_chunks_mut().0) {
            let below = l.mul_add(l.load(score), l.splat(self.factor), l.splat(-self.largest));
            let weights = math::exp_of_negative(l, below);
            total = l.add(total, weights);
            *to = l.narrow_normal_bf16(weights);
        }
        l.sum(total)
    }
}

/// The vectors of a span that hold any of the positions that are seen.
#[inline(always)]
pub(super) fn vectors(seen: &Range<usize>) -> Range<usize> {
    seen.start / LANES..seen.end.div_ceil(LANES)
}

impl<S: Stored> Tile<'_, S> {
    /// The largest of a row's scores, which are made those that a softmax is taken of but for their factor.
    #[inline(always)]
    pub(super) fn softmax<'a, L: Lanes>(
        &self,
        l: L,
        (span, row): (usize, usize),
        seen: &Range<usize>,
        scores: &'a mut [Vector],
    ) -> Softmax<'a> {
        let whole = vectors(seen);
        let factor = self.transform(l, (span, row), &whole, scores);
        let each = scores.as_flattened_mut();
        each[whole.start * LANES..seen.start].fill(f32::NEG_INFINITY);
        each[seen.end..whole.end * LANES].fill(f32::NEG_INFINITY);
        let scores = &mut scores[whole];
        let mut largest = l.splat(f32::NEG_INFINITY);
        for scores in &*scores {
            largest = l.max(largest, l.load(scores));
        }
        Softmax { factor, largest: factor * l.largest(largest), scores }
    }

    /// Does to scores what is more than multiplying them by a factor above zero, and returns the factor that is left.
    #[inline(always)]
    fn transform<L: Lanes>(
        &self,
        l: L,
        (span, row): (usize, usize),
        whole: &Range<usize>,
        scores: &mut [Vector],
    ) -> f32 {
        let (params, slopes) = (self.operands.params, self.operands.per_head.slopes);
        if params.softcap.is_none() && slopes.is_none() && params.scale > 0.0 {
            return params.scale;
        }
        for scores in &mut scores[whole.clone()] {
            let scaled = self.scaled(l, l.load(scores));
            l.store(scaled, scores);
        }
        if let Some(slopes) = slopes {
            self.subtract_distances(span, row, &slopes.host, whole, scores);
        }
        1.0
    }

    #[inline(always)]
    fn scaled<L: Lanes>(&self, l: L, scores: L::V) -> L::V {
        let scores = l.mul(scores, l.splat(self.operands.params.scale));
        match self.operands.params.softcap {
            Some(cap) => l.mul(math::tanh(l, l.div(scores, l.splat(cap))), l.splat(cap)),
            None => scores,
        }
    }

    /// Lowers a row's scores by the distance of each position from the row's own, times the slope
    /// of its head.
    #[inline(always)]
    fn subtract_distances(
        &self,
        span: usize,
        row: usize,
        slopes: &[f32],
        whole: &Range<usize>,
        scores: &mut [Vector],
    ) {
        let group = self.operands.group();
        let slope = slopes[self.kv_head * group + row % group];
        let own = self.positions.position(row / group) as usize;
        let first = span * SPAN + whole.start * LANES;
        for (i, score) in scores[whole.clone()].as_flattened_mut().iter_mut().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
            let distance = own.abs_diff(first + i) as f32;
            *score -= slope * distance;
        }
    }
}
