//! The order of a picture's patches in a tower, and where each of them is.
//!
//! The patches of a token stand together, in rows. The tokens stand in rows too or, where layers attend
//! within windows, window by window.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};

use super::spec::TowerSpec;

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
        let merge = spec.merge;
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
                    let patches = (0..merge * merge).map(|i| [i / merge, i % merge]);
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
        let half = spec.head_dim() / 2;
        let frequency = |i: usize| 1.0 / spec.rope_theta.powf((2 * i) as f32 / half as f32);
        let frequencies: Vec<f32> = (0..half / 2).map(frequency).collect();
        let angles = self.places.iter().flatten();
        let angles = angles.flat_map(|place| frequencies.iter().map(|f| *place as f32 * f));
        let (sin, cos): (Vec<f32>, Vec<f32>) = angles.map(f32::sin_cos).unzip();
        let tensor = |numbers| Tensor::from_vec(numbers, (self.places.len(), half), device);
        Ok([tensor(cos)?, tensor(sin)?])
    }

    /// The learned embedding `[side * side, hidden]`, interpolated so that its corners are those of the
    /// picture: `[patches, hidden]`.
    pub(super) fn positions(&self, table: &Tensor, side: usize) -> Result<Tensor> {
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
}
