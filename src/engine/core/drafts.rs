//! Speculative decoding in the engine: who drafts, what it may cost, and what came of it.

use std::collections::HashMap;
use std::time::Duration;

use super::EngineCore;
use super::active::Active;
use super::rows::{Rows, SampledRows};
use crate::engine::request::EngineRequest;
use crate::sampling::SampledToken;
use crate::scheduler::output::{Finished, SchedulerOutput, num_accepted};
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::speculation::{Candidate, Drafter};

impl EngineCore {
    /// Where a request's tokens are drafted, if anywhere.
    pub(super) fn begin_drafts(&self, request: &EngineRequest) -> Option<Drafter> {
        let prompt_len = request.prompt_token_ids.len();
        self.speculation.begin(prompt_len, request.prediction.as_deref(), request.max_drafts)
    }

    /// Offers the scheduler the drafts that are worth computing in the next step.
    pub(super) fn offer_drafts(&mut self) {
        let Self { speculation, scheduler, active, .. } = self;
        let Some(decoding) = scheduler.decoding().filter(|_| speculation.is_on()) else { return };
        for sequence in &decoding {
            let active = active.get_mut(&sequence.id);
            if let Some((sampler, drafter)) = active.and_then(Active::speculating) {
                drafter.require(sampler.required());
            }
        }
        let candidate = |sequence: &&Sequence| {
            let drafter = active.get(&sequence.id)?.drafter()?;
            let (scope, rows) = (scope(sequence), sequence.num_pending());
            Some((sequence.id, Candidate { drafter, scope, rows }))
        };
        let (ids, candidates): (Vec<_>, Vec<_>) = decoding.iter().filter_map(candidate).unzip();
        for (id, drafts) in ids.into_iter().zip(speculation.draft(&candidates)) {
            if !drafts.is_empty() {
                self.scheduler.offer_drafts(id, drafts);
            }
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
            self.pace.observe(num_tokens, num_sequences, took);
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
                self.metrics.add_drafts(drafts.len(), accepted);
                counts.insert(*id, [drafts.len(), accepted]);
            }
        }
        counts
    }

    /// Keeps the answer of a sequence that ended for others.
    pub(super) fn keep_answer(&mut self, active: &mut Active, sequence: &Sequence) {
        if let Some((_, drafter)) = active.speculating() {
            self.speculation.end(drafter, scope(sequence));
        }
    }
}

/// Sequences that may learn of each other's answers: those that share blocks.
fn scope(sequence: &Sequence) -> u128 {
    u128::from_le_bytes(sequence.root().bytes())
}
