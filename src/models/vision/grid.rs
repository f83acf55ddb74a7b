//! The order of a picture's patches in a tower, and where each of them is.
//!
//! The patches of a token stand together, in rows. The tokens stand in rows too or, where layers attend
//! within windows, window by window.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::spec::{Fit, RopeLayout, TowerRope, TowerSpec};
use crate::pictures::resize::{Kernel, kernel_weights};

/// The patches of one picture in a tower's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Row and column of each patch.
    pub(super) places: Vec<[usize; 2]>,
    /// Rows and columns of patches.
    pub(super) size: [usize; 2],
    /// Patches of each window; all of them where there are none.
    pub(super) windows: Vec<usize>,
    /// For each token in rows, where it stands.
    pub(super) order: Vec<u32>,
}

impl Grid {
    /// The patches of a picture with so many `[rows, columns]` of tokens.
    pub(super) fn new([rows, columns]: [usize; 2], spec: &TowerSpec) -> Self {
        // The patches that are merged early stand together.
        let (merge, inner) = (spec.merge, spec.early_merge());
        let side = spec.windows.as_ref().map_or(rows.max(columns), |windows| windows.side);
        let (mut places, mut windows) = (Vec::new(), Vec::new());
        let mut order = vec![0; rows * columns];
        let starts = |end: usize| (0..end).step_by(side);
        for (top, left) in starts(rows).flat_map(|top| starts(columns).map(move |left| (top, left)))
        {
            let before = places.len();
            for row in span(top, side, rows) {
                for column in span(left, side, columns) {
                    let token = places.len() / (merge * merge);
                    order[row * columns + column] =
                        u32::try_from(token).expect("pictures have fewer than 2^32 pixels");
                    let patches = (0..merge * merge).map(|i| nested(i, merge, inner));
                    places.extend(patches.map(|[y, x]| [row * merge + y, column * merge + x]));
                }
            }
            windows.push(places.len() - before);
        }
        Self { places, size: [rows * merge, columns * merge], windows, order }
    }

    /// Cosines and sines of the rotary embedding, each `[patches, head_dim / 2]`: a half of the pairs
    /// turns by rows, the other by columns.
    #[expect(clippy::cast_precision_loss, reason = "sides are far below 2^24")]
    pub(super) fn angles(&self, spec: &TowerSpec, device: &Device) -> Result<[Tensor; 2]> {
        let Some(TowerRope { theta, layout }) = spec.rope else {
            let none = Tensor::zeros((self.places.len(), 0), DType::F32, device)?;
            return Ok([none.clone(), none]);
        };
        let half = spec.head_dim() / 2;
        let frequency = |i: usize| 1.0 / theta.powf(i as f32 / (2 * half) as f32);
        let own = |shift: usize| (0..half / 2).map(|i| frequency(4 * i + shift)).collect();
        let turns = layout == RopeLayout::Turns;
        let frequencies: [Vec<f32>; 2] = [own(0), own(if turns { 2 } else { 0 })];
        let (axes, first) = match layout {
            RopeLayout::Joint | RopeLayout::Turns => ([0, 1], 0),
            RopeLayout::Apart | RopeLayout::Alternating | RopeLayout::NeighboursFromZero => {
                ([1, 0], 0)
            }
            RopeLayout::Neighbours => ([1, 0], 1),
        };
        let axes = self
            .places
            .iter()
            .flat_map(|place| axes.map(|axis| place[axis] + first).into_iter().zip(&frequencies));
        let angles = axes.flat_map(|(place, own)| own.iter().map(move |f| place as f32 * f));
        let (sin, cos): (Vec<f32>, Vec<f32>) = angles.map(f32::sin_cos).unzip();
        let tensor = |numbers| Tensor::from_vec(numbers, (self.places.len(), half), device);
        Ok([tensor(cos)?, tensor(sin)?])
    }

