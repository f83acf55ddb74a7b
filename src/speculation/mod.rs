//! Which tokens may follow, and how many of them are worth a try: speculative decoding.
//!
//! A step computes the logits behind drafted tokens as it does behind sampled ones, in further rows of
//! the same batch. The sampler then walks along them and stops where it draws another token than the one
//! that was drafted (Leviathan et al., <https://arxiv.org/abs/2211.17192>, with drafts that are certain
//! of themselves). Rows of a batch don't depend on each other, so every token, its log-probability and the
//! state of its random numbers are those of decoding token by token, to the bit.
//!
//! Drafts come from what is there already ([`Drafter`]), from grammars, and from a draft model, which the
//! engine runs for as many tokens as pay for its own time (`draft_model`). How many follow what a
//! token's chance is (`odds`) and what a row costs at this load (`step_cost`): both are learned while
//! the server runs, so drafts stop where they don't pay. Knows token ids and durations, no tensors and no
//! requests.

mod choice;
mod draft_model;
mod drafter;
mod match_index;
mod odds;
mod shared;
mod step_cost;

use std::time::Duration;

use choice::{LEAST_CHANCE, choose};
pub use draft_model::ModelPlan;
use draft_model::{Expected, ModelPace};
pub use drafter::Drafter;
pub use odds::Source;
use odds::{Odds, certainty};
use shared::SharedAnswers;
pub use step_cost::LARGEST_STEP;
use step_cost::StepCost;

/// Most rows of drafts in a step: their logits are in memory together.
const MOST_ROWS: usize = 64;

/// What is learned over all sequences.
#[derive(Clone, Debug)]
pub struct Speculation {
    most: usize,
    odds: Odds,
    cost: StepCost,
    model: ModelPace,
    answers: SharedAnswers,
}

/// Tokens that may follow a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Where they come from.
    pub source: Source,
    /// In order, often none.
    pub tokens: Vec<u32>,
}

/// A sequence whose next token is due, and what may follow it.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Its drafts, which have read all of its tokens.
    pub drafter: &'a Drafter,
    /// Sequences of one scope may learn of each other's answers.
    pub scope: u128,
    /// Rows of the step without any drafts.
    pub rows: usize,
    /// Whether a draft model may draft its tokens.
    pub modelled: bool,
}

