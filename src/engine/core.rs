//! The engine thread: drain commands, schedule, run, sample, update, emit; again.
//!
//! Owns everything mutable: the scheduler its sequences, the runner its tensors, this loop the
//! senders and sampler states. A step that fails ends its own sequences with an error and nothing
//! else. Knows no text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;

use super::output::{EngineError, EngineOutput, OutputSender, SequenceStats};
use super::pace::Pace;
use super::request::{EngineRequest, RequestId};
use super::{Command, Shared};
use crate::metrics::MetricsHandle;
use crate::pooling::{EmbeddingHead, Pooler};
use crate::runner::{HostLogits, Logits, Runner, StepOutput};
use crate::sampling::logprobs::TokenLogprobs;
use crate::sampling::on_device::draw_rows;
use crate::sampling::{
    SampledToken, SamplerState, SamplingError, ScoredRow, sample_rows, score_rows,
};
use crate::scheduler::Scheduler;
use crate::scheduler::output::{Finished, SchedulerOutput};
use crate::scheduler::sequence::{Sequence, SequenceId};

mod adapters;
mod beams;
mod embedding;

use adapters::Adapters;
use beams::Searches;

const _: () = assert!(crate::kv_cache::BLOCK_SIZE == crate::runner::BLOCK_SIZE);

/// What a sequence is there for.
enum Task {
    /// To be continued.
    Continue { sampler: Box<SamplerState>, prompt_logprobs: Option<u8> },
    /// To be embedded.
    Embed { pooler: Pooler, dimensions: Option<usize>, normalize: Option<bool> },
}

/// What the loop keeps of a request besides its sequence.
struct Active {
    outputs: OutputSender,
    task: Task,
    submitted: Instant,
    first_scheduled: Option<Instant>,
    first_token: Option<Instant>,
}

/// A token, or why there is none.
type Drawn = Result<SampledToken, SamplingError>;

/// Why a sequence of a plan has a sampler.
const ACTIVE: &str = "scheduled sequences are active";