    /// The learned embedding `[side * side, hidden]` of the places of the patches: `[patches, hidden]`.
    pub(super) fn positions(&self, table: &Tensor, side: usize, fit: Fit) -> Result<Tensor> {
        let at = |[row, column]: [usize; 2]| row * side + column;
        match fit {
            Fit::Corners => self.between_corners(table, side),
            Fit::Shares => {
                let on = |axis: usize| {
                    (0..self.size[axis]).map(move |i| share(i, self.size[axis], side))
                };
                let [rows, columns]: [Vec<usize>; 2] = [on(0).collect(), on(1).collect()];
                self.select(table, |[row, column]| at([rows[row], columns[column]]))
            }
            Fit::Axes | Fit::PairedAxes if self.size.iter().all(|size| *size <= side) => {
                let columns = self.select(table, |[_, column]| column)?;
                columns + self.select(table, |[row, _]| side + row)?
            }
            Fit::Axes | Fit::PairedAxes => {
                bail!("{:?} patches, the tower knows {side} a side", self.size)
            }
            Fit::Resized => self.resized(table, side),
            Fit::Sampled => self.sampled(table, side, cubic),
            Fit::Between => self.sampled(table, side, linear),
            Fit::Whole | Fit::WholeBeforeClass if self.size == [side; 2] => self.select(table, at),
            Fit::Tiled => self.select(table, |place| at(place.map(|own| own % side))),
            Fit::Whole | Fit::WholeBeforeClass => {
                bail!("{:?} patches, the tower knows {side} x {side}", self.size)
            }
        }
    }

    fn select(&self, table: &Tensor, index: impl Fn([usize; 2]) -> usize) -> Result<Tensor> {
        let rows = self.places.iter().map(|place| u32::try_from(index(*place)));
        let rows = rows.collect::<std::result::Result<Vec<_>, _>>();
        let rows = rows.map_err(candle_core::Error::wrap)?;
        table.index_select(&Tensor::new(rows, table.device())?, 0)
    }

    /// Interpolated linearly, by a kernel that grows with the reduction.
    #[expect(clippy::cast_possible_truncation, reason = "weights are below 1")]
    fn resized(&self, table: &Tensor, side: usize) -> Result<Tensor> {
        let [rows, columns] = self.size.map(|size| kernel_weights(side, size, Kernel::Bilinear));
        let mut weights = vec![0.0; self.places.len() * side * side];
        for ([row, column], of_patch) in
            self.places.iter().zip(weights.chunks_exact_mut(side * side))
        {
            let ((top, down), (left, across)) = (&rows[*row], &columns[*column]);
            for (y, v) in (*top..).zip(down) {
                for (x, h) in (*left..).zip(across) {
                    of_patch[y * side + x] = (v * h) as f32;
                }
            }
        }
        let shape = (self.places.len(), side * side);
        Tensor::from_vec(weights, shape, table.device())?.matmul(table)
    }

    /// Interpolated between the centres of places, as torch's `grid_sample` does it in 32 bits.
    fn sampled<const TAPS: usize>(
        &self,
        table: &Tensor,
        side: usize,
        taps: fn(usize, usize, usize) -> [(usize, f32); TAPS],
    ) -> Result<Tensor> {
        let axis = |axis: usize| (0..self.size[axis]).map(move |i| taps(i, self.size[axis], side));
        let [rows, columns]: [Vec<_>; 2] = [axis(0).collect(), axis(1).collect()];
        let mut weights = vec![0f32; self.places.len() * side * side];
        for (of_patch, [row, column]) in weights.chunks_exact_mut(side * side).zip(&self.places) {
            for (y, v) in &rows[*row] {
                for (x, h) in &columns[*column] {
                    of_patch[y * side + x] += v * h;
                }
            }
        }
        let shape = (self.places.len(), side * side);
        Tensor::from_vec(weights, shape, table.device())?.matmul(table)
    }