impl Speculation {
    /// Nothing learned. At most `most` tokens of a sequence are drafted at a time.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            odds: Odds::expected(),
            cost: StepCost::unknown(),
            model: ModelPace::unknown(),
            answers: SharedAnswers::default(),
        }
    }

    /// The same with a draft model that drafts so many tokens at once.
    #[must_use]
    pub fn with_blocks_of(mut self, tokens: usize) -> Self {
        self.model.at_once = tokens.max(1);
        self
    }

    /// Whether anything is drafted.
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    /// The drafts of a sequence with a prompt of `prompt_len` tokens, at most `most` at a time, whose
    /// answer may be like `prediction`. `None` where nothing is drafted and nothing predicted.
    pub fn begin(
        &self,
        prompt_len: usize,
        prediction: Option<&[u32]>,
        most: Option<usize>,
    ) -> Option<Drafter> {
        let most = most.map_or(self.most, |most| most.min(self.most));
        (most > 0 || prediction.is_some()).then(|| Drafter::new(prompt_len, prediction, most))
    }

    /// Has a sequence's drafts read its `tokens`, those that they know and new ones; `chosen` says that
    /// other tokens could have come.
    pub fn read(&mut self, drafter: &mut Drafter, tokens: &[u32], chosen: bool, scope: u128) {
        drafter.read(tokens, chosen, self.answers.of(scope), &mut self.odds);
    }

    /// Learns from a step in which nothing but next tokens and drafts was computed.
    pub fn observe_step(&mut self, rows: usize, took: Duration) {
        self.cost.observe(rows, took);
    }

    /// Keeps the answer of a sequence that has ended for others of its scope.
    pub fn end(&mut self, drafter: &Drafter, scope: u128) {
        if self.most > 0 {
            self.answers.add(scope, drafter.answer());
        }
    }

    /// The drafts that are worth computing in the next step, one for each candidate, many of them empty.
    pub fn draft(&self, candidates: &[Candidate<'_>]) -> Vec<Draft> {
        let drafts: Vec<_> = candidates.iter().map(|each| self.longest_draft(each)).collect();
        let rows = candidates.iter().map(|candidate| candidate.rows).sum();
        let times = self.cost.curve(rows).unwrap_or_default();
        let times = &times[..times.len().min(MOST_ROWS + 1)];
        let (drafts, chances): (Vec<_>, Vec<_>) = drafts.into_iter().unzip();
        let mut counts = choose(&chances, candidates.len(), times);
        if self.model.trying {
            // What rows cost is learned of rows alone.
            for (count, candidate) in counts.iter_mut().zip(candidates) {
                *count = candidate.drafter.foretold().count().max(*count);
            }
        }
        drafts
            .into_iter()
            .zip(counts)
            .map(|(mut draft, count)| {
                draft.tokens.truncate(count);
                draft
            })
            .collect()
    }

    /// Learns what a step of the draft model with one or a few rows of each sequence took.
    pub fn observe_draft_step(&mut self, rows: usize, took: Duration) {
        self.model.observe(rows, took);
    }

    /// Whether a draft model was asked in vain so often that it is hardly tried any more.
    pub fn model_rests(&self) -> bool {
        self.model.rests()
    }

    /// The chance that a token is right to which a sequence's draft model gives this probability.
    pub fn chance_foretold(&self, drafter: &Drafter, probability: f32) -> f32 {
        drafter.odds.chance(&self.odds, Source::Model, certainty(probability))
    }

    /// What a draft model is to draft for the next step, in the order of `candidates`.
    pub fn plan_model(&mut self, candidates: &[Candidate<'_>]) -> ModelPlan {
        let expected: Vec<_> =
            candidates.iter().map(|candidate| self.expected(candidate)).collect();
        let rows = candidates.iter().map(|candidate| candidate.rows).sum();
        let times = self.cost.curve(rows).unwrap_or_default();
        self.model.plan(&expected, &times[..times.len().min(MOST_ROWS + 1)])
    }

    /// What is expected of a candidate: a draft model is to be asked where no text is likelier.
    fn expected(&self, candidate: &Candidate<'_>) -> Expected {
        let Candidate { drafter, modelled, .. } = candidate;
        let chance = drafter.odds.average(&self.odds, Source::Model);
        let texts = self.longest_draft(candidate).1;
        // What it told before and came true so far still stands.
        let asked = *modelled && drafter.most > 0 && drafter.foretold().next().is_none();
        let asked = asked && texts.first().is_none_or(|text| *text < chance);
        Expected { model: asked.then_some(chance), most: drafter.most, texts }
    }

    /// All tokens that can be told now and are likely enough, with their chances.
    fn longest_draft(&self, candidate: &Candidate<'_>) -> (Draft, Vec<f32>) {
        let Candidate { drafter, scope, .. } = candidate;
        let required = drafter.required();
        if !required.is_empty() {
            let chance = drafter.odds.chance(&self.odds, Source::Grammar, 0);
            let chances = vec![chance; required.len()];
            return (Draft { source: Source::Grammar, tokens: required }, chances);
        }
        let (foretold, chances): (Vec<u32>, Vec<f32>) = drafter
            .foretold()
            .map(|(token, probability)| (token, self.chance_foretold(drafter, probability)))
            .unzip();
        if !foretold.is_empty() {
            return (Draft { source: Source::Model, tokens: foretold }, chances);
        }
        let Some(place) = drafter.best() else {
            return (Draft { source: Source::Own, tokens: Vec::new() }, Vec::new());
        };
        let mut together = 1.0;
        let chances = (0..drafter.most).map(|index| {
            let chance = drafter.odds.chance(&self.odds, place.source, place.length + index);
            together *= chance;
            (chance, together)
        });
        let likely = chances.take_while(|(_, together)| *together >= LEAST_CHANCE);
        let mut chances: Vec<f32> = likely.map(|(chance, _)| chance).collect();
        let tokens = drafter.draft(place, chances.len(), self.answers.of(*scope));
        chances.truncate(tokens.len());
        (Draft { source: place.source, tokens }, chances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A draft after `tokens`, which the drafts read first.
    fn draft(
        speculation: &mut Speculation,
        drafter: &mut Drafter,
        tokens: &[u32],
        required: &[u32],
    ) -> Vec<u32> {
        speculation.read(drafter, tokens, true, 7);
        drafter.require(required.to_vec());
        let candidate = Candidate { drafter, scope: 7, rows: 1, modelled: false };
        speculation.draft(&[candidate]).remove(0).tokens
    }

    fn learned() -> Speculation {
        let mut speculation = Speculation::new(16);
        for _ in 0..8 {
            speculation.observe_step(1, Duration::from_millis(10));
            speculation.observe_step(17, Duration::from_millis(20));
        }
        speculation
    }

    #[test]
    fn drafts_fall_to_none_where_they_are_wrong_and_come_back() {
        let mut speculation = learned();
        let mut tokens: Vec<u32> = (0..50).collect();
        tokens.extend(0..20);
        let mut drafter = speculation.begin(tokens.len(), None, None).unwrap();
        let found = draft(&mut speculation, &mut drafter, &tokens, &[]);
        assert_eq!(found[..4], [20, 21, 22, 23]);
        // From here on another token follows wherever three are known.
        for unknown in 1000..1060 {
            tokens.extend([10, 11, 12, unknown]);
            speculation.read(&mut drafter, &tokens, true, 7);
        }
        tokens.extend([10, 11, 12]);
        assert_eq!(draft(&mut speculation, &mut drafter, &tokens, &[]), [0; 0]);
        for _ in 0..60 {
            tokens.extend([30, 31, 32, 33]);
            speculation.read(&mut drafter, &tokens, true, 7);
        }
        assert!(draft(&mut speculation, &mut drafter, &tokens, &[]).len() > 8);
    }

    #[test]
    fn answers_are_shared_within_a_scope_and_bounded_by_the_request() {
        let mut speculation = learned();
        let text: Vec<u32> = (0..40).collect();
        for (scope, most, expected) in [(7, None, 1..=16), (7, Some(3), 1..=3), (8, None, 0..=0)] {
            let mut first = speculation.begin(1, None, None).unwrap();
            speculation.read(&mut first, &text, true, scope);
            speculation.end(&first, scope);
            let mut drafter = speculation.begin(4, None, most).unwrap();
            let found = draft(&mut speculation, &mut drafter, &[8, 9, 10, 11], &[]);
            assert!(expected.contains(&found.len()), "{scope}: {found:?}");
            assert!(found.iter().zip(12..).all(|(token, next)| *token == next));
            speculation = learned();
        }
        assert!(speculation.begin(4, None, Some(0)).is_none());
    }

    #[test]
    fn what_a_grammar_wants_comes_first() {
        let mut speculation = learned();
        let mut drafter = speculation.begin(1, None, None).unwrap();
        let mut tokens = vec![1];
        assert_eq!(draft(&mut speculation, &mut drafter, &tokens, &[5, 6, 7]), [5, 6, 7]);
        for unwanted in 100..400 {
            tokens.push(unwanted);
            draft(&mut speculation, &mut drafter, &tokens, &[5, 6, 7]);
        }
        assert_eq!(draft(&mut speculation, &mut drafter, &tokens, &[5, 6, 7]), [0; 0]);
    }
}
