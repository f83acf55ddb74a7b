//! The engine thread of a model that only embeds: queue what comes, run the first of the queue
//! together, send vectors.
//!
//! Between the layers of a step it drains commands, so a step that nobody waits for any more ends
//! early. Knows no text.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;

use super::adapter::Adapter;
use super::command::{Command, Wait, drain_commands};
use super::handle::Shared;
use super::output::event::{panic_message, reject};
use super::output::{EngineError, EngineOutput, OutputSender};
use super::request::{EmbeddingRequest, RequestId};
use super::timeline::Timeline;
use crate::metrics::MetricsHandle;
use crate::pooling::PoolingHead;
use crate::runner::{EncoderRunner, HiddenStates, Text};
use crate::scheduler::queue::{Rank, WaitingQueue};
use crate::scheduler::sequence::SequenceId;
use crate::scheduler::shares::{ShareId, Shares};

/// A text that waits.
struct Waiting {
    request: EmbeddingRequest,
    outputs: OutputSender,
    timeline: Timeline,
}

/// The result of a step: hidden states, none because nobody waits, an error or a panic.
type Ran = std::thread::Result<candle_core::Result<Option<HiddenStates>>>;

/// Everything the engine thread owns.
pub(super) struct EncoderCore {
    commands: UnboundedReceiver<Command>,
    shared: Arc<Shared>,
    runner: EncoderRunner,
    head: PoolingHead,
    // Most tokens of a step, unless one text alone has more.
    most_tokens: usize,
    waiting: HashMap<RequestId, (Rank, Waiting)>,
    queue: WaitingQueue,
    shares: Shares,
    arrivals: u64,
    metrics: MetricsHandle,
}

impl EncoderCore {
    pub(super) fn new(
        commands: UnboundedReceiver<Command>,
        shared: Arc<Shared>,
        runner: EncoderRunner,
        head: PoolingHead,
        most_tokens: usize,
        metrics: MetricsHandle,
    ) -> Self {
        Self {
            commands,
            shared,
            runner,
            head,
            most_tokens,
            waiting: HashMap::new(),
            queue: WaitingQueue::default(),
            shares: Shares::default(),
            arrivals: 0,
            metrics,
        }
    }