    /// Interpolated so that the corners of the table are those of the picture.
    fn between_corners(&self, table: &Tensor, side: usize) -> Result<Tensor> {
        let count = self.places.len();
        let mut sum: Option<Tensor> = None;
        for corner in 0..4 {
            let (mut rows, mut weights) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for [row, column] in &self.places {
                let (y, v) = tap(*row, self.size[0], side, corner / 2);
                let (x, h) = tap(*column, self.size[1], side, corner % 2);
                rows.push(u32::try_from(y * side + x).map_err(candle_core::Error::wrap)?);
                weights.push(v * h);
            }
            let rows = Tensor::from_vec(rows, count, table.device())?;
            let weights = Tensor::from_vec(weights, (count, 1), table.device())?;
            let part = table.index_select(&rows, 0)?.broadcast_mul(&weights)?;
            sum = Some(sum.map_or_else(|| Ok(part.clone()), |sum| sum + &part)?);
        }
        sum.map_or_else(|| Tensor::zeros((0, 0), DType::F32, table.device()), Ok)
    }
}

/// The `shown` rows and columns of features `x [rows * columns, width]` of a grid with so many `columns`,
/// interpolated linearly to a grid of another size: `[size rows * size columns, width]`.
pub(super) fn reduced(
    x: &Tensor,
    columns: usize,
    [down, across]: &[Range<usize>; 2],
    size: [usize; 2],
) -> Result<Tensor> {
    let (tokens, width) = x.dims2()?;
    let x = x.reshape((tokens / columns, columns, width))?;
    let x = x.narrow(0, down.start, down.len())?.narrow(1, across.start, across.len())?;
    let x = interpolated(&x.contiguous()?, 0, size[0])?;
    interpolated(&x, 1, size[1])?.flatten_to(1)
}

/// `x` of three dimensions with `size` places along an axis, between the centres of those that it has.
fn interpolated(x: &Tensor, axis: usize, size: usize) -> Result<Tensor> {
    let known = x.dim(axis)?;
    let taps: Vec<_> = (0..size).map(|index| linear(index, size, known)).collect();
    let mut shape = [1; 3];
    shape[axis] = size;
    let part = |which: usize| -> Result<Tensor> {
        let places = taps.iter().map(|taps| u32::try_from(taps[which].0));
        let places = places.collect::<std::result::Result<Vec<_>, _>>();
        let places = Tensor::new(places.map_err(candle_core::Error::wrap)?, x.device())?;
        let weights: Vec<f32> = taps.iter().map(|taps| taps[which].1).collect();
        let weights = Tensor::from_vec(weights, &shape[..], x.device())?;
        x.index_select(&places, axis)?.broadcast_mul(&weights)
    };
    part(0)? + part(1)?
}

/// Row and column of the `index`-th patch of a token of `merge` patches a side, in which those of a square of
/// `inner` patches a side stand together, and the squares in rows.
fn nested(index: usize, merge: usize, inner: usize) -> [usize; 2] {
    let (square, within) = (index / (inner * inner), index % (inner * inner));
    let across = merge / inner;
    [square / across * inner + within / inner, square % across * inner + within % inner]
}

/// The positions from `start` on, `side` of them or up to `end`.
fn span(start: usize, side: usize, end: usize) -> Range<usize> {
    start..(start + side).min(end)
}

/// Of the two neighbours of `index` on an axis of `size` places in a table of `known` places, the
/// `which`-th and its weight.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^24"
)]
fn tap(index: usize, size: usize, known: usize, which: usize) -> (usize, f32) {
    let source = (index * (known - 1)) as f32 / (size - 1).max(1) as f32;
    let below = source.floor();
    let distance = (source - below - which as f32).abs();
    ((below as usize + which).min(known - 1), (1.0 - distance).max(0.0))
}

/// The four places among `known` ones that the `index`-th of `size` is interpolated of, and their weights.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^24, and places are clamped to them"
)]
fn cubic(index: usize, size: usize, known: usize) -> [(usize, f32); 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let normed = (index as f32 + 0.5) / size as f32 * 2.0 - 1.0;
    let source = ((normed + 1.0) * known as f32 - 1.0) / 2.0;
    let below = source.floor();
    let t = source - below;
    let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
    let place = |shift: f32| (below + shift).clamp(0.0, (known - 1) as f32) as usize;
    [0, 1, 2, 3].map(|tap| (place(tap as f32 - 1.0), weights[tap]))
}

