//! How a call is cut into pieces that threads claim: tiles of query rows and, where a tile is
//! long, runs of its spans. Results don't depend on the cut.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use super::args::{AttentionParams, QueryPositions, SPAN};
use crate::cache::KV_BLOCK;
use crate::step::Step;

/// Query rows times heads of one tile, at most (a single row may have more heads).
pub(super) const MOST_ROWS: usize = 64;
/// The same where there are tile registers, which are done so soon that interleaving keys and values for them is a
/// good part of the work.
pub(super) const MOST_ROWS_IN_REGISTERS: usize = 128;
/// Multiply-adds of a piece below which claiming it costs more than it brings.
const SMALLEST: usize = 1 << 17;
/// Pieces for each thread, about.
const PIECES_PER_THREAD: usize = 8;

/// Query rows that are computed together: of one sequence, or of neighbours whose contexts begin with the same blocks,
/// which are read for all of them at once.
pub(super) struct Queries {
    pub(super) seqs: Range<usize>,
    /// The rows of `q`.
    pub(super) rows: Range<usize>,
    /// Spans that any of them sees.
    pub(super) spans: Range<usize>,
    /// Spans before this one are the same for all sequences, if there are several.
    pub(super) shared: usize,
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

/// Heads of a call, and how many rows of theirs make a tile.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    /// Query heads for each KV head.
    pub(super) group: usize,
    /// KV heads.
    pub(super) kv: usize,
    /// Elements of a key and of a value.
    pub(super) dims: usize,
    /// Query rows times heads of one tile, at most.
    pub(super) most_rows: usize,
}

impl Plan {
    pub(super) fn new(step: &Step, params: AttentionParams, heads: Heads, threads: usize) -> Self {
        let queries = queries(step, params, heads);
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

fn queries(step: &Step, params: AttentionParams, heads: Heads) -> Vec<Queries> {
    let most = (heads.most_rows / heads.group.max(1)).max(1);
    let mut queries: Vec<Queries> = Vec::new();
    let mut seq = 0;
    while seq < step.context_lens.len() {
        let (end, shared) = neighbours(step, params, seq);
        let rows = step.rows(seq).start..step.rows(end - 1).end;
        for first in rows.clone().step_by(most) {
            let rows = first..rows.end.min(first + most);
            queries.push(Queries::new(step, params, seq..end, rows, shared));
        }
        seq = end;
    }
    queries
}

/// The end of the sequences from `first` on whose contexts begin with spans of the same blocks, which all of them see,
/// and the number of these spans. None follows that shares fewer than those before it do.
fn neighbours(step: &Step, params: AttentionParams, first: usize) -> (usize, usize) {
    // What rows see behind themselves is a matter of their own context.
    let named = !step.attention_ends.is_empty() || !step.attention_starts.is_empty();
    let unseen = |seq| spans(step, params, seq, step.rows(seq)).start;
    let unseen_by_first = OnceCell::new();
    let (mut end, mut shared) = (first + 1, None);
    while params.ahead == 0 && !named && end < step.context_lens.len() {
        let tables = [first, end].map(|seq| &step.block_tables[seq]);
        let same = tables[0].iter().zip(tables[1]).take_while(|(a, b)| a == b).count();
        let same = same / (SPAN / KV_BLOCK);
        let common = shared.unwrap_or(same);
        let sees =
            || common > *unseen_by_first.get_or_init(|| unseen(first)) && common > unseen(end);
        if common == 0 || same < common || !sees() {
            break;
        }
        shared = Some(common);
        end += 1;
    }
    (end, shared.unwrap_or_default())
}

/// Spans that any of some rows of a sequence sees.
fn spans(step: &Step, params: AttentionParams, seq: usize, rows: Range<usize>) -> Range<usize> {
    let context = step.context_lens[seq] as usize;
    let (mut start, mut end) = (usize::MAX, 0);
    let positions = QueryPositions::of(step, rows);
    for query in 0..positions.len() {
        let spans = positions.visible(query, context, params).spans();
        (start, end) = (start.min(spans.start), end.max(spans.end));
    }
    start..end
}

impl Queries {
    /// Some rows of neighbours.
    fn new(
        step: &Step,
        params: AttentionParams,
        mut seqs: Range<usize>,
        rows: Range<usize>,
        shared: usize,
    ) -> Self {
        while step.rows(seqs.start).end <= rows.start {
            seqs.start += 1;
        }
        while step.rows(seqs.end - 1).start >= rows.end {
            seqs.end -= 1;
        }
        let mut queries = Self { seqs: seqs.clone(), rows, spans: 0..0, shared };
        let each = seqs.map(|seq| spans(step, params, seq, queries.rows_of(step, seq)));
        let all = each.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        queries.spans = all.unwrap_or_default();
        queries
    }

    /// Those of a sequence.
    pub(super) fn rows_of(&self, step: &Step, seq: usize) -> Range<usize> {
        let rows = step.rows(seq);
        rows.start.max(self.rows.start)..rows.end.min(self.rows.end)
    }
}
