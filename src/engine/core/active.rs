//! What the engine thread holds of a request besides its sequence.

use std::collections::HashMap;
use std::time::Instant;

use super::super::output::{EngineOutput, OutputSender};
use super::super::timeline::Timeline;
use crate::pooling::{EmbeddingHead, Pooler};
use crate::sampling::SamplerState;
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::scheduler::stop::FinishReason;

/// What a sequence is for.
pub(super) enum Task {
    /// To be continued.
    Generate { sampler: Box<SamplerState>, prompt_logprobs: Option<u32> },
    /// To be embedded.
    Embed { pooler: Pooler, dimensions: Option<usize>, normalize: Option<bool> },
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

    /// Sends the end of a sequence that generated.
    pub(super) fn send_finished(&self, sequence: &Sequence, reason: FinishReason, now: Instant) {
        let stats = self.timeline.stats(sequence.num_cached(), sequence.preemptions(), now);
        self.send(EngineOutput::Finished { reason, stats });
    }

    /// Sends the embedding of a sequence whose tokens are all pooled.
    pub(super) fn send_embedding(
        mut self,
        head: &EmbeddingHead,
        sequence: &Sequence,
        now: Instant,
    ) {
        self.timeline.token(now);
        let stats = self.timeline.stats(sequence.num_cached(), sequence.preemptions(), now);
        let outputs = self.outputs;
        if let Task::Embed { pooler, dimensions, normalize } = self.task {
            let embedding = head.finish(pooler, dimensions, normalize);
            let _ = outputs.send(EngineOutput::embedded(embedding, stats));
        }
    }

    /// Sends an output. A stream that was dropped has sent its abort already.
    pub(super) fn send(&self, output: EngineOutput) {
        let _ = self.outputs.send(output);
    }
}