/// The samplers of all sequences that have one.
fn samplers(active: &mut HashMap<SequenceId, Active>) -> HashMap<SequenceId, &mut SamplerState> {
    active.iter_mut().filter_map(|(id, active)| Some((*id, active.sampler()?))).collect()
}

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
        }
    }

    /// Runs until every handle and stream is gone.
    pub(super) fn run(mut self) {
        loop {
            let idle = self.is_idle();
            if idle {
                self.report_load();
            }
            let Some(arrived) = super::arrived(&mut self.commands, idle) else { return };
            for command in arrived {
                self.obey(command);
            }
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

    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.searches.is_empty()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(request, outputs) => self.submit(*request, outputs),
            Command::Embed(request, outputs) => self.submit_embedding(*request, outputs),
            Command::Search(request, answers) => self.submit_search(*request, answers),
            Command::Abort(RequestId(id)) => {
                if self.active.remove(&SequenceId(id)).is_some() {
                    self.scheduler.remove(SequenceId(id));
                } else {
                    self.abort_answer(RequestId(id));
                }
            }
        }
    }

    fn submit(&mut self, request: EngineRequest, outputs: OutputSender) {
        if let Err(reason) = self.check(&request) {
            let _ = outputs.send(EngineOutput::Failed(EngineError::Rejected(reason)));
            return;
        }
        let EngineRequest {
            id,
            prompt_token_ids,
            sampling,
            stop,
            prompt_logprobs,
            priority,
            cache_salt,
            adapter,
        } = request;
        let id = SequenceId(id.0);
        let suppressed = stop.suppressed_before_min_tokens();
        let sampler = SamplerState::new(sampling, &prompt_token_ids, stop.min_tokens, suppressed);
        let salt = cache_salt.as_deref();
        let sequence = Sequence::new(id, prompt_token_ids, stop, priority, salt)
            .with_adapter(self.adapters.take(adapter));
        let scored = prompt_logprobs.is_some();
        self.scheduler.add(if scored { sequence.with_scored_prompt() } else { sequence });
        let task = Task::Continue { sampler: Box::new(sampler), prompt_logprobs };
        self.active.insert(id, Active::new(outputs, task));
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
        self.note_scheduled(&output);
        match self.run_model(&output) {
            Ok(Ok(StepOutput { logits, hidden })) => {
                self.pool(&output, &hidden);
                self.finish_step(&output, logits);
                self.finish_embeddings(&output);
                self.advance_searches();
                let num_tokens = output.num_tokens();
                self.pace.observe(num_tokens, output.scheduled.len(), began.elapsed());
            }
            Ok(Err(error)) => self.fail_step(&output, &error.to_string()),
            Err(panic) => self.fail_step(&output, &panic_message(panic.as_ref())),
        }
    }

    /// Runs the model, and beside it what the next draws need and no logits.
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
        let run = || catch_unwind(AssertUnwindSafe(|| runner.run(scheduler.plan(output), adapter)));
        if constrained.is_empty() {
            return run();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| constrained.iter_mut().for_each(|sampler| sampler.prepare()));
            run()
        })
    }

    fn note_scheduled(&mut self, output: &SchedulerOutput) {
        let now = Instant::now();
        let mut begun = self.searches.note_scheduled(output);
        for (id, cached) in &output.admitted {
            let Some(active) = self.active.get_mut(id) else { continue };
            active.first_scheduled = Some(now);
            let queue = now - active.submitted;
            let _ = active.outputs.send(EngineOutput::Started { cached_tokens: *cached, queue });
            begun.push((*id, *cached));
        }
        for (id, cached) in &begun {
            let prompt = self.scheduler.sequence(*id).map_or(0, |s| s.num_pending() + cached);
            self.metrics.add_prefix_lookup(prompt, *cached);
        }
        self.metrics.add_preemptions(output.preempted.len());
        self.metrics.observe_step(output.num_tokens());
        self.report_load();
    }

    fn finish_step(&mut self, output: &SchedulerOutput, logits: Logits) {
        let (mut logits, there) = match self.draw_there(output, logits) {
            Ok(split) => split,
            Err(error) => return self.fail_step(output, &error.to_string()),
        };
        let mut scored = Vec::new();
        let mut sampling = Vec::new();
        let mut searching = Vec::new();
        let mut rows = logits.rows_mut();
        for planned in self.scheduler.plan(output) {
            let top = self.active.get(&planned.id).map_or(0, Active::prompt_logprobs);
            let own = rows.by_ref().take(planned.scored.len());
            let own = own.zip(planned.scored).map(|(logits, token_id)| ScoredRow {
                logits,
                token_id: *token_id,
                top,
            });
            let own: Vec<_> = own.collect();
            if !own.is_empty() {
                scored.push((planned.id, score_rows(&own)));
            }
            if planned.samples && !there.contains_key(&planned.id) {
                let row = rows.next().expect("one row for each that samples");
                let searches = self.searches.own(planned.id);
                if searches { &mut searching } else { &mut sampling }.push((planned.id, row));
            }
        }
        self.searches.expand(searching);
        let drawn: Vec<_> = self.draw(sampling).into_iter().chain(there).collect();
        for (id, scores) in scored {
            self.tell_scores(id, scores);
        }
        let mut sampled = Vec::with_capacity(drawn.len());
        for (id, drawn) in drawn {
            match drawn {
                Ok(token) => sampled.push((id, token)),
                Err(error) => self.fail(id, &error.to_string()),
            }
        }
        let all = |token: &SampledToken| [&[token.token_id], &token.forced[..]].concat();
        let tokens: Vec<_> = sampled.iter().map(|(id, token)| (*id, all(token))).collect();
        let finished = self.scheduler.update(output, &tokens);
        self.emit(sampled, finished);
    }

    /// Draws as many tokens as can be where the logits are; with the rows of all others, in their
    /// order.
    fn draw_there(
        &mut self,
        output: &SchedulerOutput,
        logits: Logits,
    ) -> candle_core::Result<(HostLogits, BTreeMap<SequenceId, Drawn>)> {
        let logits = match logits {
            Logits::Host(logits) => return Ok((logits, BTreeMap::new())),
            Logits::Device(logits) => logits,
        };
        let (mut here, mut there, mut row) = (Vec::new(), Vec::new(), 0u32);
        for planned in self.scheduler.plan(output) {
            let scored = row..row + u32::try_from(planned.scored.len()).expect("rows are few");
            row = scored.end;
            here.extend(scored);
            if planned.samples {
                let active = self.active.get_mut(&planned.id);
                let sampler = active.and_then(|active| active.sampler());
                if sampler.is_some_and(|sampler| sampler.draws_on_device()) {
                    there.push((planned.id, row));
                } else {
                    here.push(row);
                }
                row += 1;
            }
        }
        let host = HostLogits::of_rows(&logits, &here)?;
        // Whoever waits is computed next, and those that go on with them.
        let nobody_waits = self.scheduler.num_waiting() == 0 && self.commands.is_empty();
        let mut samplers = samplers(&mut self.active);
        let rows = there.iter().map(|(id, row)| (samplers.remove(id).expect(ACTIVE), *row));
        let drawn = draw_rows(&logits, rows.collect(), |started| {
            if here.is_empty() && nobody_waits {
                self.runner.run_ahead(started);
            }
        });
        let token = |drawn: &Drawn| drawn.as_ref().ok().map(|drawn| drawn.token_id);
        self.runner.drew(drawn.iter().map(token).collect());
        Ok((host, there.into_iter().map(|(id, _)| id).zip(drawn).collect()))
    }

    /// The next token of each sequence, from its row of logits.
    fn draw(&mut self, rows: Vec<(SequenceId, &mut [f32])>) -> Vec<(SequenceId, Drawn)> {
        if rows.is_empty() {
            return Vec::new();
        }
        let ids: Vec<SequenceId> = rows.iter().map(|(id, _)| *id).collect();
        let mut samplers = samplers(&mut self.active);
        let with_sampler =
            rows.into_iter().map(|(id, row)| (samplers.remove(&id).expect(ACTIVE), row));
        let drawn = sample_rows(with_sampler);
        ids.into_iter().zip(drawn).collect()
    }

    fn tell_scores(&mut self, id: SequenceId, scores: Result<Vec<TokenLogprobs>, SamplingError>) {
        match scores {
            Ok(scores) => {
                let active = &self.active[&id];
                let _ = active.outputs.send(EngineOutput::PromptLogprobs(scores));
            }
            Err(error) => self.fail(id, &error.to_string()),
        }
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
            active.first_token.get_or_insert(now);
            // A stream that was dropped has sent its abort already.
            let _ = active.outputs.send(EngineOutput::Token { token_id, logprobs });
            forced.truncate(forced.len() - ends.get(&id).copied().unwrap_or(0));
            for token_id in forced {
                let _ = active.outputs.send(EngineOutput::Token { token_id, logprobs: None });
            }
        }
        for (end, sequence) in finished {
            let active = self.active.remove(&end.id).expect("finished sequences are active");
            let stats = active.stats(&sequence, now);
            let _ = active.outputs.send(EngineOutput::Finished { reason: end.reason, stats });
        }
    }

    fn fail_step(&mut self, output: &SchedulerOutput, message: &str) {
        tracing::error!(sequences = output.scheduled.len(), message, "a step failed");
        for (id, _) in &output.scheduled {
            self.fail(*id, message);
        }
    }

    /// Fails everything there is.
    fn fail_all(&mut self, message: &str) {
        tracing::error!(sequences = self.active.len(), message, "the engine ends");
        for id in self.active.keys().copied().collect::<Vec<_>>() {
            self.fail(id, message);
        }
    }

    fn fail(&mut self, id: SequenceId, message: &str) {
        if self.fail_search(id, message) {
            return;
        }
        self.scheduler.remove(id);
        if let Some(active) = self.active.remove(&id) {
            let error = EngineError::StepFailed(message.to_owned());
            let _ = active.outputs.send(EngineOutput::Failed(error));
        }
    }

    fn report_load(&mut self) {
        let kv_cache = self.scheduler.kv_cache();
        self.metrics.set_load(self.scheduler.num_running(), self.scheduler.num_waiting());
        self.metrics.set_kv_blocks(kv_cache.num_used(), kv_cache.num_blocks());
        self.adapters.report(&self.scheduler, &self.metrics);
    }
}

impl Active {
    fn new(outputs: OutputSender, task: Task) -> Self {
        let submitted = Instant::now();
        Self { outputs, task, submitted, first_scheduled: None, first_token: None }
    }

    fn sampler(&mut self) -> Option<&mut SamplerState> {
        match &mut self.task {
            Task::Continue { sampler, .. } => Some(sampler),
            Task::Embed { .. } => None,
        }
    }

    fn prompt_logprobs(&self) -> u8 {
        match &self.task {
            Task::Continue { prompt_logprobs, .. } => prompt_logprobs.unwrap_or(0),
            Task::Embed { .. } => 0,
        }
    }

    fn stats(&self, sequence: &Sequence, now: Instant) -> SequenceStats {
        let scheduled = self.first_scheduled.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        SequenceStats {
            cached_tokens: sequence.num_cached(),
            preemptions: sequence.preemptions(),
            queue: scheduled - self.submitted,
            prefill: first_token - scheduled,
            decode: now - first_token,
        }
    }
}

/// What a panic said.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}
