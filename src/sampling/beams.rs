//! Beam search: which of the continuations of several beams go on, and which answers are best.
//!
//! The algorithm of Hugging Face transformers' `generate` with `num_beams` and no sampling: of the
//! best `width` continuations of all beams those that end an answer are kept if they are among the
//! best answers, and the best `width` continuations that end none go on. Knows log-probabilities
//! and token ids.

use super::logprobs::TokenLogprobs;
use super::params::{BeamParams, EarlyStopping};

/// A token that a beam may go on with.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation {
    /// The token.
    pub token_id: u32,
    /// What it adds to the beam's log-probability.
    pub logprob: f64,
    /// Present if logprobs are reported.
    pub reported: Option<TokenLogprobs>,
}

/// Tokens behind the prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beam {
    /// Their ids.
    pub token_ids: Vec<u32>,
    /// One for each, if logprobs are reported.
    pub logprobs: Vec<TokenLogprobs>,
    /// Sum of their log-probabilities; of an answer, its score.
    pub score: f64,
}

/// A beam that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the beam it was.
    pub parent: usize,
    /// The token it gained.
    pub token_id: u32,
}

/// The state of one search.
#[derive(Clone, Debug)]
pub struct BeamSearch {
    params: BeamParams,
    max_tokens: usize,
    beams: Vec<Beam>,
    // Best first, at most `width`.
    answers: Vec<Beam>,
    improvable: bool,
}

impl BeamSearch {
    /// A search for answers of at most `max_tokens` tokens.
    pub fn new(params: BeamParams, max_tokens: usize) -> Self {
        Self {
            params,
            max_tokens,
            beams: vec![Beam::default()],
            answers: Vec::new(),
            improvable: true,
        }
    }

    /// Continuations that each beam has to offer, if `ends` tokens may end an answer: `width` of them
    /// end none even where all those tokens come first.
    pub fn num_continuations(&self, ends: usize) -> usize {
        self.params.width.saturating_add(ends)
    }

    /// Takes each beam's best continuations and says which beams there are now; none when the
    /// search has ended. `ends` says whether a token ends an answer of that many tokens.
    pub fn advance(
        &mut self,
        continuations: Vec<Vec<Continuation>>,
        ends: impl Fn(u32, usize) -> bool,
    ) -> Vec<Chosen> {
        let length = self.beams.first().map_or(0, |beam| beam.token_ids.len()) + 1;
        let best = self.best_first(continuations);
        let (mut next, mut chosen) = (Vec::new(), Vec::new());
        let mut all_ended = true;
        for (place, (parent, continuation)) in best.into_iter().enumerate() {
            let token_id = continuation.token_id;
            let ended = ends(token_id, length);
            all_ended &= ended;
            if !ended && next.len() < self.params.width {
                next.push(self.beams[parent].with(continuation));
                chosen.push(Chosen { parent, token_id });
            } else if ended && place < self.params.width {
                self.keep(self.beams[parent].with(continuation));
            }
        }
        self.beams = next;
        self.improvable = self.improvable && self.can_improve(length);
        let full = self.params.early_stopping == EarlyStopping::WhenFull && self.is_full();
        if all_ended || full || !self.improvable {
            self.beams.clear();
        }
        if self.beams.is_empty() { Vec::new() } else { chosen }
    }

    /// The best answers that were found, best first, as many as were asked for if there are.
    pub fn answers(&self) -> &[Beam] {
        &self.answers[..self.params.answers.min(self.answers.len())]
    }

    /// The continuations of all beams, most likely first, each with its beam.
    fn best_first(&self, continuations: Vec<Vec<Continuation>>) -> Vec<(usize, Continuation)> {
        let each = continuations.into_iter().enumerate();
        let mut all: Vec<(usize, Continuation)> =
            each.flat_map(|(parent, own)| own.into_iter().map(move |one| (parent, one))).collect();
        let total = |(parent, one): &(usize, Continuation)| self.beams[*parent].score + one.logprob;
        // Stable: of equally likely ones that of the better beam.
        all.sort_by(|a, b| total(b).total_cmp(&total(a)));
        all
    }

    /// Keeps an answer if it is one of the best.
    fn keep(&mut self, mut answer: Beam) {
        answer.score = self.scored(answer.score, answer.token_ids.len());
        let place = self.answers.partition_point(|other| other.score >= answer.score);
        self.answers.insert(place, answer);
        self.answers.truncate(self.params.width);
    }

    fn is_full(&self) -> bool {
        self.answers.len() == self.params.width
    }