    /// Runs until every handle and stream is gone.
    pub(super) fn run(mut self) {
        loop {
            let idle = self.waiting.is_empty();
            if idle {
                self.metrics.set_load(0, 0);
            }
            let wait = if idle { Wait::ForOne } else { Wait::No };
            let Some(commands) = drain_commands(&mut self.commands, wait) else { return };
            for command in commands {
                self.handle(command);
            }
            let batch = self.take_batch();
            if !batch.is_empty() {
                self.shared.begin_step();
                self.step(batch);
                self.shared.end_step();
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Embed(request, outputs) => self.queue(*request, outputs),
            Command::Submit(_, outputs) => refuse(&outputs),
            Command::Search(_, beams) => beams.iter().for_each(|(_, outputs)| refuse(outputs)),
            Command::Abort(id) => drop(self.take(id)),
            Command::Wake => {}
        }
    }

    fn queue(&mut self, request: EmbeddingRequest, outputs: OutputSender) {
        let checked = match &request.adapter {
            Some(adapter) if !self.runner.takes_adapters() => {
                Err(format!("this encoder takes no adapters, such as {adapter:?}"))
            }
            _ => self.shared.limits.check_embedding(&request),
        };
        if let Err(reason) = checked {
            return reject(&outputs, reason);
        }
        let (id, share) = (request.id, ShareId(request.share));
        let rank = (request.priority, self.arrivals, SequenceId(id.0));
        self.arrivals += 1;
        self.shares.enter(share);
        self.queue.insert(share, rank, request.token_ids.len());
        let waiting = Waiting { request, outputs, timeline: Timeline::submitted() };
        self.waiting.insert(id, (rank, waiting));
    }

    /// Takes a text out of the queue.
    fn take(&mut self, id: RequestId) -> Option<Waiting> {
        let (rank, waiting) = self.waiting.remove(&id)?;
        let share = ShareId(waiting.request.share);
        self.queue.remove(share, rank);
        self.shares.leave(share);
        Some(waiting)
    }

    /// Texts in the order of the queue, as many as fit a step.
    fn take_batch(&mut self) -> Vec<Waiting> {
        let mut batch = Vec::new();
        let (mut tokens, mut after) = (0, None);
        self.queue.order(&self.shares);
        while batch.len() < self.shared.limits.max_num_seqs
            && let Some((share, rank, _)) = self.queue.next(after)
        {
            let id = RequestId(rank.2.0);
            let own = self.waiting.get(&id).map_or(0, |(_, text)| text.request.token_ids.len());
            tokens += own;
            if !batch.is_empty() && tokens > self.most_tokens {
                break;
            }
            after = Some(rank);
            self.shares.admit(share, own);
            batch.extend(self.take(id));
        }
        batch
    }

    /// Runs the model. Commands that come meanwhile are handled afterwards, but once they have aborted
    /// every text of the step, it ends without a result.
    fn run_model(&mut self, batch: &[Waiting]) -> Ran {
        let Self { commands, shared, runner, .. } = self;
        let mut received = Vec::new();
        let mut wanted = batch.len();
        let mut go_on = || {
            shared.begin_step();
            while let Ok(command) = commands.try_recv() {
                if let Command::Abort(id) = &command {
                    let aborted = batch.iter().filter(|waiting| waiting.request.id == *id).count();
                    wanted = wanted.saturating_sub(aborted);
                }
                received.push(command);
            }
            wanted > 0
        };
        let texts = batch.iter().map(|Waiting { request, .. }| Text {
            token_ids: &request.token_ids,
            second: request.second_text,
            unseen: request.unseen,
            adapter: request.adapter.as_ref().map(Adapter::weights),
        });
        let texts: Vec<Text<'_>> = texts.collect();
        let ran = catch_unwind(AssertUnwindSafe(|| runner.run(&texts, &mut go_on)));
        for command in received {
            self.handle(command);
        }
        ran
    }

    fn step(&mut self, mut batch: Vec<Waiting>) {
        let began = Instant::now();
        let tokens = batch.iter().map(|waiting| waiting.request.token_ids.len()).sum();
        self.metrics.set_load(batch.len(), self.waiting.len());
        self.metrics.observe_step(tokens);
        for waiting in &mut batch {
            let queue = waiting.timeline.scheduled(began);
            let _ = waiting.outputs.send(EngineOutput::Started { cached_tokens: 0, queue });
        }
        match self.run_model(&batch) {
            Ok(Ok(Some(hidden))) => self.send_vectors(batch, &hidden),
            // Nobody waits for it.
            Ok(Ok(None)) => {}
            Ok(Err(error)) => fail(batch, &error.to_string()),
            Err(panic) => fail(batch, &panic_message(panic.as_ref())),
        }
    }

    fn send_vectors(&self, batch: Vec<Waiting>, hidden: &HiddenStates) {
        let mut rows = hidden.rows();
        for waiting in batch {
            let EmbeddingRequest { token_ids, wanted, .. } = &waiting.request;
            let mut pooler = self.head.pooler(wanted.outputs);
            rows.by_ref()
                .take(self.runner.rows_of(token_ids.len()))
                .for_each(|row| pooler.add(row));
            let stats = waiting.timeline.stats(0, 0, Instant::now());
            let embedding = self.head.finish(pooler, *wanted);
            // A stream that was dropped needs no answer.
            let _ = waiting.outputs.send(EngineOutput::embedded(embedding, stats));
        }
    }
}

fn refuse(outputs: &OutputSender) {
    reject(outputs, "the model only makes vectors of texts, it can't continue them".to_owned());
}

fn fail(batch: Vec<Waiting>, message: &str) {
    tracing::error!(texts = batch.len(), message, "a step failed");
    for waiting in batch {
        let error = EngineError::StepFailed(message.to_owned());
        let _ = waiting.outputs.send(EngineOutput::Failed(error));
    }
}
