//! Speculative decoding in the engine: who drafts, what it may cost, and what came of it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::EngineCore;
use super::active::Active;
use super::draft_model::{DraftModel, ModelDraft};
use super::hidden_queue::Told;
use super::rows::{Rows, SampledRows};
use crate::engine::output::event::panic_message;
use crate::engine::pace::Ran;
use crate::engine::request::EngineRequest;
use crate::runner::HeadInput;
use crate::sampling::SampledToken;
use crate::scheduler::Scheduler;
use crate::scheduler::output::{Finished, SchedulerOutput, num_accepted};
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::speculation::{Candidate, Drafter, Source};

impl EngineCore {
    /// Where a request's tokens are drafted, if anywhere.
    pub(super) fn begin_drafts(&self, request: &EngineRequest) -> Option<Drafter> {
        let prompt_len = request.prompt_token_ids.len();
        self.speculation.begin(prompt_len, request.prediction.as_deref(), request.max_drafts)
    }

    /// Offers the scheduler the drafts that are worth computing in the next step. Returns how long a
    /// draft model took for them.
    pub(super) fn offer_drafts(&mut self) -> Duration {
        let Self { speculation, scheduler, active, .. } = self;
        let Some(decoding) = scheduler.decoding().filter(|_| speculation.is_on()) else {
            return Duration::ZERO;
        };
        let decoding: Vec<SequenceId> = decoding.iter().map(|sequence| sequence.id).collect();
        for id in &decoding {
            let active = active.get_mut(id);
            if let Some((sampler, drafter)) = active.and_then(Active::speculating) {
                drafter.require(sampler.required());
            }
        }
        let drafting = self.ask_draft_model(&decoding);
        let Self { speculation, scheduler, active, .. } = self;
        let (ids, candidates) = candidates(scheduler, active, None, &decoding);
        let drafts = speculation.draft(&candidates);
        for (id, drafts) in ids.into_iter().zip(drafts) {
            if drafts.tokens.is_empty() {
                continue;
            }
            if let Some((_, drafter)) = active.get_mut(&id).and_then(Active::speculating) {
                drafter.offer(drafts.source);
            }
            scheduler.offer_drafts(id, drafts.tokens);
        }
        drafting
    }

    /// Has the draft model, if there is one, tell what follows the sequences for which that pays. Returns
    /// how long it took.
    fn ask_draft_model(&mut self, decoding: &[SequenceId]) -> Duration {
        let Self { speculation, scheduler, active, draft_model, .. } = self;
        let Some(model) = draft_model else { return Duration::ZERO };
        let (ids, candidates) = candidates(scheduler, active, Some(&*model), decoding);
        let plan = speculation.plan_model(&candidates);
        let drafts = ids.into_iter().zip(plan.depths).filter(|(_, depth)| *depth > 0);
        let mut drafts: Vec<_> = drafts.map(|(id, depth)| ModelDraft::new(id, depth)).collect();
        if drafts.is_empty() {
            return Duration::ZERO;
        }
        let began = Instant::now();
        let chance = |id: SequenceId, probability| {
            let drafter = active.get(&id).and_then(Active::drafter);
            drafter.map_or(0.0, |drafter| speculation.chance_foretold(drafter, probability))
        };
        let work = || model.draft(scheduler, &mut drafts, plan.least_chance, chance);
        match attempt(work) {
            Some(steps) => {
                for (rows, took) in steps {
                    speculation.observe_draft_step(rows, took);
                }
                for ModelDraft { id, tokens, .. } in drafts {
                    if let Some((_, drafter)) = active.get_mut(&id).and_then(Active::speculating) {
                        drafter.foretell(tokens);
                    }
                }
            }
            None => *draft_model = None,
        }
        began.elapsed()
    }

    /// The sequences of a step whose hidden states a head that drafts is told.
    pub(super) fn tells_hidden(&mut self, output: &SchedulerOutput) -> Told {
        let Self { speculation, scheduler, active, draft_model, .. } = self;
        let Some(model) = draft_model.as_mut().filter(|model| model.is_head()) else {
            return Told::default();
        };
        let rests = speculation.model_rests();
        let ids = output.scheduled.iter().map(|(id, _)| *id).filter(|id| {
            let drafts = active.get(id).and_then(Active::drafter).is_some();
            let sequence = scheduler.sequence(*id).filter(|_| drafts);
            sequence.is_some_and(|sequence| model.follows(*id, rests) && model.can_draft(sequence))
        });
        Told { ids: ids.collect(), taps: matches!(model.input(), HeadInput::Layers(_)) }
    }

    /// Has a head that drafts compute what it was told, where that is much.
    pub(super) fn absorb_hidden(&mut self) {
        let Self { scheduler, draft_model, .. } = self;
        let Some(model) = draft_model.as_mut().filter(|model| model.is_head()) else { return };
        if attempt(|| model.absorb(scheduler)).is_none() {
            *draft_model = None;
        }
    }

