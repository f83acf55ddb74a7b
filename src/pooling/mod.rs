//! Hidden states to what a request wants of them: pooled row by row or kept token by token, taken
//! through the layers of a head, activated, cut.
//!
//! Sums are taken in f64 in the order of positions, so where a text is cut into steps changes
//! nothing. Knows no model and no request. The ways of pooling are those of sentence-transformers.

use std::sync::Arc;

use crate::config::Pooling;

mod layers;

use layers::narrow;
pub use layers::{Dense, DenseActivation, HeadLayer, LayerNorm, normalize};

/// How a model's hidden states become vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolingHead {
    /// What the vectors say.
    pub outputs: Outputs,
    /// How hidden states become one vector, where tokens have none of their own.
    pub pooling: Pooling,
    /// Layers that are applied to every vector, in order.
    pub layers: Arc<[HeadLayer]>,
    /// What is done at the end, unless a request decides otherwise.
    pub activation: Activation,
    /// Whether it is done where a request says nothing.
    pub active: bool,
    /// Keep so many of the first elements, after the activation; `None` keeps all.
    pub cut: Option<usize>,
    /// What is made of every token's hidden state besides, each by a head of its own.
    pub further: Arc<[TokenHead]>,
}

/// A head beside the main one, which makes a vector of each token's hidden state.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenHead {
    /// What the vectors say.
    pub outputs: Outputs,
    /// From a hidden state to a vector.
    pub layer: Dense,
    /// What is done at the end, unless a request decides otherwise.
    pub activation: Activation,
}

/// What the vectors of a model say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Where a text is in a space of meanings.
    Embedding,
    /// How much each token of the vocabulary says what a text is about; most are 0.
    Lexical,
    /// The same of every token: texts are compared token by token (late interaction).
    TokenEmbeddings,
    /// How well a text fits each of several classes.
    Classes,
    /// The same of every token.
    TokenClasses,
    /// How much each token of a text says what it is about, in one number above or at 0.
    TokenWeights,
    /// The hidden state of every token, as the network gives it.
    HiddenStates,
}

impl Outputs {
    /// Whether every token has a vector of its own.
    pub fn is_of_tokens(self) -> bool {
        match self {
            Self::Embedding | Self::Lexical | Self::Classes => false,
            Self::TokenEmbeddings
            | Self::TokenClasses
            | Self::TokenWeights
            | Self::HiddenStates => true,
        }
    }

    /// Whether vectors are scores of classes.
    pub fn is_of_classes(self) -> bool {
        matches!(self, Self::Classes | Self::TokenClasses)
    }
}

/// What is done with a vector at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// Scale to length 1.
    Normalize,
    /// Zero below zero.
    Relu,
    /// `1 / (1 + exp(-x))` of every element.
    Sigmoid,
    /// Probabilities that add up to 1.
    Softmax,
}

/// What a request wants of a text's hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Which of the model's outputs; `None` is what the model is there for.
    pub outputs: Option<Outputs>,
    /// Keep so many of the first elements of an embedding; `None` keeps all.
    pub dimensions: Option<usize>,
    /// Do what the head has at the end; `None` does what the model's author says.
    pub activation: Option<bool>,
}

impl PoolingHead {
    /// A head that pools to an embedding, without further layers.
    pub fn new(pooling: Pooling, normalize: bool) -> Self {
        Self {
            outputs: Outputs::Embedding,
            pooling,
            layers: [].into(),
            activation: Activation::Normalize,
            active: normalize,
            cut: None,
            further: [].into(),
        }
    }

    /// The head of a network that says itself how much each token of the vocabulary matters.
    pub fn lexical() -> Self {
        let head = Self::new(Pooling::Splade, false);
        Self { outputs: Outputs::Lexical, activation: Activation::Identity, ..head }
    }

    /// Elements of a vector for hidden states of this size.
    pub fn size(&self, hidden_size: usize) -> usize {
        let outputs = |layer: &HeadLayer| match layer {
            HeadLayer::Dense(dense) => Some(dense.weight.len()),
            HeadLayer::Normalize | HeadLayer::LayerNorm(_) => None,
        };
        let size = self.layers.iter().rev().find_map(outputs).unwrap_or(hidden_size);
        self.cut.map_or(size, |cut| cut.min(size))
    }

    /// Whether vectors are scaled to length 1, unless a request decides otherwise.
    pub fn normalizes(&self) -> bool {
        self.active && self.activation == Activation::Normalize
    }

    /// The outputs of further heads, each with the elements of a vector.
    pub fn further_sizes(&self) -> Vec<(Outputs, usize)> {
        self.further.iter().map(|head| (head.outputs, head.layer.weight.len())).collect()
    }

    /// What pools the hidden states of one text; `outputs`: as [`Wanted`] has it.
    pub fn pooler(&self, outputs: Option<Outputs>) -> Pooler {
        let keeps_all = outputs.unwrap_or(self.outputs).is_of_tokens();
        Pooler::new((!keeps_all).then_some(self.pooling))
    }

