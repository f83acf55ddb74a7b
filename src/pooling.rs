//! Hidden states to one embedding: pooled row by row, cut, scaled to length 1.
//!
//! Sums are taken in f64 in the order of positions, so where a text is cut into steps changes
//! nothing. Knows no model and no request. The ways of pooling are those of sentence-transformers.

use std::sync::Arc;

use crate::config::Pooling;

/// How a model's hidden states become an embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingHead {
    /// How hidden states become one vector.
    pub pooling: Pooling,
    /// Layers that are applied to the pooled vector, in order.
    pub layers: Arc<[HeadLayer]>,
    /// Scale to length 1 at the end, unless a request decides otherwise.
    pub normalize: bool,
    /// Keep so many of the first elements, after scaling; `None` keeps all.
    pub cut: Option<usize>,
}

/// One step from the pooled vector to the embedding.
#[derive(Clone, Debug, PartialEq)]
pub enum HeadLayer {
    /// A linear layer.
    Dense(Dense),
    /// Scale to length 1.
    Normalize,
}

/// A linear layer, `activation(W x + b)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Rows of the matrix, each as long as the input.
    pub weight: Vec<Vec<f32>>,
    /// The bias of each row, or empty.
    pub bias: Vec<f32>,
    /// Applied to each element.
    pub activation: DenseActivation,
}

/// The activation of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseActivation {
    /// No activation.
    Identity,
    /// Hyperbolic tangent.
    Tanh,
    /// Zero below zero.
    Relu,
}

impl EmbeddingHead {
    /// A head that pools, without further layers.
    pub fn new(pooling: Pooling, normalize: bool) -> Self {
        Self { pooling, layers: [].into(), normalize, cut: None }
    }

    /// Elements of an embedding for hidden states of this size.
    pub fn embedding_size(&self, hidden_size: usize) -> usize {
        let outputs = |layer: &HeadLayer| match layer {
            HeadLayer::Dense(dense) => Some(dense.weight.len()),
            HeadLayer::Normalize => None,
        };
        let size = self.layers.iter().rev().find_map(outputs).unwrap_or(hidden_size);
        self.cut.map_or(size, |cut| cut.min(size))
    }

    /// The embedding of pooled hidden states; a request may want fewer dimensions, scaled or not.
    pub fn finish(
        &self,
        pooler: Pooler,
        dimensions: Option<usize>,
        normalize: Option<bool>,
    ) -> Vec<f32> {
        let mut vector = pooler.finish();
        for layer in &*self.layers {
            match layer {
                HeadLayer::Dense(dense) => vector = dense.forward(&vector),
                HeadLayer::Normalize => scale(&mut vector),
            }
        }
        let normalize = normalize.unwrap_or(self.normalize);
        let mut embedding = Shaping { dimensions, normalize }.apply(vector);
        embedding.truncate(self.cut.unwrap_or(usize::MAX));
        embedding
    }
}

impl Dense {
    fn forward(&self, x: &[f32]) -> Vec<f32> {
        let outputs = self.weight.iter().enumerate().map(|(at, row)| {
            let products = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let sum = products.sum::<f64>() + self.bias.get(at).copied().map_or(0.0, f64::from);
            narrow(match self.activation {
                DenseActivation::Identity => sum,
                DenseActivation::Tanh => sum.tanh(),
                DenseActivation::Relu => sum.max(0.0),
            })
        });
        outputs.collect()
    }
}

/// Pools the hidden states of one text, in order of position, as many as its pooling reads.
#[derive(Clone, Debug)]
pub struct Pooler {
    pooling: Pooling,
    sums: Vec<f64>,
    count: u32,
}

/// How a vector is cut and scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaping {
    /// Keep so many of the first elements; `None` keeps all.
    pub dimensions: Option<usize>,
    /// Scale to length 1.
    pub normalize: bool,
}

impl Pooler {
    /// A pooler that has no rows.
    pub fn new(pooling: Pooling) -> Self {
        Self { pooling, sums: Vec::new(), count: 0 }
    }

    /// Adds the hidden state of the next token that the pooling reads.
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
    /// Cuts, then scales a vector.
    pub fn apply(self, mut embedding: Vec<f32>) -> Vec<f32> {
        embedding.truncate(self.dimensions.unwrap_or(usize::MAX));
        if self.normalize {
            scale(&mut embedding);
        }
        embedding
    }
}

/// Scales a vector to length 1; one of zeros stays as it is.
fn scale(vector: &mut [f32]) {
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
    fn layers_are_applied_in_order() {
        let dense = Dense {
            weight: vec![vec![1.0, 1.0], vec![0.0, -1.0], vec![2.0, 0.0]],
            bias: vec![0.0, 0.0, 0.5],
            activation: DenseActivation::Relu,
        };
        let layers = [HeadLayer::Normalize, HeadLayer::Dense(dense)].into();
        let head = EmbeddingHead { layers, ..EmbeddingHead::new(Pooling::Last, false) };
        assert_eq!(head.embedding_size(2), 3);
        assert_eq!(EmbeddingHead::new(Pooling::Last, true).embedding_size(2), 2);
        let mut pooler = Pooler::new(Pooling::Last);
        pooler.add(&[3.0, 4.0]);
        let near = |vector: Vec<f32>, expected: &[f32]| {
            assert_eq!(vector.len(), expected.len(), "{vector:?}");
            for (x, expected) in vector.iter().zip(expected) {
                assert!((x - expected).abs() < 1e-6, "{x} {expected}");
            }
        };
        near(head.finish(pooler.clone(), None, None), &[1.4, 0.0, 1.7]);
        // What the model's author cuts is not scaled again, what a request cuts is.
        let head = EmbeddingHead { cut: Some(2), ..EmbeddingHead::new(Pooling::Last, true) };
        assert_eq!((head.embedding_size(9), head.embedding_size(1)), (2, 1));
        let mut pooler = Pooler::new(Pooling::Last);
        pooler.add(&[2.0, 3.0, 6.0]);
        near(head.finish(pooler.clone(), None, None), &[2.0 / 7.0, 3.0 / 7.0]);
        near(head.finish(pooler, Some(1), None), &[1.0]);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for pooling in Pooling::ALL {
            assert_eq!(Pooling::named(pooling.name()), Some(pooling));
        }
        assert_eq!(Pooling::named("median"), None);
    }
}