    /// Has the drafts of a step's sequences read the prompt's tokens that are computed now.
    pub(super) fn read_prompts(&mut self, output: &SchedulerOutput) {
        let Self { speculation, scheduler, active, .. } = self;
        for (id, _) in &output.scheduled {
            let Some(sequence) = scheduler.sequence(*id).filter(|s| s.num_output() == 0) else {
                continue;
            };
            if let Some((_, drafter)) = active.get_mut(id).and_then(Active::speculating) {
                let computed = sequence.tokens().len() - sequence.num_pending();
                speculation.read(drafter, &sequence.tokens()[..computed], true, scope(sequence));
            }
        }
    }

    /// Has a sequence's drafts read the tokens that it got in a step; `end` has the sequence if it ended
    /// there.
    pub(super) fn read_answer(
        &mut self,
        id: SequenceId,
        sampled: &[SampledToken],
        end: Option<&(Finished, Sequence)>,
    ) {
        let Self { speculation, scheduler, active, .. } = self;
        let ended = end.map(|(_, sequence)| sequence);
        let Some(sequence) = ended.or_else(|| scheduler.sequence(id)) else { return };
        let Some((_, drafter)) = active.get_mut(&id).and_then(Active::speculating) else { return };
        let (tokens, scope) = (sequence.tokens(), scope(sequence));
        let dropped = end.map_or(0, |(end, _)| end.dropped);
        let count: usize = sampled.iter().map(|token| 1 + token.forced.len()).sum();
        let mut read = tokens.len() + dropped - count;
        for token in sampled {
            for (more, chosen) in [(1, true), (token.forced.len(), false)] {
                read = (read + more).min(tokens.len());
                speculation.read(drafter, &tokens[..read], chosen, scope);
            }
        }
    }

    /// Learns what a step of `num_rows` rows took.
    pub(super) fn observe_step(
        &mut self,
        output: &SchedulerOutput,
        num_rows: usize,
        took: Duration,
    ) {
        let (num_tokens, num_sequences) = (output.num_tokens(), output.scheduled.len());
        if num_rows == num_tokens {
            let num_yielding = output.num_yielding;
            self.pace.observe(Ran { num_tokens, num_sequences, num_yielding, took });
        }
        let decodes = output.admitted.is_empty() && num_tokens < 2 * num_sequences;
        if decodes {
            self.speculation.observe_step(num_rows, took);
        }
    }

    /// Counts what came of drafts, `sampled` having the tokens of each sequence: how many were drafted,
    /// and how many of them sampled.
    pub(super) fn count_drafts(
        &self,
        rows: &Rows,
        sampled: &[(SequenceId, Vec<u32>)],
    ) -> HashMap<SequenceId, [usize; 2]> {
        let mut counts = HashMap::new();
        for SampledRows { id, drafts, .. } in &rows.sampled {
            let own = sampled.iter().find(|(other, _)| other == id);
            if let Some((_, tokens)) = own.filter(|_| !drafts.is_empty()) {
                let accepted = num_accepted(drafts, tokens);
                let drafter = self.active.get(id).and_then(Active::drafter);
                let source = drafter.map_or("", |drafter| self.source(drafter.offered()));
                self.metrics.add_drafts(source, drafts.len(), accepted);
                counts.insert(*id, [drafts.len(), accepted]);
            }
        }
        counts
    }

    /// What metrics call a source of drafts.
    fn source(&self, source: Source) -> &'static str {
        match source {
            Source::Prediction => "prediction",
            Source::Own => "ngram",
            Source::Others => "suffix",
            Source::Grammar => "grammar",
            Source::Model => self.draft_model.as_ref().map_or("draft_model", DraftModel::source),
        }
    }

    /// Keeps the answer of a sequence that ended for others.
    pub(super) fn keep_answer(&mut self, active: &mut Active, sequence: &Sequence) {
        if let Some((_, drafter)) = active.speculating() {
            self.speculation.end(drafter, scope(sequence));
        }
    }
}

/// Those of the `decoding` sequences that can have drafts.
fn candidates<'a>(
    scheduler: &'a Scheduler,
    active: &'a HashMap<SequenceId, Active>,
    model: Option<&DraftModel>,
    decoding: &[SequenceId],
) -> (Vec<SequenceId>, Vec<Candidate<'a>>) {
    let candidate = |id: &SequenceId| {
        let (sequence, active) = (scheduler.sequence(*id)?, active.get(id)?);
        let modelled = model.is_some_and(|model| model.can_draft(sequence));
        let (scope, rows) = (scope(sequence), sequence.num_pending());
        Some((*id, Candidate { drafter: active.drafter()?, scope, rows, modelled }))
    };
    decoding.iter().filter_map(candidate).unzip()
}

/// What a draft model was asked for. `None` where it failed, after which it is not asked any more: answers
/// are the same without it, only slower.
fn attempt<T>(work: impl FnOnce() -> candle_core::Result<T>) -> Option<T> {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(told)) => return Some(told),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic_message(panic.as_ref()),
    };
    tracing::error!("the draft model failed and is not asked any more: {failure}");
    None
}

/// Sequences that may learn of each other's answers: those that share blocks.
fn scope(sequence: &Sequence) -> u128 {
    u128::from_le_bytes(sequence.root().bytes())
}
