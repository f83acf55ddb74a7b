//! How many tokens a draft model should draft: as many as pay for its own time.
//!
//! Each token that it drafts takes a step of its own, with a row for each sequence, before the model
//! verifies them all in one. What such a step takes and how often its tokens are right is learned; where
//! the two don't pay, it is asked again only once in a while, to see whether that changed.

use std::time::Duration;

use super::choice::{LEAST_CHANCE, choose_after};
use super::step_cost::StepCost;

/// Most tokens that a draft model drafts at a time.
const MOST_DEPTH: usize = 12;

/// Gain over doing without the draft model below which it isn't asked.
const LEAST_GAIN: f64 = 1.03;

/// Steps without the draft model after which one sequence asks it, to learn of it: as few at first, and
/// after every time that taught nothing better twice as many, up to the most.
const UNTIL_TRIED: [usize; 2] = [4, 256];

/// Tokens that are drafted to learn of it.
const TRIED: usize = 3;

/// What is learned of a draft model besides its chances.
#[derive(Clone, Debug)]
pub(super) struct ModelPace {
    cost: StepCost,
    /// Steps since it was asked last.
    idle: usize,
    /// Steps until it is tried.
    patience: usize,
    /// Most tokens that it drafts at once.
    pub(super) at_once: usize,
    /// What it drafts next is computed whatever it is worth.
    pub(super) trying: bool,
}

impl ModelPace {
    /// Nothing observed.
    pub(super) fn unknown() -> Self {
        let [patience, _] = UNTIL_TRIED;
        Self { cost: StepCost::unknown(), idle: patience, patience, at_once: 1, trying: false }
    }
}

/// What a draft model is to draft for the next step.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPlan {
    /// How many tokens of each candidate, most of them often 0.
    pub depths: Vec<usize>,
    /// The chance that all tokens drafted so far are right below which a sequence gets no more.
    pub least_chance: f32,
}

/// What is expected of a candidate's next tokens.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The chance of each token of a draft model, where it is to be asked.
    pub(super) model: Option<f32>,
    /// Most tokens to draft.
    pub(super) most: usize,
    /// The chances of tokens that are known without it.
    pub(super) texts: Vec<f32>,
}

impl ModelPace {
    /// Learns what a step of the draft model with so many rows took.
    pub(super) fn observe(&mut self, rows: usize, took: Duration) {
        self.cost.observe(rows, took);
    }

    /// Whether it was asked in vain so often that it is hardly tried any more.
    pub(super) fn rests(&self) -> bool {
        self.patience >= UNTIL_TRIED[1]
    }

    /// What to draft for the next step; `times[i]` is what it takes with `i` rows of drafts.
    pub(super) fn plan(&mut self, candidates: &[Expected], times: &[f64]) -> ModelPlan {
        self.trying = false;
        let none = ModelPlan { depths: vec![0; candidates.len()], least_chance: 1.0 };
        let Some(tried) = candidates.iter().position(|candidate| candidate.model.is_some()) else {
            return none;
        };
        if let Some(plan) = self.best_depths(candidates, times) {
            (self.idle, self.patience) = (0, UNTIL_TRIED[0]);
            return plan;
        }
        self.idle += 1;
        if self.idle < self.patience || times.is_empty() {
            return none;
        }
        (self.idle, self.trying) = (0, true);
        self.patience = (2 * self.patience).min(UNTIL_TRIED[1]);
        let mut plan = ModelPlan { least_chance: LEAST_CHANCE, ..none };
        plan.depths[tried] = TRIED.min(candidates[tried].most);
        plan
    }

