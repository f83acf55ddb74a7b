//! Hidden states to one embedding: pooled row by row, cut, scaled to length 1.
//!
//! Sums are taken in f64 in the order of positions, so where a text is cut into steps changes
//! nothing. Knows no model and no request. The ways of pooling are those of sentence-transformers.

use crate::config::Pooling;

/// How the model embeds when a request doesn't say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingStyle {
    /// What becomes of the hidden states.
    pub pooling: Pooling,
    /// Scale to length 1.
    pub normalize: bool,
}

/// Takes a text's hidden states in order of position, as many as its pooling needs.
#[derive(Clone, Debug)]
pub struct Pooler {
    pooling: Pooling,
    sums: Vec<f64>,
    count: u32,
}

/// What becomes of the pooled vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaping {
    /// Keep so many of the first elements; `None` keeps all.
    pub dimensions: Option<usize>,
    /// Scale to length 1.
    pub normalize: bool,
}

impl Pooler {
    /// Before the first row.
    pub fn new(pooling: Pooling) -> Self {
        Self { pooling, sums: Vec::new(), count: 0 }
    }

    /// Takes the hidden state of the next token: of the first or last one alone, or of each.
    pub fn add(&mut self, row: &[f32]) {
        self.count += 1;
        let row = row.iter().map(|x| f64::from(*x));
        if self.count == 1 {
            self.sums = row.collect();
            return;
        }
        let weight = f64::from(self.count);
        for (sum, x) in self.sums.iter_mut().zip(row) {
            match self.pooling {
                Pooling::Last => *sum = x,
                Pooling::Cls => {}
                Pooling::Max => *sum = sum.max(x),
                Pooling::Mean | Pooling::MeanSqrtLen => *sum += x,
                Pooling::WeightedMean => *sum += weight * x,
            }
        }
    }

    /// The pooled vector; empty if nothing was added.
    pub fn finish(self) -> Vec<f32> {
        let count = f64::from(self.count);
        let divisor = match self.pooling {
            Pooling::Last | Pooling::Cls | Pooling::Max => 1.0,
            Pooling::Mean => count,
            Pooling::MeanSqrtLen => count.sqrt(),
            Pooling::WeightedMean => count * (count + 1.0) / 2.0,
        };
        self.sums.into_iter().map(|sum| narrow(sum / divisor)).collect()
    }
}

impl Shaping {
    /// Cuts, then scales.
    pub fn apply(self, mut embedding: Vec<f32>) -> Vec<f32> {
        embedding.truncate(self.dimensions.unwrap_or(usize::MAX));
        if self.normalize {
            normalize(&mut embedding);
        }
        embedding
    }
}

/// Scales to length 1; a vector without length stays as it is.
pub fn normalize(vector: &mut [f32]) {
    let squares = vector.iter().map(|x| f64::from(*x) * f64::from(*x));
    // As in torch, which divides by no less.
    let length = squares.sum::<f64>().sqrt().max(1e-12);
    for x in vector {
        *x = narrow(f64::from(*x) / length);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "embeddings are f32")]
fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(pooling: Pooling, rows: &[&[f32]]) -> Vec<f32> {
        let mut pooler = Pooler::new(pooling);
        for row in rows {
            pooler.add(row);
        }
        pooler.finish()
    }

    #[test]
    fn each_way_of_pooling_does_what_it_says() {
        let rows: [&[f32]; 3] = [&[1.0, -6.0], &[2.0, 0.0], &[6.0, 3.0]];
        assert_eq!(pooled(Pooling::Last, &rows), [6.0, 3.0]);
        assert_eq!(pooled(Pooling::Cls, &rows), [1.0, -6.0]);
        assert_eq!(pooled(Pooling::Max, &rows), [6.0, 3.0]);
        assert_eq!(pooled(Pooling::Mean, &rows), [3.0, -1.0]);
        assert_eq!(pooled(Pooling::WeightedMean, &rows), [23.0 / 6.0, 0.5]);
        let root = 3.0_f64.sqrt();
        let expected = [narrow(9.0 / root), narrow(-3.0 / root)];
        assert_eq!(pooled(Pooling::MeanSqrtLen, &rows), expected);
        assert_eq!(pooled(Pooling::Mean, &[]), [0.0; 0]);
    }

    #[test]
    fn what_is_cut_is_scaled_afterwards() {
        let shaping = Shaping { dimensions: Some(2), normalize: true };
        assert_eq!(shaping.apply(vec![3.0, 4.0, 100.0]), [0.6, 0.8]);
        let cut = Shaping { dimensions: Some(1), normalize: false };
        assert_eq!(cut.apply(vec![3.0, 4.0]), [3.0]);
        let whole = Shaping { dimensions: None, normalize: true };
        assert_eq!(whole.apply(vec![0.0, 0.0]), [0.0, 0.0]);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for pooling in Pooling::ALL {
            assert_eq!(Pooling::named(pooling.name()), Some(pooling));
        }
        assert_eq!(Pooling::named("median"), None);
    }
}