    /// Whether the best beam may become one of the best answers.
    fn can_improve(&self, length: usize) -> bool {
        let (Some(best), Some(worst)) = (self.beams.first(), self.answers.last()) else {
            return true;
        };
        let longer_is_better = self.params.length_penalty > 0.0;
        let end = match self.params.early_stopping {
            EarlyStopping::Never if longer_is_better => self.max_tokens,
            _ => length,
        };
        !self.is_full() || self.scored(best.score, end) > worst.score
    }

    #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
    fn scored(&self, sum: f64, length: usize) -> f64 {
        sum / (length as f64).powf(self.params.length_penalty)
    }
}

impl Beam {
    fn with(&self, continuation: Continuation) -> Self {
        let mut longer = self.clone();
        longer.token_ids.push(continuation.token_id);
        longer.logprobs.extend(continuation.reported);
        longer.score += continuation.logprob;
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 0;

    fn params(width: usize) -> BeamParams {
        BeamParams {
            width,
            answers: width,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Estimated,
        }
    }

    /// Runs a search over a table of next-token probabilities, `[3]` for each last token.
    fn search(params: BeamParams, max_tokens: usize, table: [[f64; 3]; 3]) -> Vec<Beam> {
        let mut search = BeamSearch::new(params, max_tokens);
        let mut last = vec![1];
        loop {
            let rows = last.iter().map(|token: &u32| {
                let probabilities = table[*token as usize].iter();
                let row = (0..).zip(probabilities).filter(|(_, p)| **p > 0.0);
                let row = row.map(|(token_id, p)| Continuation {
                    token_id,
                    logprob: p.ln(),
                    reported: None,
                });
                row.collect()
            });
            let rows = rows.collect();
            let ends = |token: u32, length: usize| token == END || length >= max_tokens;
            let chosen = search.advance(rows, ends);
            if chosen.is_empty() {
                return search.answers().to_vec();
            }
            last = chosen.iter().map(|chosen| chosen.token_id).collect();
        }
    }

    /// Every answer with its score, best first, by trying all.
    fn exhaustive(max_tokens: usize, penalty: f64, table: [[f64; 3]; 3]) -> Vec<(Vec<u32>, f64)> {
        let (mut open, mut answers) = (vec![(vec![], 0.0)], Vec::new());
        for length in 1..=max_tokens {
            let mut next = Vec::new();
            for (tokens, sum) in &open {
                let last = tokens.last().copied().unwrap_or(1);
                for token in 0..3 {
                    let p = table[last as usize][token as usize];
                    if p > 0.0 {
                        let longer = ([&tokens[..], &[token]].concat(), sum + f64::ln(p));
                        let ended = token == END || length == max_tokens;
                        if ended { &mut answers } else { &mut next }.push(longer);
                    }
                }
            }
            open = next;
        }
        for (tokens, score) in &mut answers {
            *score /= f64::from(u32::try_from(tokens.len()).unwrap()).powf(penalty);
        }
        answers.sort_by(|a: &(Vec<u32>, f64), b| b.1.total_cmp(&a.1));
        answers
    }

    #[test]
    fn a_search_as_wide_as_the_tree_finds_the_best_answers() {
        let table = [[0.2, 0.3, 0.5], [0.1, 0.55, 0.35], [0.4, 0.25, 0.35]];
        for penalty in [0.0, 0.6, 1.0, 2.0] {
            let early_stopping = EarlyStopping::Never;
            let params = BeamParams { length_penalty: penalty, early_stopping, ..params(40) };
            let found = search(params, 4, table);
            let best = exhaustive(4, penalty, table);
            for (found, (tokens, score)) in found.iter().zip(&best).take(5) {
                assert_eq!(&found.token_ids, tokens);
                assert!((found.score - score).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn one_beam_is_greedy() {
        let found = search(params(1), 5, [[0.2, 0.3, 0.5], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]]);
        assert_eq!(found[0].token_ids, [2, 1, 2, 1, 2]);
    }

    #[test]
    fn a_full_list_of_answers_ends_the_search_where_asked() {
        let table = [[1.0, 0.0, 0.0], [0.45, 0.5, 0.05], [0.9, 0.05, 0.05]];
        let full = BeamParams { early_stopping: EarlyStopping::WhenFull, ..params(2) };
        let longest = |beams: &[Beam]| beams.iter().map(|beam| beam.token_ids.len()).max();
        assert_eq!(longest(&search(full, 8, table)), Some(2));
        let never = BeamParams { early_stopping: EarlyStopping::Never, ..full };
        assert_eq!(longest(&search(never, 8, table)), Some(8));
    }

    #[test]
    fn fewer_continuations_than_beams_give_fewer_answers() {
        let found = search(params(3), 4, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].token_ids, [2, END]);
    }
}
