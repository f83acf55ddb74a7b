//! How many tokens a draft model should draft: as many as pay for its own time.
//!
//! Each token that it drafts takes a step of its own, with a row for each sequence, before the model
//! verifies them all in one. What such a step takes and how often its tokens are right is learned; where
//! the two don't pay, it is asked again only once in a while, to see whether that changed.

use std::time::Duration;

use super::choice::choose_after;
use super::odds::Source;
use super::step_cost::StepCost;
use super::{Candidate, Drafter, LEAST_CHANCE, MOST_ROWS, Speculation, certainty};

/// Most tokens that a draft model drafts at a time.
const MOST_DEPTH: usize = 12;

/// Gain over doing without the draft model below which it isn't asked.
const LEAST_GAIN: f64 = 1.03;

/// Steps without the draft model after which one sequence asks it, to learn of it.
const UNTIL_TRIED: usize = 128;

/// Tokens that are drafted to learn of it.
const TRIED: usize = 3;

/// What is learned of a draft model besides its chances.
#[derive(Clone, Debug)]
pub(super) struct ModelPace {
    cost: StepCost,
    /// Steps since it was asked last.
    idle: usize,
}

impl ModelPace {
    /// Nothing observed.
    pub(super) fn unknown() -> Self {
        Self { cost: StepCost::unknown(), idle: UNTIL_TRIED }
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

impl Speculation {
    /// Learns what a step of the draft model with one or a few rows of each sequence took.
    pub fn observe_draft_step(&mut self, rows: usize, took: Duration) {
        self.model.cost.observe(rows, took);
    }

    /// The chance that a token is right to which a sequence's draft model gives this probability.
    pub fn chance_foretold(&self, drafter: &Drafter, probability: f32) -> f32 {
        drafter.odds.chance(&self.odds, Source::Model, certainty(probability))
    }

    /// What a draft model is to draft for the next step, in the order of `candidates`.
    pub fn plan_model(&mut self, candidates: &[Candidate<'_>]) -> ModelPlan {
        let none = || ModelPlan { depths: vec![0; candidates.len()], least_chance: 1.0 };
        let chances: Vec<Option<f32>> =
            candidates.iter().map(|candidate| self.chance_of_model(candidate)).collect();
        let asks = chances.iter().filter(|chance| chance.is_some()).count();
        let rows = candidates.iter().map(|candidate| candidate.rows).sum();
        let Some(times) = self.cost.curve(rows).filter(|_| asks > 0) else { return none() };
        let best = self.best_depths(candidates, &chances, &times[..times.len().min(MOST_ROWS + 1)]);
        if let Some(plan) = best {
            self.model.idle = 0;
            return plan;
        }
        self.model.idle += 1;
        let tried = chances.iter().position(Option::is_some);
        let Some(tried) = tried.filter(|_| self.model.idle >= UNTIL_TRIED) else { return none() };
        self.model.idle = 0;
        let mut plan = none();
        plan.depths[tried] = TRIED.min(candidates[tried].drafter.most);
        ModelPlan { least_chance: LEAST_CHANCE, ..plan }
    }

    /// The depths with most tokens per time, if they beat doing without the draft model.
    fn best_depths(
        &self,
        candidates: &[Candidate<'_>],
        chances: &[Option<f32>],
        times: &[f64],
    ) -> Option<ModelPlan> {
        let asks = chances.iter().filter(|chance| chance.is_some()).count();
        let draft_step = *self.model.cost.curve(asks)?.first()?;
        let texts: Vec<Vec<f32>> =
            candidates.iter().map(|candidate| self.longest_draft(candidate).1).collect();
        let (_, without) = choose_after(&texts, candidates.len(), times, 0.0);
        let mut best = (LEAST_GAIN * without, None);
        let mut drafting = 0.0;
        for depth in 1..=MOST_DEPTH {
            drafting += draft_step;
            let of_model = |(index, chance): (usize, &Option<f32>)| match chance {
                Some(chance) => vec![*chance; depth.min(candidates[index].drafter.most)],
                None => texts[index].clone(),
            };
            let all: Vec<Vec<f32>> = chances.iter().enumerate().map(of_model).collect();
            let (counts, rate) = choose_after(&all, candidates.len(), times, drafting);
            if rate > best.0 {
                best = (rate, Some(counts));
            }
        }
        let mut depths = best.1?;
        for (depth, chance) in depths.iter_mut().zip(chances) {
            *depth = chance.map_or(0, |_| *depth);
        }
        // What another token must bring at least: its share of a draft step, and a row.
        let (first, second) = (times.first()?, times.get(1)?);
        let cost = draft_step / count(asks) + second - first;
        #[expect(clippy::cast_possible_truncation, reason = "a chance")]
        let least = (cost * count(candidates.len()) / first).clamp(0.0, 1.0) as f32;
        let drafts = depths.iter().any(|depth| *depth > 0);
        drafts.then_some(ModelPlan { depths, least_chance: least.max(LEAST_CHANCE) })
    }

    /// The chance of a draft model's next token, where there is none that is likelier.
    fn chance_of_model(&self, candidate: &Candidate<'_>) -> Option<f32> {
        let Candidate { drafter, modelled, .. } = candidate;
        // What it told before and came true so far still stands.
        if !modelled || drafter.most == 0 || drafter.foretold().next().is_some() {
            return None;
        }
        let chance = drafter.odds.average(&self.odds, Source::Model);
        let (_, others) = self.longest_draft(candidate);
        others.first().is_none_or(|other| *other < chance).then_some(chance)
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of ten milliseconds whose rows cost a hundredth of that.
    fn learned() -> Speculation {
        let mut speculation = Speculation::new(16);
        for _ in 0..8 {
            speculation.observe_step(1, Duration::from_micros(10_000));
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
            speculation.observe_draft_step(1, Duration::from_micros(11_000));
        }
        assert_eq!(plan(&mut speculation, &drafter).depths, [0], "slower than the model");
        for _ in 0..40 {
            speculation.observe_draft_step(1, Duration::from_micros(500));
        }
        assert!(plan(&mut speculation, &drafter).depths[0] > 6);
        observe(&mut speculation, &mut drafter, 600, false);
        assert_eq!(plan(&mut speculation, &drafter).depths, [0], "never right");
        let tried = (0..UNTIL_TRIED).map(|_| plan(&mut speculation, &drafter).depths[0]);
        assert_eq!(tried.filter(|depth| *depth > 0).count(), 1);
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
