//! How a call is cut into pieces that threads claim: tiles of query rows and, where a tile is
//! long, runs of its spans. Results don't depend on the cut.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use super::args::{AttentionParams, QueryPositions, SPAN};
use crate::step::Step;

/// Query rows times heads of one tile, at most (a single row may have more heads).
const TILE_ROWS: usize = 64;
/// Multiply-adds of a piece below which claiming it costs more than it brings.
const SMALLEST: usize = 1 << 17;
/// Pieces for each thread, about.
const PIECES_PER_THREAD: usize = 8;

/// Query rows of one sequence that are computed together.
pub(super) struct Queries {
    pub(super) seq: usize,
    /// The rows of `q`.
    pub(super) rows: Range<usize>,
    /// Spans that any of them sees.
    pub(super) spans: Range<usize>,
}

/// A piece of the work, which one thread claims.
pub(super) struct Piece {
    /// Index into the plan's queries.
    pub(super) queries: usize,
    pub(super) kv_head: usize,
    pub(super) spans: Range<usize>,
    /// Index into the plan's joints, if the tile has other pieces.
    pub(super) joint: Option<usize>,
    /// Multiply-adds, about.
    cost: usize,
}

/// Pieces of one tile that wait for each other.
pub(super) struct Joint {
    /// Pieces that are not done yet.
    pub(super) left: AtomicUsize,
    /// Where the tile's records start, in rows.
    pub(super) first_record: usize,
}

/// All pieces of a call, the longest first.
pub(super) struct Plan {
    pub(super) queries: Vec<Queries>,
    pub(super) pieces: Vec<Piece>,
    pub(super) joints: Vec<Joint>,
    /// Rows of records that the joints need.
    pub(super) records: usize,
}

/// Heads of a call.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    /// Query heads for each KV head.
    pub(super) group: usize,
    /// KV heads.
    pub(super) kv: usize,
    /// Elements of a key and of a value.
    pub(super) dims: usize,
}

impl Plan {
    pub(super) fn new(step: &Step, params: AttentionParams, heads: Heads, threads: usize) -> Self {
        let queries = queries(step, params, heads.group);
        let work = |queries: &Queries| {
            let positions = queries.spans.len() * SPAN;
            queries.rows.len() * heads.group * heads.dims * positions
        };
        let total = queries.iter().map(work).sum::<usize>() * heads.kv;
        let target = (total / (threads * PIECES_PER_THREAD)).max(SMALLEST);
        let mut plan = Self { queries, pieces: Vec::new(), joints: Vec::new(), records: 0 };
        for index in 0..plan.queries.len() {
            let cost = work(&plan.queries[index]);
            for kv_head in 0..heads.kv {
                plan.cut(index, kv_head, cost, if threads == 1 { cost } else { target }, heads);
            }
        }
        plan.pieces.sort_by_key(|piece| std::cmp::Reverse(piece.cost));
        plan
    }

    /// Cuts one tile into runs of spans that cost about `target`.
    fn cut(&mut self, queries: usize, kv_head: usize, cost: usize, target: usize, heads: Heads) {
        let Queries { ref rows, ref spans, .. } = self.queries[queries];
        let (count, rows) = (spans.len(), rows.len() * heads.group);
        let wanted = (cost / target.max(1)).clamp(1, count);
        let joint = (wanted > 1).then_some(self.joints.len());
        if wanted > 1 {
            let left = AtomicUsize::new(wanted);
            self.joints.push(Joint { left, first_record: self.records });
            self.records += count * rows;
        }
        for i in 0..wanted {
            let run = spans.start + i * count / wanted..spans.start + (i + 1) * count / wanted;
            let cost = cost / count * run.len();
            self.pieces.push(Piece { queries, kv_head, spans: run, joint, cost });
        }
    }
}

fn queries(step: &Step, params: AttentionParams, group: usize) -> Vec<Queries> {
    let most = (TILE_ROWS / group.max(1)).max(1);
    let mut queries = Vec::new();
    for seq in 0..step.context_lens.len() {
        let (rows, context) = (step.rows(seq), step.context_lens[seq] as usize);
        for first in rows.clone().step_by(most) {
            let rows = first..rows.end.min(first + most);
            let (mut start, mut end) = (usize::MAX, 0);
            let positions = QueryPositions::of(step, rows.clone());
            for query in 0..positions.len() {
                let spans = positions.visible(query, context, params).spans();
                (start, end) = (start.min(spans.start), end.max(spans.end));
            }
            queries.push(Queries { seq, rows, spans: start..end });
        }
    }
    queries
}
