//! The delta rule on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use super::super::lanes::{load_some, softplus, store_some, write_some};
use super::super::runs::Run;
use super::args::{Gates, Heads, LENGTH_EPS, NAME};
use crate::cpu::{Kernel, LANES, Lanes, Level};
use crate::fresh::{Parts, filled};
use crate::pool;
use crate::storage::{self, Rows};

/// Columns of a state that are changed together: for 128 rows they fit the nearest cache.
const COLUMNS: usize = 2 * LANES;

/// The delta rule by the kernels of a level, with checked arguments.
pub(super) fn delta_rule(
    level: Level,
    qkv: &Tensor,
    gates: Gates<'_>,
    heads: Heads,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (rows, width) = (qkv.dim(0)?, heads.outputs());
    let [write, decay] = [gates.write, gates.decay].map(|gate| gate.flatten_all()?.to_vec1());
    let (write, decay): (Vec<f32>, Vec<f32>) = (write?, decay?);
    let (rate, bias) = (gates.rate.to_vec1::<f32>()?, gates.bias.to_vec1::<f32>()?);
    let mut out = Vec::new();
    let (write, decay, rate, bias) = (&write[..], &decay[..], &rate[..], &bias[..]);
    let (by_element, bound) = (gates.is_by_element(heads), gates.bound);
    let write_scale = gates.write_scale;
    let inputs = storage::read(NAME, qkv);
    let inputs = inputs.rows()?;
    storage::write::<f32>(NAME, states, |states| {
        let states = &Parts::new(states);
        let rule =
            Rule { qkv: inputs, write, write_scale, decay, rate, bias, bound, heads, states };
        let fill = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_chunk(runs.len() * heads.values, |chunk| {
                let (run, index) = (&runs[chunk / heads.values], chunk % heads.values);
                if by_element {
                    level.run(Head::<true> { rule, run, index, out });
                } else {
                    level.run(Head::<false> { rule, run, index, out });
                }
            });
        };
        // SAFETY: the runs cover all rows, and `Head` writes all columns of its head.
        out = unsafe { filled(rows * width, fill) };
        Ok(())
    })?;
    Tensor::from_vec(out, (rows, width), qkv.device())
}

#[derive(Clone, Copy)]
struct Rule<'a> {
    qkv: Rows<'a>,
    write: &'a [f32],
    write_scale: f32,
    decay: &'a [f32],
    rate: &'a [f32],
    bias: &'a [f32],
    bound: Option<f32>,
    heads: Heads,
    states: &'a Parts<'a, f32>,
}

/// One value head of one sequence, in which each element of a key may fade by itself.
struct Head<'a, const BY_ELEMENT: bool> {
    rule: Rule<'a>,
    run: &'a Run,
    index: usize,
    out: &'a Parts<'a, MaybeUninit<f32>>,
}

/// A token's inputs of one head.
struct Step<'a> {
    query: &'a [f32],
    key: &'a [f32],
    /// One where each element of the key fades by itself.
    decay: f32,
    /// Of each element of the key the decay, and its and the query's product with that.
    faded: Option<[Vec<f32>; 3]>,
    write: f32,
    /// Factors of the query and of the key.
    scales: [f32; 2],
    /// The product of query and key, scaled.
    query_key: f32,
}

impl<'a> Rule<'a> {
    #[inline(always)]
    fn step<L: Lanes>(&self, l: L, row: usize, head: usize) -> Step<'a> {
        let Heads { values, key_dim, .. } = self.heads;
        let all = self.qkv.row(row);
        let query = &all[self.heads.shared(0, head)..][..key_dim];
        let key = &all[self.heads.shared(1, head)..][..key_dim];
        #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^24")]
        let root = (key_dim as f32).sqrt();
        let query_scale = 1.0 / ((dot(l, query, query) + LENGTH_EPS).sqrt() * root);
        let key_scale = 1.0 / (dot(l, key, key) + LENGTH_EPS).sqrt();
        Step {
            query,
            key,
            decay: 1.0,
            faded: None,
            write: self.write_scale / (1.0 + (-self.write[row * values + head]).exp()),
            scales: [query_scale, key_scale],
            query_key: dot(l, query, key) * query_scale * key_scale,
        }
    }
}

