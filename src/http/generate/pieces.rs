//! Texts that are longer than a model takes, embedded piece by piece.
//!
//! The vectors of pieces become one as the whole text's would from the hidden states of all: a mean by
//! tokens for embeddings, the largest weight for those of words, one after the other for tokens.

use crate::engine::request::Wanted;
use crate::engine::{EngineLimits, Outputs, normalize};

/// The lengths of the pieces of each text, in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pieces(Vec<Vec<usize>>);

impl Pieces {
    /// Cuts texts into pieces of at most `most` tokens; returns them one after the other.
    pub(super) fn of(texts: Vec<Vec<u32>>, most: usize) -> (Self, Vec<Vec<u32>>) {
        let mut pieces = Vec::with_capacity(texts.len());
        let mut lengths = Vec::with_capacity(texts.len());
        for text in texts {
            if text.len() <= most {
                lengths.push(vec![text.len()]);
                pieces.push(text);
                continue;
            }
            lengths.push(text.chunks(most).map(<[u32]>::len).collect());
            pieces.extend(text.chunks(most).map(<[u32]>::to_vec));
        }
        (Self(lengths), pieces)
    }

    /// The vectors of texts from those of their pieces.
    pub(super) fn join(
        self,
        vectors: Vec<Vec<f32>>,
        wanted: Wanted,
        limits: &EngineLimits,
    ) -> Vec<Vec<f32>> {
        let mut vectors = vectors.into_iter();
        let of_text = |lengths: Vec<usize>| {
            let mut own: Vec<Vec<f32>> = vectors.by_ref().take(lengths.len()).collect();
            if lengths.len() == 1 {
                return own.pop().unwrap_or_default();
            }
            if wanted.outputs.unwrap_or(limits.outputs).is_of_tokens() {
                return own.concat();
            }
            if limits.outputs == Outputs::Lexical {
                return largest(&own);
            }
            let mut vector = mean(&own, &lengths);
            if wanted.activation.unwrap_or(limits.normalizes) {
                normalize(&mut vector);
            }
            vector
        };
        self.0.into_iter().map(of_text).collect()
    }
}

/// The largest of each element.
fn largest(vectors: &[Vec<f32>]) -> Vec<f32> {
    let mut largest = vectors[0].clone();
    for vector in &vectors[1..] {
        largest.iter_mut().zip(vector).for_each(|(most, x)| *most = most.max(*x));
    }
    largest
}

/// The mean of each element, each vector counting as often as its piece has tokens.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "texts are shorter than 2^52 tokens, and a mean of f32 is within their range"
)]
fn mean(vectors: &[Vec<f32>], lengths: &[usize]) -> Vec<f32> {
    let mut sums = vec![0.0; vectors[0].len()];
    for (vector, length) in vectors.iter().zip(lengths) {
        let count = *length as f64;
        sums.iter_mut().zip(vector).for_each(|(sum, x)| *sum += count * f64::from(*x));
    }
    let total = lengths.iter().sum::<usize>() as f64;
    sums.into_iter().map(|sum| (sum / total) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pooling;

    fn limits(outputs: Outputs, normalizes: bool) -> EngineLimits {
        EngineLimits {
            max_model_len: 3,
            max_text_len: 3,
            vocab_size: 10,
            max_batch_tokens: 10,
            max_num_seqs: 1,
            block_size: 32,
            num_blocks: 0,
            embedding_size: 2,
            hidden_size: 2,
            outputs,
            further: Vec::new(),
            pooling: Pooling::Mean,
            normalizes,
            generates: false,
            prefix_lm: false,
            sees: false,
            hears: false,
        }
    }

    fn joined(outputs: Outputs, normalizes: bool, wanted: Wanted) -> Vec<Vec<f32>> {
        let (pieces, texts) = Pieces::of(vec![vec![1], vec![1, 2, 3, 4]], 3);
        assert_eq!(texts, [vec![1], vec![1, 2, 3], vec![4]]);
        let vectors = vec![vec![5.0, 6.0], vec![4.0, 0.0], vec![0.0, 8.0]];
        pieces.join(vectors, wanted, &limits(outputs, normalizes))
    }

    #[test]
    fn pieces_count_by_their_tokens() {
        let plain = Wanted::default();
        let mean = joined(Outputs::Embedding, false, plain);
        assert_eq!(mean, [vec![5.0, 6.0], vec![3.0, 2.0]]);
        let scaled = joined(Outputs::Embedding, true, plain);
        assert_eq!(scaled[0], [5.0, 6.0], "what the engine gave");
        let length = 13.0_f32.sqrt();
        assert_eq!(scaled[1], [3.0 / length, 2.0 / length]);
        assert_eq!(joined(Outputs::Lexical, false, plain)[1], [4.0, 8.0]);
        let each = Wanted { outputs: Some(Outputs::HiddenStates), ..plain };
        assert_eq!(joined(Outputs::Embedding, true, each)[1], [4.0, 0.0, 0.0, 8.0]);
    }

    #[test]
    fn short_texts_stay_whole() {
        let (pieces, texts) = Pieces::of(vec![vec![1, 2], vec![3]], 2);
        assert_eq!((pieces, texts), (Pieces(vec![vec![2], vec![1]]), vec![vec![1, 2], vec![3]]));
    }
}