    /// The vector of a text, or those of its tokens one after the other.
    pub fn finish(&self, pooler: Pooler, wanted: Wanted) -> Vec<f32> {
        let outputs = wanted.outputs.unwrap_or(self.outputs);
        let further = self.further.iter().find(|head| head.outputs == outputs);
        let finish = |mut vector: Vec<f32>| match further {
            Some(head) => head.finish(&vector, wanted.activation),
            // The layers of a head that pools are for what is pooled.
            None if outputs == Outputs::HiddenStates => {
                if wanted.activation == Some(true) {
                    Activation::Normalize.apply(&mut vector);
                }
                vector
            }
            None => self.finish_main(vector, wanted),
        };
        pooler.finish().into_iter().flat_map(finish).collect()
    }

    fn finish_main(&self, mut vector: Vec<f32>, wanted: Wanted) -> Vec<f32> {
        for layer in &*self.layers {
            vector = layer.forward(vector);
        }
        vector.truncate(wanted.dimensions.unwrap_or(usize::MAX));
        if wanted.activation.unwrap_or(self.active) {
            self.activation.apply(&mut vector);
        }
        vector.truncate(self.cut.unwrap_or(usize::MAX));
        vector
    }
}

impl TokenHead {
    fn finish(&self, hidden: &[f32], activation: Option<bool>) -> Vec<f32> {
        let mut vector = self.layer.forward(hidden);
        if activation.unwrap_or(true) {
            self.activation.apply(&mut vector);
        }
        vector
    }
}

impl Activation {
    /// Does it, in f64.
    pub fn apply(self, vector: &mut [f32]) {
        match self {
            Self::Identity => {}
            Self::Normalize => normalize(vector),
            Self::Relu => {
                for x in vector {
                    *x = x.max(0.0);
                }
            }
            Self::Sigmoid => {
                for x in vector {
                    *x = narrow(1.0 / (1.0 + (-f64::from(*x)).exp()));
                }
            }
            Self::Softmax => {
                let largest = vector.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let power = |x: f32| f64::from(x - largest).exp();
                let total: f64 = vector.iter().map(|x| power(*x)).sum();
                for x in vector {
                    *x = narrow(power(*x) / total);
                }
            }
        }
    }
}

/// Pools the hidden states of one text, in order of position, as many as its pooling reads.
#[derive(Clone, Debug)]
pub struct Pooler {
    /// `None` keeps every row.
    pooling: Option<Pooling>,
    rows: Vec<Vec<f32>>,
    sums: Vec<f64>,
    count: u32,
}

impl Pooler {
    /// A pooler that has no rows; without a way of pooling it keeps all that come.
    pub fn new(pooling: Option<Pooling>) -> Self {
        Self { pooling, rows: Vec::new(), sums: Vec::new(), count: 0 }
    }

    /// The way of pooling, if it pools.
    pub fn pooling(&self) -> Option<Pooling> {
        self.pooling
    }

    /// Adds the hidden state of the next token that the pooling reads.
    pub fn add(&mut self, row: &[f32]) {
        let Some(pooling) = self.pooling else { return self.rows.push(row.to_vec()) };
        self.count += 1;
        let row = row.iter().map(|x| f64::from(*x));
        if self.count == 1 {
            self.sums = row.collect();
            return;
        }
        let weight = f64::from(self.count);
        for (sum, x) in self.sums.iter_mut().zip(row) {
            match pooling {
                Pooling::Last => *sum = x,
                Pooling::Cls => {}
                Pooling::Max | Pooling::Splade => *sum = sum.max(x),
                Pooling::Mean | Pooling::MeanSqrtLen => *sum += x,
                Pooling::WeightedMean => *sum += weight * x,
            }
        }
    }

