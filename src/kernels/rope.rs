//! Rotary position embedding, in place: the "neox" layout, where element `i` of the first half
//! pairs with element `i` of the second.
//!
//! Su et al., "RoFormer", 2021. Angles come from outside as one cosine and one sine per row and
//! pair; elements of a head behind the rotated ones stay as they are.

use candle_core::{CpuStorage, InplaceOp3, Layout, Result, Tensor, bail};

use super::cpu::{Kernel, LANES, Lanes, Level};
use super::{portable, storage};

/// Rotates the heads of `x [T, H, D]` by `cos` and `sin`, each `[T, R]` with `2 R <= D`.
///
/// On the CPU `x` is changed in place and returned.
pub fn rope(x: Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    if !x.device().is_cpu() {
        return portable::rope(&x, cos, sin);
    }
    rope_at(Level::current(), x, cos, sin)
}

fn rope_at(level: Level, x: Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    x.inplace_op3(cos, sin, &Rope { level })?;
    Ok(x)
}

struct Rope {
    level: Level,
}

impl InplaceOp3 for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(
        &self,
        x: &mut CpuStorage,
        layout: &Layout,
        cos: &CpuStorage,
        cos_layout: &Layout,
        sin: &CpuStorage,
        sin_layout: &Layout,
    ) -> Result<()> {
        let (rows, heads, head_dim) = layout.shape().dims3()?;
        let (angle_rows, pairs) = cos_layout.shape().dims2()?;
        if cos_layout.dims() != sin_layout.dims() || angle_rows != rows || 2 * pairs > head_dim {
            bail!(
                "rope: cos {:?} and sin {:?} don't fit {:?}",
                cos_layout.dims(),
                sin_layout.dims(),
                layout.dims()
            );
        }
        let cos = storage::contiguous::<f32>(self.name(), cos, cos_layout)?;
        let sin = storage::contiguous::<f32>(self.name(), sin, sin_layout)?;
        let x = storage::contiguous_mut::<f32>(self.name(), x, layout)?;
        self.level.run(Rotate { x, cos, sin, heads, head_dim, pairs });
        Ok(())
    }
}

struct Rotate<'a> {
    x: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    heads: usize,
    head_dim: usize,
    pairs: usize,
}

impl Kernel for Rotate<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        if self.heads * self.head_dim == 0 || self.pairs == 0 {
            return;
        }
        let rows = self.x.chunks_exact_mut(self.heads * self.head_dim);
        let angles = self.cos.chunks_exact(self.pairs).zip(self.sin.chunks_exact(self.pairs));
        for (row, (cos, sin)) in rows.zip(angles) {
            for head in row.chunks_exact_mut(self.head_dim) {
                rotate_head(l, head, cos, sin);
            }
        }
    }
}

#[inline(always)]
fn rotate_head<L: Lanes>(l: L, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    let (first, rest) = head.split_at_mut(pairs);
    let (first, first_tail) = first.as_chunks_mut::<LANES>();
    let (second, second_tail) = rest[..pairs].as_chunks_mut::<LANES>();
    let (cos, cos_tail) = cos.as_chunks::<LANES>();
    let (sin, sin_tail) = sin.as_chunks::<LANES>();
    for i in 0..first.len() {
        let (a, b) = (l.load(&first[i]), l.load(&second[i]));
        let (cos, sin) = (l.load(&cos[i]), l.load(&sin[i]));
        l.store(l.sub(l.mul(a, cos), l.mul(b, sin)), &mut first[i]);
        l.store(l.mul_add(b, cos, l.mul(a, sin)), &mut second[i]);
    }
    for i in 0..first_tail.len() {
        let (a, b) = (first_tail[i], second_tail[i]);
        first_tail[i] = a * cos_tail[i] - b * sin_tail[i];
        second_tail[i] = b * cos_tail[i] + a * sin_tail[i];
    }
}

#[cfg(test)]
mod tests;
