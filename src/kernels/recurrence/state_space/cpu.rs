//! The state space on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use super::super::lanes::{load_some, softplus, store_some, write_some};
use super::super::runs::Run;
use super::args::{Heads, NAME};
use crate::cpu::{Kernel, LANES, Lanes, Level};
use crate::fresh::{Parts, filled};
use crate::pool;
use crate::storage::{Rows, read, write};

/// Tokens that go through a state at once.
const TOKENS: usize = 4;

/// The state space by the kernels of a level, with checked arguments.
pub(super) fn state_space(
    level: Level,
    x: &Tensor,
    steps: &Tensor,
    heads: Heads<'_>,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (rows, count) = steps.dims2()?;
    let inner = count * heads.head_dim;
    let [decay, skip, step_bias] =
        [heads.decay, heads.skip, heads.step_bias].map(Tensor::to_vec1::<f32>);
    let (decay, skip, step_bias) = (decay?, skip?, step_bias?);
    let mut out = Vec::new();
    let device = x.device();
    let [x, steps] = [x, steps].map(|tensor| read(NAME, tensor));
    let (x, steps) = (x.rows()?, steps.rows()?);
    write::<f32>(NAME, states, |states| {
        let states = &Parts::new(states);
        let (decay, skip, step_bias) = (&decay[..], &skip[..], &step_bias[..]);
        let space = Space { x, steps, heads, decay, skip, step_bias, states };
        let fill = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_chunk(runs.len() * count, |chunk| {
                let (run, head) = (&runs[chunk / count], chunk % count);
                level.run(OneHead { space, run, head, out });
            });
        };
        // SAFETY: the runs cover all rows and `OneHead` writes its own columns of its own rows.
        out = unsafe { filled(rows * inner, fill) };
        Ok(())
    })?;
    Tensor::from_vec(out, (rows, inner), device)
}

#[derive(Clone, Copy)]
struct Space<'a> {
    x: Rows<'a>,
    steps: Rows<'a>,
    heads: Heads<'a>,
    decay: &'a [f32],
    skip: &'a [f32],
    step_bias: &'a [f32],
    states: &'a Parts<'a, f32>,
}

/// A head of one sequence.
struct OneHead<'a> {
    space: Space<'a>,
    run: &'a Run,
    head: usize,
    out: &'a Parts<'a, MaybeUninit<f32>>,
}

/// How a token changes a state.
#[derive(Clone, Copy, Default)]
struct Moment {
    /// The token's time step.
    step: f32,
    /// The factor of the state before.
    fading: f32,
}

impl Kernel for OneHead<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { space, run, head, out } = self;
        let Heads { head_dim, state_size, .. } = space.heads;
        let elements = head_dim * state_size;
        let start = (run.slot * space.decay.len() + head) * elements;
        // SAFETY: no other chunk has this head of this slot.
        let state = unsafe { space.states.part(start..start + elements) };
        if run.starts {
            state.fill(0.0);
        }
        let moments = space.moments(run, head);
        for lane in (0..head_dim).step_by(LANES) {
            let count = LANES.min(head_dim - lane);
            let block = Lane { space, head, out, start: lane, count };
            let mut token = 0;
            while token + TOKENS <= moments.len() {
                let moments = moments[token..].first_chunk::<TOKENS>();
                let Some(moments) = moments else { break };
                block.advance(l, state, moments, run.rows.start + token);
                token += TOKENS;
            }
            for (token, moment) in moments.iter().enumerate().skip(token) {
                block.advance(l, state, &[*moment], run.rows.start + token);
            }
        }
    }
}

impl Space<'_> {
    /// The changes of all tokens of a run.
    fn moments(&self, run: &Run, head: usize) -> Vec<Moment> {
        let [least, most] = self.heads.step_limits;
        let one = |row: usize| {
            let step = softplus(self.steps.row(row)[head] + self.step_bias[head]);
            let step = step.max(least).min(most);
            Moment { step, fading: (step * self.decay[head]).exp() }
        };
        run.rows.clone().map(one).collect()
    }
}

/// Up to sixteen elements of a head.
#[derive(Clone, Copy)]
struct Lane<'a> {
    space: Space<'a>,
    head: usize,
    out: &'a Parts<'a, MaybeUninit<f32>>,
    /// The first element, and how many there are.
    start: usize,
    count: usize,
}

#[allow(clippy::needless_range_loop, reason = "tiles are indexed in several arrays at once")]
impl Lane<'_> {
    /// Takes `T` tokens from row `first` on through the state, and writes what they give.
    #[inline(always)]
    fn advance<L: Lanes, const T: usize>(
        self,
        l: L,
        state: &mut [f32],
        moments: &[Moment; T],
        first: usize,
    ) {
        let Self { space, head, out, start: lane, count } = self;
        let heads = space.decay.len();
        let Heads { head_dim, state_size, groups, .. } = space.heads;
        let group = heads * head_dim + head / (heads / groups) * state_size;
        let own = head * head_dim + lane;
        let mut inputs = [l.splat(0.0); T];
        let mut fadings = inputs;
        let mut sums = inputs;
        let mut writes: [&[f32]; T] = [&[]; T];
        let mut reads = writes;
        for t in 0..T {
            let row = space.x.row(first + t);
            inputs[t] = load_some(l, &row[own..own + count]);
            fadings[t] = l.splat(moments[t].fading);
            writes[t] = &row[group..group + state_size];
            let read = group + groups * state_size;
            reads[t] = &row[read..read + state_size];
        }
        for (n, row) in state.chunks_exact_mut(head_dim).enumerate() {
            let row = &mut row[lane..lane + count];
            let mut kept = load_some(l, row);
            for t in 0..T {
                let taken = l.mul(l.splat(moments[t].step * writes[t][n]), inputs[t]);
                kept = l.mul_add(kept, fadings[t], taken);
                sums[t] = l.mul_add(kept, l.splat(reads[t][n]), sums[t]);
            }
            store_some(l, kept, row);
        }
        for t in 0..T {
            let y = l.mul_add(inputs[t], l.splat(space.skip[head]), sums[t]);
            let start = (first + t) * heads * head_dim + own;
            // SAFETY: runs and heads don't overlap, nor do the lanes of a head.
            write_some(l, y, unsafe { out.part(start..start + count) });
        }
    }
}