    /// The depths with most tokens per time, if they beat doing without the draft model.
    fn best_depths(&self, candidates: &[Expected], times: &[f64]) -> Option<ModelPlan> {
        let asked = candidates.iter().filter(|candidate| candidate.model.is_some()).count();
        let draft_step = *self.cost.curve(asked)?.first()?;
        let chances = |depth: usize| -> Vec<Vec<f32>> {
            let of_each = candidates.iter().map(|candidate| match candidate.model {
                Some(chance) => vec![chance; depth.min(candidate.most)],
                None => candidate.texts.clone(),
            });
            of_each.collect()
        };
        let texts: Vec<_> = candidates.iter().map(|candidate| candidate.texts.clone()).collect();
        let (_, without) = choose_after(&texts, candidates.len(), times, 0.0);
        let (mut best, mut drafting) = ((LEAST_GAIN * without, None), 0.0);
        let most = if self.at_once > 1 { self.at_once } else { MOST_DEPTH };
        for depth in 1..=most {
            if depth == 1 || self.at_once == 1 {
                drafting += draft_step;
            }
            let (counts, rate) = choose_after(&chances(depth), candidates.len(), times, drafting);
            if rate > best.0 {
                best = (rate, Some(counts));
            }
        }
        let mut depths = best.1?;
        for (depth, candidate) in depths.iter_mut().zip(candidates) {
            *depth = candidate.model.map_or(0, |_| *depth);
        }
        // What another token must bring at least: its share of a draft step, and a row.
        let (first, second) = (times.first()?, times.get(1)?);
        let alone = if self.at_once == 1 { draft_step / count(asked) } else { 0.0 };
        let cost = alone + second - first;
        #[expect(clippy::cast_possible_truncation, reason = "a chance")]
        let least = (cost * count(candidates.len()) / first).clamp(0.0, 1.0) as f32;
        let drafts = depths.iter().any(|depth| *depth > 0);
        drafts.then_some(ModelPlan { depths, least_chance: least.max(LEAST_CHANCE) })
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::{Candidate, Drafter, Speculation};
    use super::*;

    /// Steps of ten milliseconds whose rows cost a hundredth of that.
    fn learned() -> Speculation {
        let mut speculation = Speculation::new(16);
        for _ in 0..8 {
            speculation.observe_step(1, Duration::from_millis(10));
            speculation.observe_step(17, Duration::from_micros(11_600));
        }
        speculation
    }

    fn plan(speculation: &mut Speculation, drafter: &Drafter) -> ModelPlan {
        let candidate = Candidate { drafter, scope: 7, rows: 1, modelled: true };
        speculation.plan_model(&[candidate])
    }

    /// Has `count` tokens come that the draft model foretold, or others.
    fn observe(speculation: &mut Speculation, drafter: &mut Drafter, count: u32, right: bool) {
        let mut tokens = drafter.answer().to_vec();
        tokens.insert(0, 1);
        for token in 0..count {
            let token = 1000 + token;
            drafter.foretell(vec![(if right { token } else { 0 }, 0.85)]);
            tokens.push(token);
            speculation.read(drafter, &tokens, true, 7);
        }
    }

    #[test]
    fn it_is_tried_then_asked_as_deep_as_it_pays_and_left_where_it_does_not() {
        let mut speculation = learned();
        let mut drafter = speculation.begin(1, None, None).expect("drafts are on");
        assert_eq!(plan(&mut speculation, &drafter).depths, [TRIED], "nothing is known of it");
        assert_eq!(plan(&mut speculation, &drafter).depths, [0]);
        speculation.observe_draft_step(1, Duration::from_micros(500));
        observe(&mut speculation, &mut drafter, 200, true);
        let deep = plan(&mut speculation, &drafter);
        assert!(deep.depths[0] > 6 && deep.least_chance < 0.1, "{deep:?}");
        for _ in 0..40 {
            speculation.observe_draft_step(1, Duration::from_millis(11));
        }
        assert_eq!(plan(&mut speculation, &drafter).depths, [0], "slower than the model");
        for _ in 0..40 {
            speculation.observe_draft_step(1, Duration::from_micros(500));
        }
        assert!(plan(&mut speculation, &drafter).depths[0] > 6);
        observe(&mut speculation, &mut drafter, 600, false);
        assert_eq!(plan(&mut speculation, &drafter).depths, [0], "never right");
        let tried = (0..2000).filter(|_| plan(&mut speculation, &drafter).depths[0] > 0).count();
        assert!((5..20).contains(&tried), "{tried}");
        assert!(speculation.model_rests());
        let mut drafter = speculation.begin(1, None, None).expect("drafts are on");
        observe(&mut speculation, &mut drafter, 600, true);
        let tried = (0..300).find(|_| plan(&mut speculation, &drafter).depths[0] > 0);
        assert!(tried.is_some() && !speculation.model_rests(), "right again");
    }

    #[test]
    fn a_block_takes_one_step_however_many_of_its_tokens_are_kept() {
        let (slow, mut speculation) = (Duration::from_millis(11), learned().with_blocks_of(8));
        let mut drafter = speculation.begin(1, None, None).expect("drafts are on");
        for _ in 0..40 {
            speculation.observe_draft_step(1, slow);
        }
        observe(&mut speculation, &mut drafter, 200, true);
        let deep = plan(&mut speculation, &drafter);
        assert!(deep.depths == [8] && deep.least_chance < 0.1, "{deep:?}");
        let mut one_by_one = speculation.with_blocks_of(1);
        assert_eq!(plan(&mut one_by_one, &drafter).depths, [0], "slower than the model");
    }

    #[test]
    fn likelier_texts_come_before_it_and_requests_bound_it() {
        let mut speculation = learned();
        speculation.observe_draft_step(1, Duration::from_micros(100));
        let mut drafter = speculation.begin(60, None, None).expect("drafts are on");
        let tokens: Vec<u32> = (0..40).chain(0..20).collect();
        speculation.read(&mut drafter, &tokens, true, 7);
        observe(&mut speculation, &mut drafter, 0, true);
        assert_eq!(plan(&mut speculation, &drafter).depths, [0], "the prompt says what follows");
        let bounded = speculation.begin(1, None, Some(2)).expect("drafts are on");
        assert_eq!(plan(&mut speculation, &bounded).depths, [2]);
        let candidate = Candidate { drafter: &bounded, scope: 7, rows: 1, modelled: false };
        assert_eq!(speculation.plan_model(&[candidate]).depths, [0]);
    }
}
