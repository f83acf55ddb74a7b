//! `x [M, K] * weight [N, K]^T + bias [N]` in f32, on weights in their stored dtype.
//!
//! Each output element is one chain of sixteen-lane multiply-adds along K, the lanes summed in a
//! fixed tree at the end. The chain is the same in every tile shape, so an output row is equal to
//! the bit whether it is computed alone or among 512 others. Weights are cut into chunks of rows
//! that fit the second-level cache; a chunk meets all activation rows before the next is read.
//! When more than a few rows meet it, the chunk is widened to f32 once (exactly).

use std::cell::RefCell;
use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use half::{bf16, f16};

use super::cpu::{Element, Kernel, LANES, Lanes, Level, load_tail};
use super::fresh::{Parts, filled};
use super::packed::{PackedMatrix, Rows};
use super::{pool, storage};

/// Widened weights of one chunk take at most this much of the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Rows of weights in a chunk at most, so that there are chunks enough to share out.
const CHUNK_ROWS: usize = 64;
/// From this many activation rows on, bf16 and f16 weights are widened once per chunk.
const WIDEN_FROM: usize = 4;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Smaller products (in multiply-adds) stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;

/// `x [.., K]` in f32 times the transpose of `weight [N, K]`, plus `bias [N]`: `[.., N]`.
pub fn linear(x: &Tensor, weight: &PackedMatrix, bias: Option<&[f32]>) -> Result<Tensor> {
    linear_at(Level::current(), x, weight, bias)
}

fn linear_at(
    level: Level,
    x: &Tensor,
    weight: &PackedMatrix,
    bias: Option<&[f32]>,
) -> Result<Tensor> {
    if let Some(bias) = bias.filter(|bias| bias.len() != weight.rows()) {
        bail!("linear: {} biases for {} output features", bias.len(), weight.rows());
    }
    x.apply_op1_no_bwd(&Linear { level, weight, bias })
}

struct Linear<'a> {
    level: Level,
    weight: &'a PackedMatrix,
    bias: Option<&'a [f32]>,
}

impl CustomOp1 for Linear<'_> {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (m, k) = storage::rows_of(self.name(), layout)?;
        if k != self.weight.columns() {
            bail!("linear: the input has {k} features, the weight {}", self.weight.columns());
        }
        let x = storage::contiguous::<f32>(self.name(), x, layout)?;
        let n = self.weight.rows();
        // SAFETY: the chunks cover all N columns, and each writes its columns of all M rows.
        let out = unsafe { filled(m * n, |out| self.product(x, m, out)) };
        let mut dims = layout.dims().to_vec();
        dims[layout.dims().len() - 1] = n;
        Ok((CpuStorage::F32(out), Shape::from_dims(&dims)))
    }
}

thread_local! {
    static WIDENED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Linear<'_> {
    fn product(&self, x: &[f32], m: usize, out: &Parts<'_, MaybeUninit<f32>>) {
        let (n, k) = (self.weight.rows(), self.weight.columns());
        let rows = (CHUNK_BYTES / (4 * k.max(1))).clamp(8, CHUNK_ROWS) / 8 * 8;
        let chunk = |i: usize| self.chunk(x, m, i * rows, rows.min(n - i * rows), out);
        let chunks = n.div_ceil(rows);
        if m * n * k < PARALLEL_FROM {
            (0..chunks).for_each(chunk);
        } else {
            pool::for_each_chunk(chunks, chunk);
        }
    }

    /// Output columns `first..first + count` of all rows.
    fn chunk(
        &self,
        x: &[f32],
        m: usize,
        first: usize,
        count: usize,
        out: &Parts<'_, MaybeUninit<f32>>,
    ) {
        let (n, k) = (self.weight.rows(), self.weight.columns());
        let target = Target { out, bias: self.bias, first, count, n };
        let run = |weight: &[f32]| self.level.run(Product { x, m, k, weight, target });
        match self.weight.rows_at(first, count) {
            Rows::F32(weight) => run(weight),
            Rows::Bf16(weight) if m < WIDEN_FROM => {
                self.level.run(Product { x, m, k, weight, target });
            }
            Rows::F16(weight) if m < WIDEN_FROM => {
                self.level.run(Product { x, m, k, weight, target });
            }
            weight => WIDENED.with_borrow_mut(|scratch| {
                if scratch.len() < count * k {
                    scratch.resize(count * k, 0.0);
                }
                let widened = &mut scratch[..count * k];
                match weight {
                    Rows::Bf16(from) => self.level.run(Widen::<bf16> { from, to: widened }),
                    Rows::F16(from) => self.level.run(Widen::<f16> { from, to: widened }),
                    other => other.widen(widened),
                }
                run(widened);
            }),
        }
    }
}

/// Where a chunk's results go.
#[derive(Clone, Copy)]
struct Target<'a> {
    out: &'a Parts<'a, MaybeUninit<f32>>,
    bias: Option<&'a [f32]>,
    first: usize,
    count: usize,
    /// Width of an output row.
    n: usize,
}

