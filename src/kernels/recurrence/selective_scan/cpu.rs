//! The selective scan on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use super::super::lanes::{load_some, softplus, store_some, write_some};
use super::super::runs::Run;
use super::args::{Channels, NAME};
use crate::cpu::math::exp;
use crate::cpu::{Kernel, LANES, Lanes, Level};
use crate::fresh::{Parts, filled};
use crate::pool;
use crate::storage::{Rows, read, write};

/// The scan by the kernels of a level, with checked arguments.
pub(super) fn selective_scan(
    level: Level,
    rows: [&Tensor; 3],
    channels: Channels<'_>,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (count, width) = rows[0].dims2()?;
    let decay = channels.decay.flatten_all()?.to_vec1::<f32>()?;
    let skip = channels.skip.to_vec1::<f32>()?;
    let device = rows[0].device();
    let [x, steps, vectors] = rows.map(|tensor| read(NAME, tensor));
    let (x, steps, vectors) = (x.rows()?, steps.rows()?, vectors.rows()?);
    let mut out = Vec::new();
    write::<f32>(NAME, states, |states| {
        let states = &Parts::new(states);
        let scan = Scan { x, steps, vectors, decay: &decay, skip: &skip, states };
        let blocks = width.div_ceil(LANES);
        let fill = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_chunk(runs.len() * blocks, |chunk| {
                let (run, block) = (&runs[chunk / blocks], chunk % blocks);
                level.run(OneBlock { scan, run, start: block * LANES, out });
            });
        };
        // SAFETY: the runs cover all rows and `OneBlock` writes its own columns of its own rows.
        out = unsafe { filled(count * width, fill) };
        Ok(())
    })?;
    Tensor::from_vec(out, (count, width), device)
}

#[derive(Clone, Copy)]
struct Scan<'a> {
    x: Rows<'a>,
    steps: Rows<'a>,
    vectors: Rows<'a>,
    /// `[N, D]`
    decay: &'a [f32],
    skip: &'a [f32],
    states: &'a Parts<'a, f32>,
}

/// Up to sixteen channels of one sequence.
struct OneBlock<'a> {
    scan: Scan<'a>,
    run: &'a Run,
    /// The first channel.
    start: usize,
    out: &'a Parts<'a, MaybeUninit<f32>>,
}

impl Kernel for OneBlock<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { scan, run, start, out } = self;
        let width = scan.skip.len();
        let size = scan.decay.len() / width;
        let own = start..width.min(start + LANES);
        let mut state = vec![l.splat(0.0); size];
        let place = |n: usize| {
            let row = (run.slot * size + n) * width;
            row + own.start..row + own.end
        };
        if !run.starts {
            for (n, kept) in state.iter_mut().enumerate() {
                // SAFETY: no other chunk has these channels of this slot.
                *kept = load_some(l, unsafe { scan.states.part(place(n)) });
            }
        }
        let skip = load_some(l, &scan.skip[own.clone()]);
        for row in run.rows.clone() {
            let mut steps = [0.0; LANES];
            for (step, given) in steps.iter_mut().zip(&scan.steps.row(row)[own.clone()]) {
                *step = softplus(*given);
            }
            let (step, input) = (l.load(&steps), load_some(l, &scan.x.row(row)[own.clone()]));
            let taken = l.mul(step, input);
            let (writes, reads) = scan.vectors.row(row).split_at(size);
            let mut sum = l.splat(0.0);
            for (n, kept) in state.iter_mut().enumerate() {
                let decay = load_some(l, &scan.decay[n * width..][own.clone()]);
                let fading = exp(l, l.mul(step, decay));
                *kept = l.mul_add(*kept, fading, l.mul(l.splat(writes[n]), taken));
                sum = l.mul_add(*kept, l.splat(reads[n]), sum);
            }
            let y = l.mul_add(input, skip, sum);
            let first = row * width;
            // SAFETY: runs don't overlap, nor do blocks of channels.
            write_some(l, y, unsafe { out.part(first + own.start..first + own.end) });
        }
        for (n, kept) in state.into_iter().enumerate() {
            // SAFETY: no other chunk has these channels of this slot.
            store_some(l, kept, unsafe { scan.states.part(place(n)) });
        }
    }
}
