//! The engine thread: drain commands, schedule, run, sample, update, emit; again.
//!
//! Owns everything mutable: the scheduler its sequences, the runner its tensors, this loop the
//! senders and sampler states. A step that fails ends its own sequences with an error and nothing
//! else. Knows no text.

mod active;
mod adapters;
mod rows;
mod searches;
mod sequences;
mod tier;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;

use super::command::{Command, Wait, drain_commands};
use super::handle::Shared;
use super::output::event::{panic_message, reject};
use super::output::{EngineError, EngineOutput, OutputSender};
use super::pace::Pace;
use super::request::{BeamRequest, EmbeddingRequest, EngineRequest, RequestId};
use crate::metrics::MetricsHandle;
use crate::pooling::{EmbeddingHead, Pooler};
use crate::runner::{DeviceLogits, HiddenStates, HostLogits, Logits, Runner, StepOutput};
use crate::sampling::logprobs::TokenLogprobs;
use crate::sampling::on_device::sample_rows_on_device;
use crate::sampling::{
    SampledToken, SamplerState, SamplingError, ScoredRow, sample_rows, score_rows,
};
use crate::scheduler::Scheduler;
use crate::scheduler::output::{Finished, PlannedSequence, SchedulerOutput};
use crate::scheduler::sequence::{Sequence, SequenceId};
use active::{Active, Task, samplers};
use adapters::Adapters;
use rows::{NextToken, Rows, ScoredRows};
use searches::{Search, Searches};
pub(super) use tier::Tier;

const _: () = assert!(crate::kv_cache::BLOCK_SIZE == crate::runner::BLOCK_SIZE);

/// A sequence's next token, or why there is none.
type Sampled = (SequenceId, Result<SampledToken, SamplingError>);

/// The logprobs of some tokens of a sequence's prompt, or why there are none.
type Scored = (SequenceId, Result<Vec<TokenLogprobs>, SamplingError>);

/// Why a sequence of a plan has a sampler.
const ACTIVE: &str = "scheduled sequences are active";

/// Everything the engine thread owns.
pub(super) struct EngineCore {
    commands: UnboundedReceiver<Command>,
    shared: Arc<Shared>,
    scheduler: Scheduler,
    pace: Pace,
    runner: Runner,
    active: HashMap<SequenceId, Active>,
    searches: Searches,
    adapters: Adapters,
    head: EmbeddingHead,
    metrics: MetricsHandle,
    tier: Option<Tier>,
    /// The last step had nothing to compute: all who wait wait for loads.
    stalled: bool,
}

impl EngineCore {
    pub(super) fn new(
        commands: UnboundedReceiver<Command>,
        shared: Arc<Shared>,
        scheduler: Scheduler,
        pace: Pace,
        runner: Runner,
        head: EmbeddingHead,
        metrics: MetricsHandle,
    ) -> Self {
        Self {
            commands,
            shared,
            scheduler,
            pace,
            runner,
            active: HashMap::new(),
            searches: Searches::default(),
            adapters: Adapters::default(),
            head,
            metrics,
            tier: None,
            stalled: false,
        }
    }

    /// The same, with a slower tier of the cache.
    #[must_use]
    pub(super) fn with_tier(self, tier: Tier) -> Self {
        Self { scheduler: self.scheduler.with_tier(), tier: Some(tier), ..self }
    }

    /// Runs until every handle and stream is gone.
    pub(super) fn run(mut self) {
        loop {
            let idle = self.is_idle();
            if idle {
                // What the last step computed is not to wait for the next request.
                self.advance_tier();
                self.report_load();
            }
            let wait = match &self.tier {
                _ if idle => Wait::ForOne,
                Some(tier) if self.stalled => {
                    tier.deadline().map_or(Wait::No, |deadline| Wait::Until(&tier.clock, deadline))
                }
                _ => Wait::No,
            };
            let Some(commands) = drain_commands(&mut self.commands, wait) else {
                return self.finish();
            };
            for command in commands {
                self.handle(command);
            }
            self.advance_tier();
            if !self.is_idle() {
                self.shared.begin_step();
                self.step();
                self.shared.end_step();
            }
            if self.runner.is_broken() {
                return self.fail_all("the ranks that compute the model have lost each other");
            }
        }
    }