impl Target<'_> {
    #[inline(always)]
    fn write<const M: usize, const N: usize>(
        &self,
        row: usize,
        column: usize,
        sums: [[f32; N]; M],
    ) {
        let column = self.first + column;
        let mut bias = [0.0; N];
        if let Some(all) = self.bias {
            bias.copy_from_slice(&all[column..column + N]);
        }
        for (i, sums) in sums.iter().enumerate() {
            let start = (row + i) * self.n + column;
            // SAFETY: this chunk alone owns its columns, and a part lives for this line only.
            let out = unsafe { self.out.part(start..start + N) };
            for j in 0..N {
                // Without a bias no zero is added: -0 stays -0.
                out[j].write(if self.bias.is_some() { sums[j] + bias[j] } else { sums[j] });
            }
        }
    }
}

struct Widen<'a, E> {
    from: &'a [E],
    to: &'a mut [f32],
}

impl<E: Element> Kernel for Widen<'_, E> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (from, from_tail) = self.from.as_chunks::<LANES>();
        let (to, to_tail) = self.to.as_chunks_mut::<LANES>();
        for (from, to) in from.iter().zip(to) {
            l.store(E::load(l, from), to);
        }
        let mut tail = [0.0; LANES];
        l.store(load_tail(l, from_tail), &mut tail);
        to_tail.copy_from_slice(&tail[..from_tail.len()]);
    }
}

/// All activation rows times one chunk of weight rows.
struct Product<'a, E> {
    x: &'a [f32],
    m: usize,
    k: usize,
    weight: &'a [E],
    target: Target<'a>,
}

impl<E: Element> Kernel for Product<'_, E> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut row = 0;
        while row < self.m {
            let left = self.m - row;
            row += if L::WIDE && left >= 4 {
                self.strip::<L, 4, 4>(l, row);
                4
            } else if L::WIDE && left >= 2 {
                self.strip::<L, 2, 8>(l, row);
                2
            } else if left >= 2 {
                self.strip::<L, 2, 2>(l, row);
                2
            } else if L::WIDE {
                self.strip::<L, 1, 8>(l, row);
                1
            } else {
                self.strip::<L, 1, 4>(l, row);
                1
            };
        }
    }
}

impl<E: Element> Product<'_, E> {
    /// `M` activation rows times all weight rows of the chunk, `N` at a time.
    #[inline(always)]
    fn strip<L: Lanes, const M: usize, const N: usize>(&self, l: L, row: usize) {
        let x: [&[f32]; M] = take_rows(self.x, row, self.k);
        let mut column = 0;
        while column + N <= self.target.count {
            let weight: [&[E]; N] = take_rows(self.weight, column, self.k);
            self.target.write(row, column, tile(l, x, weight, self.k));
            column += N;
        }
        while column < self.target.count {
            let weight: [&[E]; 1] = take_rows(self.weight, column, self.k);
            self.target.write(row, column, tile(l, x, weight, self.k));
            column += 1;
        }
    }
}

#[inline(always)]
fn take_rows<T, const R: usize>(matrix: &[T], first: usize, width: usize) -> [&[T]; R] {
    let mut rows: [&[T]; R] = [&[]; R];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &matrix[(first + i) * width..(first + i + 1) * width];
    }
    rows
}

/// The `M x N` sums of products of rows of length `k`, each in the same order for any M and N.
#[inline(always)]
fn tile<L: Lanes, E: Element, const M: usize, const N: usize>(
    l: L,
    x: [&[f32]; M],
    weight: [&[E]; N],
    k: usize,
) -> [[f32; N]; M] {
    let whole = k / LANES;
    let mut xs: [&[[f32; LANES]]; M] = [&[]; M];
    let mut ws: [&[[E; LANES]]; N] = [&[]; N];
    for i in 0..M {
        xs[i] = &x[i].as_chunks::<LANES>().0[..whole];
    }
    for j in 0..N {
        ws[j] = &weight[j].as_chunks::<LANES>().0[..whole];
    }
    let mut acc = [[l.splat(0.0); N]; M];
    for step in 0..whole {
        let mut w = [l.splat(0.0); N];
        for j in 0..N {
            w[j] = E::load(l, &ws[j][step]);
            if M <= 2 && (step * size_of::<E>() * LANES).is_multiple_of(LINE) {
                // The same place in the rows that come next: they follow in memory.
                l.prefetch(ws[j].as_ptr().cast::<E>().wrapping_add(step * LANES + N * k));
            }
        }
        for i in 0..M {
            let x = l.load(&xs[i][step]);
            for j in 0..N {
                acc[i][j] = l.mul_add(x, w[j], acc[i][j]);
            }
        }
    }
    if whole * LANES < k {
        for i in 0..M {
            let x = load_tail(l, &x[i][whole * LANES..]);
            for j in 0..N {
                let w = load_tail(l, &weight[j][whole * LANES..]);
                acc[i][j] = l.mul_add(x, w, acc[i][j]);
            }
        }
    }
    let mut sums = [[0.0; N]; M];
    for i in 0..M {
        for j in 0..N {
            sums[i][j] = l.sum(acc[i][j]);
        }
    }
    sums
}

#[cfg(test)]
mod tests;
