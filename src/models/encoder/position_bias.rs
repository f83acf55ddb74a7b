//! A bias of attention scores by relative position.
//!
//! Distances are put into buckets, half of them for keys before the query and half for keys behind it:
//! the first ones hold one distance each, the others ever more, and what is 128 or more away, or as far as
//! a model says, shares the last. Raffel et al., "Exploring the Limits of Transfer Learning", 2020, section
//! 2.1; MPNet has it too.

use candle_core::{DType, Result, Tensor};

use crate::layers::full_attention::Heads;
use crate::weights::{Loaded, Weights};

/// The table of biases, which all layers share.
pub(super) struct PositionBias {
    /// `[heads, buckets]`.
    table: Tensor,
    buckets: usize,
    /// From this distance on all share a bucket.
    far: usize,
}

impl PositionBias {
    /// Loads the table `name` of so many `buckets`, which distances from `far` on share the last of.
    pub(super) fn load(
        name: &str,
        [buckets, far]: [usize; 2],
        heads: Heads,
        weights: &Weights,
    ) -> Loaded<Self> {
        let table = weights.dense(name, &[buckets, heads.count], DType::F32)?;
        Ok(Self { table: table.t()?.contiguous()?, buckets, far })
    }

    /// What the score of a query (second index) for a key (third) has more: `[heads, length, length]`.
    pub(super) fn of_length(&self, length: usize) -> Result<Tensor> {
        let pairs = (0..length).flat_map(|query| (0..length).map(move |key| (query, key)));
        let buckets: Vec<u32> = pairs.map(|(query, key)| self.bucket(query, key)).collect();
        let buckets = Tensor::new(buckets, self.table.device())?;
        self.table.index_select(&buckets, 1)?.reshape(((), length, length))
    }

    /// The bucket of a key as seen from a query.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "distances and buckets are small"
    )]
    fn bucket(&self, query: usize, key: usize) -> u32 {
        let half = self.buckets / 2;
        let first = if key > query { half } else { 0 };
        let distance = query.abs_diff(key);
        let exact = half / 2;
        let within = if distance < exact {
            distance
        } else {
            let share =
                (distance as f32 / exact as f32).ln() / (self.far as f32 / exact as f32).ln();
            (exact + (share * (half - exact) as f32) as usize).min(half - 1)
        };
        (first + within) as u32
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn near_distances_have_buckets_of_their_own_and_far_ones_share() {
        let table = Tensor::zeros((1, 32), DType::F32, &Device::Cpu).unwrap();
        let bias = PositionBias { table, buckets: 32, far: 128 };
        let buckets =
            |keys: &[usize]| keys.iter().map(|key| bias.bucket(500, *key)).collect::<Vec<_>>();
        assert_eq!(buckets(&[500, 499, 493, 492, 484, 400, 372, 0]), [0, 1, 7, 8, 10, 15, 15, 15]);
        assert_eq!(buckets(&[501, 507, 508, 516, 999]), [17, 23, 24, 26, 31]);
    }
}