    /// The pooled vector, or all that were kept; none if nothing was added.
    pub fn finish(self) -> Vec<Vec<f32>> {
        let count = f64::from(self.count);
        let divisor = match self.pooling {
            None => return self.rows,
            _ if self.count == 0 => return Vec::new(),
            Some(Pooling::Last | Pooling::Cls | Pooling::Max | Pooling::Splade) => 1.0,
            Some(Pooling::Mean) => count,
            Some(Pooling::MeanSqrtLen) => count.sqrt(),
            Some(Pooling::WeightedMean) => count * (count + 1.0) / 2.0,
        };
        vec![self.sums.into_iter().map(|sum| narrow(sum / divisor)).collect()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(pooling: Pooling, rows: &[&[f32]]) -> Vec<f32> {
        let mut pooler = Pooler::new(Some(pooling));
        for row in rows {
            pooler.add(row);
        }
        pooler.finish().concat()
    }

    fn finished(head: &PoolingHead, row: &[f32], dimensions: Option<usize>) -> Vec<f32> {
        let mut pooler = head.pooler(None);
        pooler.add(row);
        head.finish(pooler, Wanted { dimensions, ..Wanted::default() })
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
        let head = PoolingHead::new(Pooling::Last, true);
        assert_eq!(finished(&head, &[3.0, 4.0, 100.0], Some(2)), [0.6, 0.8]);
        assert_eq!(finished(&head, &[0.0, 0.0], None), [0.0, 0.0]);
        let plain = PoolingHead::new(Pooling::Last, false);
        assert_eq!(finished(&plain, &[3.0, 4.0], Some(1)), [3.0]);
    }

    fn near(vector: &[f32], expected: &[f32]) {
        assert_eq!(vector.len(), expected.len(), "{vector:?}");
        for (x, expected) in vector.iter().zip(expected) {
            assert!((x - expected).abs() < 1e-6, "{x} {expected}");
        }
    }

    #[test]
    fn layers_are_applied_in_order() {
        let dense = Dense {
            weight: vec![vec![1.0, 1.0], vec![0.0, -1.0], vec![2.0, 0.0]],
            bias: vec![0.0, 0.0, 0.5],
            activation: DenseActivation::Relu,
        };
        let layers = [HeadLayer::Normalize, HeadLayer::Dense(dense)].into();
        let head = PoolingHead { layers, ..PoolingHead::new(Pooling::Last, false) };
        assert_eq!(head.size(2), 3);
        assert_eq!(PoolingHead::new(Pooling::Last, true).size(2), 2);
        near(&finished(&head, &[3.0, 4.0], None), &[1.4, 0.0, 1.7]);
        // What the model's author cuts is not scaled again, what a request cuts is.
        let head = PoolingHead { cut: Some(2), ..PoolingHead::new(Pooling::Last, true) };
        assert_eq!((head.size(9), head.size(1)), (2, 1));
        near(&finished(&head, &[2.0, 3.0, 6.0], None), &[2.0 / 7.0, 3.0 / 7.0]);
        near(&finished(&head, &[2.0, 3.0, 6.0], Some(1)), &[1.0]);
    }

    #[test]
    fn activations_make_probabilities_unless_a_request_wants_logits() {
        let classes = PoolingHead {
            outputs: Outputs::Classes,
            activation: Activation::Softmax,
            ..PoolingHead::new(Pooling::Cls, true)
        };
        near(&finished(&classes, &[0.0, 3f32.ln()], None), &[0.25, 0.75]);
        let sigmoid = PoolingHead { activation: Activation::Sigmoid, ..classes.clone() };
        near(&finished(&sigmoid, &[0.0, 3f32.ln()], None), &[0.5, 0.75]);
        let mut pooler = classes.pooler(None);
        pooler.add(&[7.0, -2.0]);
        let raw = Wanted { activation: Some(false), ..Wanted::default() };
        assert_eq!(classes.finish(pooler, raw), [7.0, -2.0]);
    }

    #[test]
    fn tokens_keep_their_own_vectors_where_they_are_wanted() {
        let rows: [&[f32]; 2] = [&[3.0, 4.0], &[0.0, 2.0]];
        let of = |head: &PoolingHead, wanted: Wanted| {
            let mut pooler = head.pooler(wanted.outputs);
            for row in rows {
                pooler.add(row);
            }
            head.finish(pooler, wanted)
        };
        let pooled = PoolingHead::new(Pooling::Mean, true);
        let want = |outputs| Wanted { outputs: Some(outputs), ..Wanted::default() };
        assert_eq!(of(&pooled, want(Outputs::HiddenStates)), [3.0, 4.0, 0.0, 2.0]);
        let late = PoolingHead { outputs: Outputs::TokenEmbeddings, ..pooled.clone() };
        near(&of(&late, Wanted::default()), &[0.6, 0.8, 0.0, 1.0]);
        // Two heads beside the one that pools: they read what is pooled, not what becomes of it.
        let layer = |weight: Vec<Vec<f32>>, bias: Vec<f32>| Dense {
            weight,
            bias,
            activation: DenseActivation::Identity,
        };
        let weights = TokenHead {
            outputs: Outputs::TokenWeights,
            layer: layer(vec![vec![1.0, -1.0]], vec![1.5]),
            activation: Activation::Relu,
        };
        let vectors = TokenHead {
            outputs: Outputs::TokenEmbeddings,
            layer: layer(vec![vec![0.0, 1.0], vec![1.0, 0.0], vec![0.0, 0.0]], vec![0.0; 3]),
            activation: Activation::Normalize,
        };
        let several = PoolingHead { further: [weights, vectors].into(), ..pooled };
        let sizes = [(Outputs::TokenWeights, 1), (Outputs::TokenEmbeddings, 3)];
        assert_eq!(several.further_sizes(), sizes);
        assert_eq!(of(&several, want(Outputs::TokenWeights)), [0.5, 0.0]);
        let raw = Wanted { activation: Some(false), ..want(Outputs::TokenWeights) };
        assert_eq!(of(&several, raw), [0.5, -0.5]);
        near(&of(&several, want(Outputs::TokenEmbeddings)), &[0.8, 0.6, 0.0, 1.0, 0.0, 0.0]);
        near(&of(&several, Wanted::default()), &[0.447_213_6, 0.894_427_2]);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for pooling in Pooling::ALL {
            assert_eq!(Pooling::named(pooling.name()), Some(pooling));
        }
        assert_eq!(Pooling::named("median"), None);
    }
}
