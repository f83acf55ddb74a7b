//! What the engine thread holds of a request besides its sequence.

use std::collections::HashMap;
use std::time::Instant;

use super::super::output::{EngineOutput, Foreseen, OutputSender};
use super::super::timeline::Timeline;
use crate::pooling::{Pooler, PoolingHead, Wanted};
use crate::sampling::{SampledToken, SamplerState};
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::scheduler::stop::FinishReason;
use crate::speculation::Drafter;

/// Why a sequence of a plan has a sampler.
pub(super) const ACTIVE: &str = "scheduled sequences are active";

/// What a sequence is for.
pub(super) enum Task {
    /// To be continued.
    Generate {
        sampler: Box<SamplerState>,
        prompt_logprobs: Option<u32>,
        /// Where tokens are drafted.
        drafter: Option<Box<Drafter>>,
    },
    /// To be embedded.
    Embed { pooler: Pooler, wanted: Wanted },
}

/// A request that is neither finished nor aborted; those of beam searches are in `Searches`.
pub(super) struct Active {
    pub(super) outputs: OutputSender,
    pub(super) task: Task,
    pub(super) timeline: Timeline,
}

/// The samplers of all sequences that have one.
pub(super) fn samplers(
    active: &mut HashMap<SequenceId, Active>,
) -> HashMap<SequenceId, &mut SamplerState> {
    active.iter_mut().filter_map(|(id, active)| Some((*id, active.sampler()?))).collect()
}

impl Active {
    /// A request that was just submitted.
    pub(super) fn new(outputs: OutputSender, task: Task) -> Self {
        Self { outputs, task, timeline: Timeline::submitted() }
    }

    /// The sampler of a sequence that generates.
    pub(super) fn sampler(&mut self) -> Option<&mut SamplerState> {
        match &mut self.task {
            Task::Generate { sampler, .. } => Some(sampler),
            Task::Embed { .. } => None,
        }
    }

    /// The sampler and the drafts of a sequence that generates.
    pub(super) fn speculating(&mut self) -> Option<(&mut SamplerState, &mut Drafter)> {
        match &mut self.task {
            Task::Generate { sampler, drafter: Some(drafter), .. } => Some((sampler, drafter)),
            _ => None,
        }
    }

    /// Where tokens are drafted.
    pub(super) fn drafter(&self) -> Option<&Drafter> {
        match &self.task {
            Task::Generate { drafter, .. } => drafter.as_deref(),
            Task::Embed { .. } => None,
        }
    }

    /// How many of the most likely tokens are reported beside each token of the prompt.
    pub(super) fn prompt_logprobs(&self) -> u32 {
        match &self.task {
            Task::Generate { prompt_logprobs, .. } => prompt_logprobs.unwrap_or(0),
            Task::Embed { .. } => 0,
        }
    }

    /// Whether the sequence is to be embedded.
    pub(super) fn embeds(&self) -> bool {
        matches!(self.task, Task::Embed { .. })
    }

    /// Sends the tokens of a step but the last `dropped`; so many were drafted in it, and the first of
    /// them accepted.
    pub(super) fn send_tokens(
        &mut self,
        tokens: Vec<SampledToken>,
        dropped: usize,
        [drafted, accepted]: [usize; 2],
    ) {
        let outcomes = self.speculating().map(|(_, drafter)| drafter.take_outcomes());
        let outcomes = outcomes.unwrap_or_default();
        let count = tokens.iter().map(|token| 1 + token.forced.len()).sum::<usize>() - dropped;
        let each = tokens.into_iter().flat_map(|SampledToken { token_id, logprobs, forced }| {
            let forced = forced.into_iter().map(|token_id| (token_id, None));
            std::iter::once((token_id, logprobs)).chain(forced)
        });
        for (index, (token_id, logprobs)) in each.take(count).enumerate() {
            let foreseen = Foreseen {
                drafted: if index == 0 { u32::try_from(drafted).unwrap_or(u32::MAX) } else { 0 },
                accepted: index < accepted,
                predicted: outcomes.get(index).copied().flatten(),
            };
            self.send(EngineOutput::Token { token_id, logprobs, foreseen });
        }
    }

    /// Sends the end of a sequence that generated.
    pub(super) fn send_finished(&self, sequence: &Sequence, reason: FinishReason, now: Instant) {
        let stats = self.timeline.stats(sequence.num_cached(), sequence.preemptions(), now);
        self.send(EngineOutput::Finished { reason, stats });
    }

    /// Sends the embedding of a sequence whose tokens are all pooled.
    pub(super) fn send_embedding(mut self, head: &PoolingHead, sequence: &Sequence, now: Instant) {
        self.timeline.token(now);
        let stats = self.timeline.stats(sequence.num_cached(), sequence.preemptions(), now);
        let outputs = self.outputs;
        if let Task::Embed { pooler, wanted } = self.task {
            let embedding = head.finish(pooler, wanted);
            let _ = outputs.send(EngineOutput::embedded(embedding, stats));
        }
    }

    /// Sends an output. A stream that was dropped has sent its abort already.
    pub(super) fn send(&self, output: EngineOutput) {
        let _ = self.outputs.send(output);
    }
}