    fn advance_tier(&mut self) {
        if let Some(tier) = &mut self.tier {
            tier.advance(&mut self.scheduler, &self.runner);
        }
    }

    /// Stores what is left to be stored.
    fn finish(self) {
        let Self { tier, mut scheduler, runner, .. } = self;
        if let Some(tier) = tier {
            tier.finish(&mut scheduler, &runner);
        }
    }

    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.searches.is_empty()
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Submit(request, outputs) => self.submit(*request, outputs),
            Command::Embed(request, outputs) => self.submit_embedding(*request, outputs),
            Command::Search(request, answers) => self.submit_search(*request, answers),
            Command::Wake => {}
            Command::Abort(id) => {
                if self.active.remove(&SequenceId(id.0)).is_some() {
                    self.scheduler.remove(SequenceId(id.0));
                } else {
                    self.searches.abort_answer(id, &mut self.scheduler);
                }
            }
        }
    }

    fn submit(&mut self, request: EngineRequest, outputs: OutputSender) {
        if let Err(reason) = self.check(&request) {
            return reject(&outputs, reason);
        }
        let prompt_logprobs = request.prompt_logprobs;
        let (sequence, sampler) = sequences::to_generate(request, &mut self.adapters);
        let task = Task::Generate { sampler: Box::new(sampler), prompt_logprobs };
        self.add(sequence, Active::new(outputs, task));
    }

    fn submit_embedding(&mut self, request: EmbeddingRequest, outputs: OutputSender) {
        let limits = &self.shared.limits;
        let checked = self.check_new(request.id).and_then(|()| limits.check_embedding(&request));
        if let Err(reason) = checked {
            return reject(&outputs, reason);
        }
        let pooling = self.head.pooling;
        let EmbeddingRequest { dimensions, normalize, .. } = request;
        let task = Task::Embed { pooler: Pooler::new(pooling), dimensions, normalize };
        let sequence = sequences::to_embed(request, &mut self.adapters, pooling);
        self.add(sequence, Active::new(outputs, task));
    }

    fn add(&mut self, sequence: Sequence, active: Active) {
        self.active.insert(sequence.id, active);
        self.scheduler.add(sequence);
    }

    fn submit_search(
        &mut self,
        BeamRequest { request, beams }: BeamRequest,
        answers: Vec<(RequestId, OutputSender)>,
    ) {
        let checked = self.check(&request).and_then(|()| searches::check(&request, &answers));
        if let Err(reason) = checked {
            return answers.iter().for_each(|(_, outputs)| reject(outputs, reason.clone()));
        }
        let (id, stop) = (request.id, request.stop.clone());
        let (prompt, sampler) = sequences::to_generate(request, &mut self.adapters);
        self.searches.add(id, Search::new(beams, stop, answers, (prompt.id, sampler)));
        self.scheduler.add(prompt.as_beam());
    }

    fn check(&self, request: &EngineRequest) -> Result<(), String> {
        let limits = &self.shared.limits;
        let prompt = &request.prompt_token_ids;
        self.check_new(request.id)?;
        limits.check_tokens(prompt)?;
        if prompt.len() >= limits.max_model_len {
            return Err(format!(
                "the prompt has {} tokens, the context length is {} and an answer needs one more",
                prompt.len(),
                limits.max_model_len
            ));
        }
        if request.stop.max_tokens == 0 {
            return Err("max_tokens is 0, the least is 1".to_owned());
        }
        Ok(())
    }

    fn check_new(&self, id: RequestId) -> Result<(), String> {
        if self.active.contains_key(&SequenceId(id.0)) {
            return Err(format!("request {} is running already", id.0));
        }
        Ok(())
    }

    fn step(&mut self) {
        let began = Instant::now();
        let output = self.scheduler.schedule(self.pace.num_tokens());
        self.stalled = output.scheduled.is_empty() && self.tier.is_some();
        if self.stalled {
            return;
        }
        self.note_scheduled(&output);
        match self.run_model(&output) {
            Ok(Ok(StepOutput { logits, hidden })) => {
                self.pool(&output, &hidden);
                self.finish_step(&output, logits);
                self.finish_embeddings(&output);
                self.take_snapshots();
                self.searches.advance(&mut self.scheduler, &self.runner);
                let num_tokens = output.num_tokens();
                self.pace.observe(num_tokens, output.scheduled.len(), began.elapsed());
            }
            Ok(Err(error)) => self.fail_step(&output, &error.to_string()),
            Err(panic) => self.fail_step(&output, &panic_message(panic.as_ref())),
        }
    }

    /// Runs the model, and beside it what sampling needs besides logits.
    fn run_model(
        &mut self,
        output: &SchedulerOutput,
    ) -> std::thread::Result<candle_core::Result<StepOutput>> {
        let Self { scheduler, runner, active, searches, adapters, .. } = self;
        let due: HashSet<SequenceId> =
            scheduler.plan(output).filter(|planned| planned.samples).map(|p| p.id).collect();
        let samplers = active.iter_mut().filter(|(id, _)| due.contains(id));
        let mut constrained: Vec<&mut SamplerState> = samplers
            .filter_map(|(_, active)| active.sampler())
            .chain(searches.samplers(&due))
            .filter(|sampler| sampler.is_constrained())
            .collect();
        let adapter = |id| adapters.weights(id);
        let run = || {
            catch_unwind(AssertUnwindSafe(|| {
                if !output.copied.is_empty() {
                    runner.copy(&output.copied)?;
                }
                runner.restore(&output.restored)?;
                runner.run(scheduler.plan(output), adapter)
            }))
        };
        if constrained.is_empty() {
            return run();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| constrained.iter_mut().for_each(|sampler| sampler.prepare()));
            run()
        })
    }

    /// Copies the states that are to be kept, before a fork or the next step changes them.
    fn take_snapshots(&mut self) {
        let copies = self.scheduler.take_snapshots();
        if let Err(error) = self.runner.take_snapshots(&copies) {
            tracing::error!("recurrent states could not be kept: {error}");
            self.scheduler.forget_snapshots();
        }
    }

    fn note_scheduled(&mut self, output: &SchedulerOutput) {
        let now = Instant::now();
        let mut started = self.searches.note_scheduled(output);
        for (id, cached_tokens) in &output.admitted {
            let Some(active) = self.active.get_mut(id) else { continue };
            let (cached_tokens, queue) = (*cached_tokens, active.timeline.scheduled(now));
            active.send(EngineOutput::Started { cached_tokens, queue });
            started.push((*id, cached_tokens));
        }
        for (id, cached) in &started {
            let prompt = self.scheduler.sequence(*id).map_or(0, |s| s.num_pending() + cached);
            self.metrics.add_prefix_lookup(prompt, *cached);
        }
        self.metrics.add_preemptions(output.preempted.len());
        // A prompt's last part gives a first token besides; what other tokens give is what they are
        // computed for, one each.
        let begins = |planned: &PlannedSequence<'_>| {
            let sequence = self.scheduler.sequence(planned.id);
            planned.samples && sequence.is_some_and(|sequence| sequence.num_output() == 0)
        };
        let first_tokens = self.scheduler.plan(output).filter(begins).count();
        self.metrics.observe_step(output.num_tokens() + first_tokens);
        self.report_load();
    }

    /// Pools the step's hidden states with those that the texts to embed have already.
    fn pool(&mut self, output: &SchedulerOutput, hidden: &HiddenStates) {
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

    /// Samples and scores what the step computed, updates its sequences and sends their tokens.
    fn finish_step(&mut self, output: &SchedulerOutput, logits: Logits) {
        let rows = self.split_rows(output, &logits);
        let (sampled, scored) = match self.sample(&rows, logits) {
            Ok(sampled) => sampled,
            Err(error) => return self.fail_step(output, &error.to_string()),
        };
        for (id, scores) in scored {
            match scores {
                Ok(logprobs) => self.active[&id].send(EngineOutput::PromptLogprobs(logprobs)),
                Err(error) => self.fail(id, &error.to_string()),
            }
        }
        let mut tokens = Vec::with_capacity(sampled.len());
        for (id, sampled) in sampled {
            match sampled {
                Ok(token) => tokens.push((id, token)),
                Err(error) => self.fail(id, &error.to_string()),
            }
        }
        let all = |token: &SampledToken| [&[token.token_id], &token.forced[..]].concat();
        let token_ids: Vec<_> = tokens.iter().map(|(id, token)| (*id, all(token))).collect();
        let finished = self.scheduler.update(output, &token_ids);
        self.emit(tokens, finished);
    }

    fn split_rows(&mut self, output: &SchedulerOutput, logits: &Logits) -> Rows {
        let Self { scheduler, active, searches, .. } = self;
        let on_device = matches!(logits, Logits::Device(_));
        Rows::split(scheduler.plan(output), |id| {
            let sampler = active.get_mut(&id).and_then(Active::sampler);
            match sampler {
                _ if searches.contains(id) => NextToken::Searched,
                Some(sampler) if on_device && sampler.samples_on_device() => {
                    NextToken::SampledOnDevice
                }
                _ => NextToken::Sampled,
            }
        })
    }

    /// The next tokens and the logprobs of prompt tokens; searches get their continuations.
    fn sample(
        &mut self,
        rows: &Rows,
        logits: Logits,
    ) -> candle_core::Result<(Vec<Sampled>, Vec<Scored>)> {
        let on_host = rows.on_host();
        let (mut host, on_device) = match logits {
            Logits::Host(logits) => (logits, Vec::new()),
            Logits::Device(logits) => {
                let host = HostLogits::of_rows(&logits, &on_host)?;
                (host, self.sample_on_device(&logits, &rows.on_device, on_host.is_empty()))
            }
        };
        let mut host: HashMap<u32, &mut [f32]> = on_host.into_iter().zip(host.rows_mut()).collect();
        let score = |scored: &ScoredRows| {
            let top = self.active.get(&scored.id).map_or(0, Active::prompt_logprobs);
            let rows = scored.rows.clone().zip(&scored.token_ids);
            let rows = rows.map(|(row, token_id)| ScoredRow {
                logits: &*host[&row],
                token_id: *token_id,
                top,
            });
            (scored.id, score_rows(&rows.collect::<Vec<_>>()))
        };
        let scored = rows.scored.iter().map(score).collect();
        let mut take = |rows: &[(SequenceId, u32)]| -> Vec<_> {
            let mut own = |row| host.remove(row).expect("one row for each that samples");
            rows.iter().map(|(id, row)| (*id, own(row))).collect()
        };
        let (sampled, searched) = (take(&rows.sampled), take(&rows.searched));
        self.searches.expand(searched);
        let mut sampled = self.sample_on_host(sampled);
        sampled.extend(on_device);
        Ok((sampled, scored))
    }

    /// Samples from rows of logits on the device that computed them; `alone` says that the step has
    /// no others.
    fn sample_on_device(
        &mut self,
        logits: &DeviceLogits,
        rows: &[(SequenceId, u32)],
        alone: bool,
    ) -> Vec<Sampled> {
        // A sequence that waits is in the next step, which is not the one that would be run ahead.
        let nobody_waits = self.scheduler.num_waiting() == 0 && self.commands.is_empty();
        let mut samplers = samplers(&mut self.active);
        let with_sampler = rows.iter().map(|(id, row)| (samplers.remove(id).expect(ACTIVE), *row));
        let sampled = sample_rows_on_device(logits, with_sampler.collect(), |started| {
            if alone && nobody_waits {
                self.runner.run_ahead(started);
            }
        });
        let token_ids = sampled.iter().map(|token| token.as_ref().ok().map(|token| token.token_id));
        self.runner.tokens_sampled(token_ids.collect());
        rows.iter().map(|(id, _)| *id).zip(sampled).collect()
    }

    /// Samples from rows of logits on the host.
    fn sample_on_host(&mut self, rows: Vec<(SequenceId, &mut [f32])>) -> Vec<Sampled> {
        if rows.is_empty() {
            return Vec::new();
        }
        let ids: Vec<SequenceId> = rows.iter().map(|(id, _)| *id).collect();
        let mut samplers = samplers(&mut self.active);
        let with_sampler =
            rows.into_iter().map(|(id, row)| (samplers.remove(&id).expect(ACTIVE), row));
        let sampled = sample_rows(with_sampler);
        ids.into_iter().zip(sampled).collect()
    }

    fn emit(
        &mut self,
        sampled: Vec<(SequenceId, SampledToken)>,
        finished: Vec<(Finished, Sequence)>,
    ) {
        let now = Instant::now();
        let ends: HashMap<SequenceId, usize> =
            finished.iter().map(|(end, _)| (end.id, end.dropped)).collect();
        for (id, SampledToken { token_id, logprobs, mut forced }) in sampled {
            let Some(active) = self.active.get_mut(&id) else { continue };
            active.timeline.token(now);
            active.send(EngineOutput::Token { token_id, logprobs });
            forced.truncate(forced.len() - ends.get(&id).copied().unwrap_or(0));
            for token_id in forced {
                active.send(EngineOutput::Token { token_id, logprobs: None });
            }
        }
        for (end, sequence) in finished {
            let active = self.active.remove(&end.id).expect("finished sequences are active");
            active.send_finished(&sequence, end.reason, now);
        }
    }

    /// Ends the texts whose last token the step computed; the scheduler is updated already.
    fn finish_embeddings(&mut self, output: &SchedulerOutput) {
        let now = Instant::now();
        for (id, _) in &output.scheduled {
            let complete = self.scheduler.sequence(*id).is_some_and(|s| s.num_pending() == 0);
            if !complete || !self.active.get(id).is_some_and(Active::embeds) {
                continue;
            }
            if let (Some(sequence), Some(active)) =
                (self.scheduler.remove(*id), self.active.remove(id))
            {
                active.send_embedding(&self.head, &sequence, now);
            }
        }
    }

    fn fail_step(&mut self, output: &SchedulerOutput, message: &str) {
        tracing::error!(sequences = output.scheduled.len(), message, "a step failed");
        for (id, _) in &output.scheduled {
            self.fail(*id, message);
        }
    }

    /// Fails every sequence.
    fn fail_all(&mut self, message: &str) {
        tracing::error!(sequences = self.active.len(), message, "the engine ends");
        for id in self.active.keys().copied().collect::<Vec<_>>() {
            self.fail(id, message);
        }
    }

    fn fail(&mut self, id: SequenceId, message: &str) {
        if self.searches.fail(id, message, &mut self.scheduler) {
            return;
        }
        self.scheduler.remove(id);
        if let Some(active) = self.active.remove(&id) {
            let error = EngineError::StepFailed(message.to_owned());
            active.send(EngineOutput::Failed(error));
        }
    }

    fn report_load(&mut self) {
        let kv_cache = self.scheduler.kv_cache();
        self.metrics.set_load(self.scheduler.num_running(), self.scheduler.num_waiting());
        self.metrics.set_kv_blocks(kv_cache.num_used(), kv_cache.num_blocks());
        self.adapters.report(&self.scheduler, &self.metrics);
    }
}