/// The two places among `known` ones that the `index`-th of `size` is interpolated of, and their weights.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^24, and places are clamped to them"
)]
fn linear(index: usize, size: usize, known: usize) -> [(usize, f32); 2] {
    let source = (index as f32 + 0.5) * (known as f32 / size as f32) - 0.5;
    let source = source.clamp(0.0, (known - 1) as f32);
    let below = source.floor();
    let place = below as usize;
    [(place, 1.0 - (source - below)), ((place + 1).min(known - 1), source - below)]
}

/// The place among `known` ones whose share of all is that of `index` among `size`, or the next below,
/// in the reference's 32-bit arithmetic.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^24, and the reference computes in f32"
)]
fn share(index: usize, size: usize, known: usize) -> usize {
    let own = (index as f32 * (1.0 / size as f32)).min((1.0 - 1e-6) as f32);
    let step = 1.0 / known as f64;
    // As `arange(step, 1, step)` counts them.
    let count = ((1.0 - step) / step).ceil() as usize;
    (0..count).take_while(|i| (step + *i as f64 * step) as f32 <= own).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::models::vision::spec;

    fn of(class: &str, vision: &serde_json::Value) -> TowerSpec {
        spec(&json!({"architectures": [class], "vision_config": vision})).unwrap().unwrap()
    }

    #[test]
    fn the_patches_of_a_token_stand_together() {
        let grid = Grid::new([1, 2], &of("Qwen2VLForConditionalGeneration", &json!({})));
        let expected = [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]];
        assert_eq!(grid.places, expected);
        assert_eq!((grid.size, grid.windows, grid.order), ([2, 4], vec![8], vec![0, 1]));
    }

    #[test]
    fn patches_that_are_merged_early_stand_together_within_a_token() {
        let places: Vec<_> = (0..16).map(|i| nested(i, 4, 2)).collect();
        assert_eq!(places[..5], [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]);
        assert_eq!(places[8..10], [[2, 0], [2, 1]]);
        assert_eq!(places[15], [3, 3]);
        assert_eq!((0..4).map(|i| nested(i, 2, 1)).collect::<Vec<_>>()[2], [1, 0]);
    }

    #[test]
    fn windows_at_the_edges_are_smaller() {
        let vision = json!({"window_size": 56, "fullatt_block_indexes": [1], "depth": 2,
                            "hidden_size": 64});
        let grid = Grid::new([3, 3], &of("Qwen2_5_VLForConditionalGeneration", &vision));
        assert_eq!(grid.windows, [16, 8, 8, 4]);
        assert_eq!(grid.order, [0, 1, 4, 2, 3, 5, 6, 7, 8]);
        assert_eq!(grid.places[16], [0, 4]);
    }

    #[test]
    fn the_corners_of_the_table_are_those_of_the_picture() {
        assert_eq!(tap(0, 5, 3, 0), (0, 1.0));
        assert_eq!(tap(4, 5, 3, 0), (2, 1.0));
        assert_eq!(tap(4, 5, 3, 1), (2, 0.0));
        assert_eq!((tap(1, 5, 3, 0), tap(1, 5, 3, 1)), ((0, 0.5), (1, 0.5)));
        assert_eq!(tap(0, 1, 3, 0), (0, 1.0));
    }

    #[test]
    fn places_between_centres_are_interpolated_and_those_beyond_are_the_outermost() {
        assert_eq!(linear(0, 6, 3), [(0, 1.0), (1, 0.0)]);
        assert_eq!(linear(1, 6, 3), [(0, 0.75), (1, 0.25)]);
        assert_eq!(linear(5, 6, 3), [(2, 1.0), (2, 0.0)]);
        assert_eq!(linear(0, 1, 3), [(1, 1.0), (2, 0.0)]);
    }

    #[test]
    fn shares_of_a_side_are_those_of_the_reference() {
        // What torch's `bucketize` says in Idefics 3.
        let all = |size, known| (0..size).map(|i| share(i, size, known)).collect::<Vec<_>>();
        assert_eq!(all(4, 4), [0, 1, 2, 3]);
        assert_eq!(all(2, 4), [0, 2]);
        assert_eq!(all(6, 4), [0, 0, 1, 2, 2, 3]);
    }
}
