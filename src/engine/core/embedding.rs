//! Texts to embed: sequences that sample nothing, whose hidden states are pooled step by step.

use std::time::Instant;

use super::{Active, EngineCore, Task};
use crate::config::Pooling;
use crate::engine::output::{EngineError, EngineOutput, OutputSender};
use crate::engine::request::EmbeddingRequest;
use crate::pooling::{EmbeddingHead, Pooler};
use crate::runner::HiddenStates;
use crate::scheduler::output::SchedulerOutput;
use crate::scheduler::sequence::{PooledTokens, Sequence, SequenceId};
use crate::scheduler::stop::StopConditions;

impl EngineCore {
    pub(super) fn submit_embedding(&mut self, request: EmbeddingRequest, outputs: OutputSender) {
        let limits = &self.shared.limits;
        let checked = self.check_new(request.id).and_then(|()| limits.check_embedding(&request));
        if let Err(reason) = checked {
            let _ = outputs.send(EngineOutput::Failed(EngineError::Rejected(reason)));
            return;
        }
        let EmbeddingRequest {
            id,
            token_ids,
            dimensions,
            normalize,
            priority,
            cache_salt,
            adapter,
        } = request;
        let id = SequenceId(id.0);
        let pooling = self.head.pooling;
        let sequence =
            Sequence::new(id, token_ids, nothing_to_stop(), priority, cache_salt.as_deref())
                .with_adapter(self.adapters.take(adapter))
                .with_pooled(pooled_tokens(pooling));
        self.scheduler.add(sequence);
        let task = Task::Embed { pooler: Pooler::new(pooling), dimensions, normalize };
        self.active.insert(id, Active::new(outputs, task));
    }

    /// Gives the step's hidden states to the texts they belong to.
    pub(super) fn pool(&mut self, output: &SchedulerOutput, hidden: &HiddenStates) {
        let mut rows = hidden.rows();
        for planned in self.scheduler.plan(output) {
            let own = rows.by_ref().take(planned.num_pooled());
            if let Some(Active { task: Task::Embed { pooler, .. }, .. }) =
                self.active.get_mut(&planned.id)
            {
                own.for_each(|row| pooler.add(row));
            }
        }
    }

    /// Ends the texts whose last token the step computed; its tokens must be booked.
    pub(super) fn finish_embeddings(&mut self, output: &SchedulerOutput) {
        let now = Instant::now();
        for (id, _) in &output.scheduled {
            let embeds = |active: &Active| matches!(active.task, Task::Embed { .. });
            let complete = self.scheduler.sequence(*id).is_some_and(|s| s.num_pending() == 0);
            if !complete || !self.active.get(id).is_some_and(embeds) {
                continue;
            }
            if let (Some(sequence), Some(active)) =
                (self.scheduler.remove(*id), self.active.remove(id))
            {
                active.tell_embedding(&self.head, &sequence, now);
            }
        }
    }
}

impl Active {
    fn tell_embedding(mut self, head: &EmbeddingHead, sequence: &Sequence, now: Instant) {
        self.first_token = Some(now);
        let stats = self.stats(sequence, now);
        let Task::Embed { pooler, dimensions, normalize } = self.task else { return };
        let message = EngineOutput::embedded(head.finish(pooler, dimensions, normalize), stats);
        // A stream that was dropped has sent its abort already.
        let _ = self.outputs.send(message);
    }
}

/// Which tokens' hidden states are needed.
fn pooled_tokens(pooling: Pooling) -> PooledTokens {
    match pooling {
        Pooling::Last => PooledTokens::Last,
        Pooling::Cls => PooledTokens::First,
        Pooling::Mean | Pooling::Max | Pooling::MeanSqrtLen | Pooling::WeightedMean => {
            PooledTokens::All
        }
    }
}

/// Nothing is sampled, so nothing has to stop.
fn nothing_to_stop() -> StopConditions {
    StopConditions {
        max_tokens: 1,
        min_tokens: 0,
        eos_token_ids: [].into(),
        stop_token_ids: Vec::new(),
        ignore_eos: false,
    }
}
