//! Texts to embed: sequences that sample nothing, whose hidden states are pooled step by step.

use std::time::Instant;

use super::{Active, EngineCore, Task};
use crate::config::Pooling;
use crate::engine::output::{EngineError, EngineOutput, OutputSender};
use crate::engine::request::EmbeddingRequest;
use crate::pooling::{EmbeddingStyle, Pooler, Shaping};
use crate::runner::HiddenStates;
use crate::scheduler::output::SchedulerOutput;
use crate::scheduler::sequence::{PooledTokens, Sequence, SequenceId};
use crate::scheduler::stop::StopConditions;

impl EngineCore {
    pub(super) fn submit_embedding(&mut self, request: EmbeddingRequest, outputs: OutputSender) {
        if let Err(reason) = self.check_embedding(&request) {
            let _ = outputs.send(EngineOutput::Failed(EngineError::Rejected(reason)));
            return;
        }
        let EmbeddingRequest { id, token_ids, dimensions, normalize, priority, cache_salt } =
            request;
        let id = SequenceId(id.0);
        let EmbeddingStyle { pooling, normalize: usually } = self.embedding;
        let sequence =
            Sequence::new(id, token_ids, nothing_to_stop(), priority, cache_salt.as_deref())
                .with_pooled(pooled_tokens(pooling));
        self.scheduler.add(sequence);
        let shaping = Shaping { dimensions, normalize: normalize.unwrap_or(usually) };
        let task = Task::Embed { pooler: Pooler::new(pooling), shaping };
        self.active.insert(id, Active::new(outputs, task));
    }

    fn check_embedding(&self, request: &EmbeddingRequest) -> Result<(), String> {
        let limits = &self.shared.limits;
        self.check_tokens(request.id, &request.token_ids)?;
        let length = request.token_ids.len();
        if length > limits.max_model_len {
            return Err(format!(
                "the text has {length} tokens, the context length is {}",
                limits.max_model_len
            ));
        }
        limits.check_dimensions(request.dimensions)
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
                active.tell_embedding(&sequence, now);
            }
        }
    }
}

impl Active {
    fn tell_embedding(mut self, sequence: &Sequence, now: Instant) {
        self.first_token = Some(now);
        let stats = self.stats(sequence, now);
        let Task::Embed { pooler, shaping } = self.task else { return };
        let embedding = shaping.apply(pooler.finish());
        let message = match embedding.iter().find(|x| !x.is_finite()) {
            None => EngineOutput::Embedded { embedding, stats },
            Some(x) => EngineOutput::Failed(EngineError::StepFailed(format!(
                "an element of the embedding is {x}"
            ))),
        };
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