impl<'a> Rule<'a> {
    /// A token's inputs with one decay for all elements of the key, or with one for each.
    #[inline(always)]
    fn faded<L: Lanes>(&self, l: L, row: usize, head: usize, by_element: bool) -> Step<'a> {
        let Heads { values, key_dim, .. } = self.heads;
        let step = self.step(l, row, head);
        if !by_element {
            let x = self.decay[row * values + head] + self.bias[head];
            return Step { decay: (self.rate[head] * softplus(x)).exp(), ..step };
        }
        let own = head * key_dim..(head + 1) * key_dim;
        let biases = &self.bias[own.clone()];
        let inputs = &self.decay[row * values * key_dim..][own];
        let decay = |(x, bias): (&f32, &f32)| {
            let (x, rate) = (x + bias, self.rate[head]);
            match self.bound {
                None => (rate * softplus(x)).exp(),
                Some(bound) => (bound / (1.0 + (rate * x).exp())).exp(),
            }
        };
        let decays: Vec<f32> = inputs.iter().zip(biases).map(decay).collect();
        let times = |x: &[f32]| x.iter().zip(&decays).map(|(x, decay)| x * decay).collect();
        let (key, query) = (times(step.key), times(step.query));
        Step { faded: Some([decays, key, query]), ..step }
    }
}

impl<const BY_ELEMENT: bool> Kernel for Head<'_, BY_ELEMENT> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { rule, run, index: head, out } = self;
        let Heads { key_dim, value_dim, .. } = rule.heads;
        let mut steps = Vec::with_capacity(run.rows.len());
        for row in run.rows.clone() {
            steps.push(rule.faded(l, row, head, BY_ELEMENT));
        }
        let state = run.slot * rule.heads.state() + head * key_dim * value_dim;
        // SAFETY: no other chunk has this head of this slot.
        let state = unsafe { rule.states.part(state..state + key_dim * value_dim) };
        let values = rule.heads.inputs() - rule.heads.outputs() + head * value_dim;
        let mut block: Vec<Pair> = vec![[[0.0; LANES]; 2]; key_dim];
        for first in (0..value_dim).step_by(COLUMNS) {
            let count = COLUMNS.min(value_dim - first);
            let mut before: Option<Change<'_, L, BY_ELEMENT>> = None;
            for (step, row) in steps.iter().zip(run.rows.clone()) {
                let read = match before {
                    None => {
                        let kept = state.chunks_exact(value_dim).map(|row| &row[first..][..count]);
                        take_and_read(l, &mut block, kept, run.starts, step)
                    }
                    Some(before) => change_and_read(l, &mut block, before, step),
                };
                let value = &rule.qkv.row(row)[values + first..][..count];
                let (given, change) = finish(l, step, &read, load_pair(l, value));
                before = Some(change);
                let start = row * rule.heads.outputs() + head * value_dim + first;
                // SAFETY: no other chunk has this head of this row, and no other block these
                // columns.
                let out = unsafe { out.part(start..start + count) };
                write_pair(l, given, out);
            }
            if let Some(before) = before {
                let kept = state.chunks_exact_mut(value_dim).map(|row| &mut row[first..][..count]);
                change_and_return(l, &block, kept, before);
            }
        }
    }
}

/// A row of some columns of a state.
type Pair = [[f32; LANES]; 2];

/// How a token changes a state: `decay * S + key delta^T`.
#[derive(Clone, Copy)]
struct Change<'a, L: Lanes, const BY_ELEMENT: bool> {
    decay: f32,
    /// The decay of each row instead, where each element of a key fades by itself.
    decays: &'a [f32],
    key: &'a [f32],
    delta: [L::V; 2],
}

/// Products of a state with an unscaled key and an unscaled query.
struct Read<L: Lanes> {
    key: [L::V; 2],
    query: [L::V; 2],
}

impl<L: Lanes> Read<L> {
    #[inline(always)]
    fn nothing(l: L) -> Self {
        Self { key: [l.splat(0.0); 2], query: [l.splat(0.0); 2] }
    }

    #[inline(always)]
    fn add(&mut self, l: L, row: [L::V; 2], key: f32, query: f32) {
        let (key, query) = (l.splat(key), l.splat(query));
        for (half, row) in row.into_iter().enumerate() {
            self.key[half] = l.mul_add(row, key, self.key[half]);
            self.query[half] = l.mul_add(row, query, self.query[half]);
        }
    }
}

impl<L: Lanes, const BY_ELEMENT: bool> Change<'_, L, BY_ELEMENT> {
    /// Row `index` of the state, which is `row`, changed.
    #[inline(always)]
    fn of(&self, l: L, index: usize, row: &Pair, key: f32) -> [L::V; 2] {
        let decay = if BY_ELEMENT { self.decays[index] } else { self.decay };
        let (decay, key) = (l.splat(decay), l.splat(key));
        let changed =
            |half: usize| l.mul_add(key, self.delta[half], l.mul(l.load(&row[half]), decay));
        [changed(0), changed(1)]
    }
}

