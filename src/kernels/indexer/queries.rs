//! The queries of a step that don't see all of their context: scores of its parts, and the choice by them.
//!
//! A query's scores of a run of parts are one chunk of the work, and so is the choice of one query.

use std::ops::Range;

use crate::fresh::Parts;
use crate::pool;
use crate::step::Step;

/// Scores that are kept at once, unless a single query has more.
const MOST_SCORES: usize = 1 << 22;

/// A query that doesn't see all.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) row: usize,
    pub(super) sequence: usize,
    /// Tokens up to its own.
    pub(super) seen: usize,
    /// The blocks of its sequence in the cache.
    pub(super) table: &'a [u32],
}

/// What gives the parts of a context, tokens or blocks of them, scores, and chooses by these.
pub(super) trait Chooser: Sync {
    /// What a query sees.
    type Chosen: Clone + Default + Send;

    /// Parts of a chunk.
    const RUN: usize;

    /// Scores of a part.
    fn heads(&self) -> usize;

    /// How many parts there are up to the last of so many tokens.
    fn parts(&self, seen: usize) -> usize;

    /// How many parts are chosen; who has no more sees all.
    fn count(&self) -> usize;

    /// Writes the scores that a query gives to some parts, `[parts, heads]`.
    fn score(&self, query: Query<'_>, parts: Range<usize>, out: &mut [f32]);

    /// What a query sees by the scores of all of its parts, `[parts, heads]`.
    fn choose(&self, query: Query<'_>, scores: &[f32]) -> Self::Chosen;
}

/// What the rows of a step see; `None`: all.
pub(super) fn chosen_rows<C: Chooser>(chooser: &C, step: &Step) -> Vec<Option<C::Chosen>> {
    let mut rows = vec![None; step.positions.len()];
    let queries = beyond(chooser, step);
    let mut done = 0;
    while done < queries.len() {
        let mut scores = 0;
        let fits = |query: &&Query<'_>| {
            scores += chooser.parts(query.seen) * chooser.heads();
            scores <= MOST_SCORES
        };
        let some = queries[done..].iter().take_while(fits).count().max(1);
        let some = &queries[done..done + some];
        done += some.len();
        for (query, chosen) in some.iter().zip(choose_each(chooser, some)) {
            rows[query.row] = Some(chosen);
        }
    }
    rows
}

/// The queries that don't see all up to their own token.
fn beyond<'a>(chooser: &impl Chooser, step: &'a Step) -> Vec<Query<'a>> {
    let of_sequence = |sequence: usize| {
        let table = &step.block_tables[sequence][..];
        let seen = |row: usize| step.positions[row] as usize + 1;
        let query = move |row| Query { row, sequence, seen: seen(row), table };
        step.rows(sequence).map(query)
    };
    let all = (0..step.context_lens.len()).flat_map(of_sequence);
    all.filter(|query| chooser.parts(query.seen) > chooser.count()).collect()
}

/// What each of these queries sees.
fn choose_each<C: Chooser>(chooser: &C, queries: &[Query<'_>]) -> Vec<C::Chosen> {
    let heads = chooser.heads();
    let (mut runs, mut starts) = (Vec::new(), vec![0]);
    let mut total = 0;
    for (index, query) in queries.iter().enumerate() {
        let parts = chooser.parts(query.seen);
        let run = |first| (index, first..parts.min(first + C::RUN), total + first * heads);
        runs.extend((0..parts).step_by(C::RUN).map(run));
        total += parts * heads;
        starts.push(total);
    }
    let mut scores = vec![0.0f32; total];
    let parts = &Parts::new(&mut scores);
    pool::for_each_chunk(runs.len(), |chunk| {
        let (index, run, at) = &runs[chunk];
        // SAFETY: the runs of a query don't overlap, nor do queries.
        let out = unsafe { parts.part(*at..at + run.len() * heads) };
        chooser.score(queries[*index], run.clone(), out);
    });
    let mut chosen = vec![C::Chosen::default(); queries.len()];
    let parts = &Parts::new(&mut chosen);
    pool::for_each_chunk(queries.len(), |index| {
        // SAFETY: each chunk has a part of its own.
        let own = unsafe { parts.part(index..index + 1) };
        own[0] = chooser.choose(queries[index], &scores[starts[index]..starts[index + 1]]);
    });
    chosen
}

/// The positions of the `count` largest of more scores, ascending; of equal ones those of the earlier.
pub(super) fn best(scores: &[f32], count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0u32..).take(scores.len()).collect();
    let larger = |a: &u32, b: &u32| {
        let [first, second] = [a, b].map(|position| scores[*position as usize]);
        second.total_cmp(&first).then(a.cmp(b))
    };
    if count < order.len() {
        order.select_nth_unstable_by(count, larger);
        order.truncate(count);
    }
    order.sort_unstable();
    order
}
