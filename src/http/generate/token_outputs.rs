//! What heads beside a model's main one make of every token of a text: which tokens count.
//!
//! As the authors of BGE-M3 have it: the token that begins a text has no vector, those that begin and
//! end it have no weight; by token id, special tokens have none at all, and a token that stands in a
//! text several times has its largest one.

use std::collections::BTreeMap;

use crate::engine::Outputs;
use crate::text::tokenizer::Tokenizer;

/// Tokens that stand for nothing that a text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EmptyTokens {
    begin: Option<u32>,
    end: Option<u32>,
    /// Fills up texts, and stands for what is not in the vocabulary.
    others: [Option<u32>; 2],
}

impl EmptyTokens {
    pub(crate) fn of(tokenizer: &Tokenizer) -> Self {
        let named = |name: &str| tokenizer.token_id(tokenizer.special_tokens().get(name)?);
        Self {
            begin: named("cls_token").or_else(|| tokenizer.bos_id()),
            end: tokenizer.eos_id().or_else(|| named("sep_token")),
            others: ["pad_token", "unk_token"].map(named),
        }
    }

    /// The vectors of the tokens that count, one after the other, of those of all tokens.
    pub(crate) fn without(&self, outputs: Outputs, ids: &[u32], vectors: &[f32]) -> Vec<f32> {
        let size = vectors.len() / ids.len().max(1);
        let begins = self.begin.is_some() && ids.first().copied() == self.begin;
        let ends = self.end.is_some() && ids.last().copied() == self.end;
        let first = if begins { size } else { 0 };
        let cut = if ends && outputs == Outputs::TokenWeights { size } else { 0 };
        let last = (vectors.len() - cut).max(first);
        vectors[first..last].to_vec()
    }

    /// The weight of each token that a text has, by id; `weights` has one of every token.
    pub(crate) fn by_id(&self, ids: &[u32], weights: &[f32]) -> BTreeMap<u32, f32> {
        let empty = [self.begin, self.end].into_iter().chain(self.others);
        let empty: Vec<u32> = empty.flatten().collect();
        let mut largest = BTreeMap::new();
        for (id, weight) in ids.iter().zip(weights) {
            if *weight > 0.0 && !empty.contains(id) {
                let most = largest.entry(*id).or_insert(*weight);
                *most = weight.max(*most);
            }
        }
        largest
    }
}

/// The sum over tokens that both texts have of the weights' products.
pub(crate) fn common(query: &BTreeMap<u32, f32>, document: &BTreeMap<u32, f32>) -> f64 {
    let product = |(id, weight): (&u32, &f32)| {
        document.get(id).map(|other| f64::from(*weight) * f64::from(*other))
    };
    query.iter().filter_map(product).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: EmptyTokens =
        EmptyTokens { begin: Some(0), end: Some(2), others: [Some(1), Some(3)] };

    #[test]
    fn vectors_of_ends_are_left_out() {
        let (ids, vectors) = ([0, 7, 2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let of = |outputs, ids: &[u32]| EMPTY.without(outputs, ids, &vectors[..2 * ids.len()]);
        assert_eq!(of(Outputs::TokenEmbeddings, &ids), vectors[2..]);
        assert_eq!(of(Outputs::TokenWeights, &ids), vectors[2..4]);
        assert_eq!(of(Outputs::TokenWeights, &ids[1..]), vectors[..2]);
        assert_eq!(of(Outputs::TokenWeights, &[7, 7]), vectors[..4]);
        assert!(of(Outputs::TokenWeights, &[0]).is_empty());
        // One token that is both would be cut twice.
        let same = EmptyTokens { end: Some(0), ..EMPTY };
        assert!(same.without(Outputs::TokenWeights, &[0], &[1.0]).is_empty());
        let none = EmptyTokens::default();
        assert_eq!(none.without(Outputs::TokenWeights, &ids, &vectors), vectors);
    }

    #[test]
    fn a_token_has_its_largest_weight_and_special_ones_have_none() {
        let ids = [0, 7, 8, 7, 1, 3, 9, 2];
        let weights = EMPTY.by_id(&ids, &[9.0, 0.5, 0.25, 0.75, 9.0, 9.0, 0.0, 9.0]);
        assert_eq!(weights, BTreeMap::from([(7, 0.75), (8, 0.25)]));
        let other = BTreeMap::from([(7, 2.0), (9, 5.0)]);
        let sum = common(&weights, &other);
        assert!((sum - 1.5).abs() < 1e-9, "{sum}");
    }
}