/// A token's output, and how the token changes the state, by the products with the state before it.
#[inline(always)]
fn finish<'a, L: Lanes, const BY_ELEMENT: bool>(
    l: L,
    step: &'a Step<'_>,
    read: &Read<L>,
    value: [L::V; 2],
) -> ([L::V; 2], Change<'a, L, BY_ELEMENT>) {
    let [query_scale, key_scale] = step.scales;
    let (said, kept) = (l.splat(step.decay * key_scale), l.splat(step.decay * query_scale));
    let (write, query_key, scale) =
        (l.splat(step.write), l.splat(step.query_key), l.splat(key_scale));
    let (mut given, mut delta) = (value, value);
    for half in 0..2 {
        let new = l.sub(value[half], l.mul(read.key[half], said));
        let new = l.mul(new, write);
        given[half] = l.mul_add(new, query_key, l.mul(read.query[half], kept));
        delta[half] = l.mul(new, scale);
    }
    let decays = step.faded.as_ref().map_or(&[][..], |[decays, ..]| decays);
    (given, Change { decay: step.decay, decays, key: step.key, delta })
}

/// What a state is read with: a token's key and query, faded where each element does by itself.
#[inline(always)]
fn readers<'a>(step: &'a Step<'_>) -> [&'a [f32]; 2] {
    step.faded.as_ref().map_or([step.key, step.query], |[_, key, query]| [key, query])
}

/// Takes the rows of a state into the block, zeros where a sequence starts, and reads them.
#[inline(always)]
fn take_and_read<'a, L: Lanes>(
    l: L,
    block: &mut [Pair],
    kept: impl Iterator<Item = &'a [f32]>,
    starts: bool,
    step: &Step<'_>,
) -> Read<L> {
    let mut read = Read::nothing(l);
    let [keys, queries] = readers(step);
    for ((row, kept), (key, query)) in block.iter_mut().zip(kept).zip(keys.iter().zip(queries)) {
        let taken = if starts { [l.splat(0.0); 2] } else { load_pair(l, kept) };
        l.store(taken[0], &mut row[0]);
        l.store(taken[1], &mut row[1]);
        read.add(l, taken, *key, *query);
    }
    read
}

/// Changes the block and reads it, going through it once.
#[inline(always)]
fn change_and_read<L: Lanes, const BY_ELEMENT: bool>(
    l: L,
    block: &mut [Pair],
    before: Change<'_, L, BY_ELEMENT>,
    step: &Step<'_>,
) -> Read<L> {
    let mut read = Read::nothing(l);
    let [keys, queries] = readers(step);
    let rows = block.iter_mut().zip(before.key).zip(keys.iter().zip(queries));
    for (index, ((row, earlier), (key, query))) in rows.enumerate() {
        let changed = before.of(l, index, row, *earlier);
        l.store(changed[0], &mut row[0]);
        l.store(changed[1], &mut row[1]);
        read.add(l, changed, *key, *query);
    }
    read
}

/// Changes the block's rows on their way back to the state.
#[inline(always)]
fn change_and_return<'a, L: Lanes, const BY_ELEMENT: bool>(
    l: L,
    block: &[Pair],
    kept: impl Iterator<Item = &'a mut [f32]>,
    before: Change<'_, L, BY_ELEMENT>,
) {
    for (index, ((row, kept), key)) in block.iter().zip(kept).zip(before.key).enumerate() {
        let changed = before.of(l, index, row, *key);
        store_pair(l, changed, kept);
    }
}

/// The sum of products, in sixteen lanes along the vectors and then in a fixed tree.
#[inline(always)]
fn dot<L: Lanes>(l: L, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = l.splat(0.0);
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sum = l.mul_add(load_some(l, a), load_some(l, b), sum);
    }
    l.sum(sum)
}

/// Loads up to 32 floats; zeros behind them.
#[inline(always)]
fn load_pair<L: Lanes>(l: L, x: &[f32]) -> [L::V; 2] {
    let (first, second) = x.split_at(x.len().min(LANES));
    [load_some(l, first), load_some(l, second)]
}

/// Stores as many lanes as `out` is long.
#[inline(always)]
fn store_pair<L: Lanes>(l: L, v: [L::V; 2], out: &mut [f32]) {
    let (first, second) = out.split_at_mut(out.len().min(LANES));
    store_some(l, v[0], first);
    store_some(l, v[1], second);
}

/// Writes as many lanes as `out` is long.
#[inline(always)]
fn write_pair<L: Lanes>(l: L, v: [L::V; 2], out: &mut [MaybeUninit<f32>]) {
    let (first, second) = out.split_at_mut(out.len().min(LANES));
    write_some(l, v[0], first);
    write_some(l, v[1], second);
}
