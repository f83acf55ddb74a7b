//! The engine thread: drain commands, schedule, run, sample, update, emit; again.
//!
//! Owns everything mutable: the scheduler its sequences, the runner its tensors, this loop the
//! senders and sampler states. A step that fails ends its own sequences with an error and nothing
//! else. Knows no text.

mod active;
mod adapters;
mod draft_model;
mod drafts;
mod hidden_queue;
mod restart;
mod rows;
mod sampled;
mod searches;
mod sequences;
mod sights;
mod tiers;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use super::command::{Command, Wait, drain_commands};
use super::handle::Shared;
use super::output::event::{panic_message, reject};
use super::output::{EngineError, EngineOutput, OutputSender};
use super::pace::Pace;
use super::request::{BeamRequest, EmbeddingRequest, EngineRequest, RequestId};
use crate::kv_events::{Change, EventSender};
use crate::metrics::MetricsHandle;
use crate::pooling::PoolingHead;
use crate::runner::{DecodeBounds, Runner, StepOutput};
use crate::sampling::SamplerState;
use crate::scheduler::Scheduler;
use crate::scheduler::output::{MediaSpan, PlannedSequence, SchedulerOutput};
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::speculation::Speculation;
use active::{Active, Task};
use adapters::Adapters;
pub(super) use draft_model::DraftModel;
use hidden_queue::Told;
use searches::{Search, Searches};
use sights::Sights;
pub(super) use tiers::Tiers;

const _: () = assert!(crate::kv_cache::BLOCK_SIZE == crate::runner::BLOCK_SIZE);

/// How long pictures are looked at before commands are read again, where nobody runs.
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// Why the engine serves no longer.
enum End {
    /// Every handle and stream is gone.
    Left,
    /// Nothing can be computed any more.
    Broken(String),
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
    sights: Sights,
    head: PoolingHead,
    metrics: MetricsHandle,
    tiers: Option<Tiers>,
    /// Who is told of what is cached.
    events: Option<EventSender>,
    /// Where tokens are drafted.
    speculation: Speculation,
    draft_model: Option<DraftModel>,
    /// The last step had nothing to compute: all who wait wait for loads.
    stalled: bool,
    /// Something failed since the device was asked whether it still computes.
    failed: bool,
    /// A scheduler of no sequences over an empty cache, for a new beginning, which there is one of.
    pristine: Option<Scheduler>,
}

impl EngineCore {
    pub(super) fn new(
        commands: UnboundedReceiver<Command>,
        shared: Arc<Shared>,
        scheduler: Scheduler,
        pace: Pace,
        runner: Runner,
        head: PoolingHead,
        metrics: MetricsHandle,
    ) -> Self {
        Self {
            commands,
            shared,
            pristine: Some(scheduler.clone()),
            scheduler,
            pace,
            runner,
            active: HashMap::new(),
            searches: Searches::default(),
            adapters: Adapters::default(),
            sights: Sights::default(),
            head,
            metrics,
            tiers: None,
            events: None,
            speculation: Speculation::new(0),
            draft_model: None,
            stalled: false,
            failed: false,
        }
    }

    /// The same, with slower tiers of the cache.
    #[must_use]
    pub(super) fn with_tiers(self, tiers: Tiers) -> Self {
        Self { scheduler: self.scheduler.with_tier(), tiers: Some(tiers), ..self }
    }

    /// The same, telling what becomes reusable in the cache and what ceases to be.
    #[must_use]
    pub(super) fn with_events(self, events: Option<EventSender>) -> Self {
        Self { events, ..self }
    }

    /// The same, with speculative decoding, perhaps by a draft model.
    #[must_use]
    pub(super) fn with_speculation(
        self,
        speculation: Speculation,
        draft_model: Option<DraftModel>,
    ) -> Self {
        let at_once = draft_model.as_ref().and_then(DraftModel::block_tokens);
        Self { speculation: speculation.with_blocks_of(at_once.unwrap_or(1)), draft_model, ..self }
    }

    /// Captures decode steps, where they are captured, before the first one.
    pub(super) fn capture(&mut self, bounds: DecodeBounds) -> candle_core::Result<()> {
        self.runner.capture(bounds)?;
        self.draft_model.as_mut().map_or(Ok(()), |model| model.capture(bounds))
    }

    /// Runs until every handle and stream is gone, or until there is no way to go on.
    pub(super) fn run(mut self) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.serve())) {
                Ok(End::Left) => return self.finish(),
                Ok(End::Broken(reason)) => return self.fail_all(&reason),
                Err(panic) if self.begin_anew(&panic_message(panic.as_ref())) => {}
                Err(_) => return,
            }
        }
    }

    fn serve(&mut self) -> End {
        loop {
            let idle = self.is_idle();
            if idle {
                // What the last step computed is not to wait for the next request.
                self.advance_tiers();
                self.report_load();
            }
            let wait = match &self.tiers {
                _ if idle => Wait::ForOne,
                Some(tiers) if self.stalled => tiers
                    .deadline()
                    .map_or(Wait::No, |deadline| Wait::Until(&tiers.clock, deadline)),
                _ => Wait::No,
            };
            self.shared.interruption.withdraw();
            let Some(commands) = drain_commands(&mut self.commands, wait) else {
                return End::Left;
            };
            for command in commands {
                self.handle(command);
            }
            self.advance_tiers();
            if !self.is_idle() {
                self.shared.begin_step();
                self.step();
                self.shared.end_step();
            }
            self.tell_events();
            if let Some(reason) = self.broken() {
                return End::Broken(reason);
            }
        }
    }

    /// Why nothing can be computed any more.
    fn broken(&mut self) -> Option<String> {
        if self.runner.is_broken() {
            return Some("the ranks that compute the model have lost each other".to_owned());
        }
        // What failed may be the work alone, for which there was no memory, or the device.
        if !std::mem::take(&mut self.failed) {
            return None;
        }
        let checked = self.runner.check_device().err()?;
        Some(format!("the GPU has failed, the process must be started again: {checked}"))
    }

    fn advance_tiers(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            tiers.advance(&mut self.scheduler, &self.runner);
        }
    }

    fn tell_events(&mut self) {
        if let Some(sender) = &self.events {
            let events = self.scheduler.take_events();
            if !events.is_empty() {
                sender.send(Change::Pool(events));
            }
        }
    }

    /// Stores what is left to be stored.
    fn finish(self) {
        let Self { tiers, mut scheduler, runner, .. } = self;
        if let Some(tiers) = tiers {
            tiers.finish(&mut scheduler, &runner);
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
                if let Some(mut active) = self.active.remove(&SequenceId(id.0)) {
                    self.sights.remove(SequenceId(id.0));
                    if let Some(sequence) = self.scheduler.remove(SequenceId(id.0)) {
                        self.keep_answer(&mut active, &sequence);
                    }
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
        let drafter = self.begin_drafts(&request).map(Box::new);
        let (sequence, sampler) = self.begin(request);
        let task = Task::Generate { sampler: Box::new(sampler), prompt_logprobs, drafter };
        self.add(sequence, Active::new(outputs, task));
    }

    fn submit_embedding(&mut self, request: EmbeddingRequest, outputs: OutputSender) {
        let limits = &self.shared.limits;
        let checked = self.check_new(request.id).and_then(|()| match request.unseen {
            0 => limits.check_embedding(&request),
            unseen => Err(format!("{unseen} tokens are not seen, which needs an encoder")),
        });
        if let Err(reason) = checked {
            return reject(&outputs, reason);
        }
        let wanted = request.wanted;
        let pooler = self.head.pooler(wanted.outputs);
        let sequence = sequences::to_embed(request, &mut self.adapters, pooler.pooling());
        let sequence = self.seen_whole(sequence);
        let task = Task::Embed { pooler, wanted };
        self.add(sequence, Active::new(outputs, task));
    }

    fn add(&mut self, sequence: Sequence, active: Active) {
        self.active.insert(sequence.id, active);
        if sequence.media().is_empty() {
            self.scheduler.add(sequence);
        } else {
            self.sights.hold(sequence);
        }
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
        let (prompt, sampler) = self.begin(request);
        self.searches.add(id, Search::new(beams, stop, answers, (prompt.id, sampler)));
        self.scheduler.add(prompt.as_beam());
    }

    /// The sequence of a request that was checked, and its sampler.
    fn begin(&mut self, request: EngineRequest) -> (Sequence, SamplerState) {
        let (sequence, sampler) =
            sequences::to_generate(request, &mut self.adapters, &mut self.sights);
        (self.seen_whole(sequence), sampler)
    }

    /// The sequence as the model sees its prompt.
    fn seen_whole(&self, sequence: Sequence) -> Sequence {
        if self.shared.limits.prefix_lm { sequence.with_prompt_as_prefix() } else { sequence }
    }

    fn check(&self, request: &EngineRequest) -> Result<(), String> {
        let limits = &self.shared.limits;
        if !limits.generates {
            return Err("the model has no output head, it can't continue texts".to_owned());
        }
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
        limits.check_prefix(prompt.len(), request.prompt_logprobs.is_some())?;
        limits.check_media(&request.pictures, &request.sounds, prompt.len())
    }

    fn check_new(&self, id: RequestId) -> Result<(), String> {
        if self.active.contains_key(&SequenceId(id.0)) {
            return Err(format!("request {} is running already", id.0));
        }
        Ok(())
    }

    fn step(&mut self) {
        self.look();
        let began = Instant::now();
        let drafting = self.offer_drafts();
        let output = self.scheduler.schedule(self.pace.beside());
        let nothing = output.scheduled.is_empty();
        self.stalled = nothing && self.tiers.is_some() && self.sights.num_waiting() == 0;
        if nothing && (self.stalled || self.sights.num_waiting() > 0) {
            return;
        }
        self.note_scheduled(&output);
        let num_rows = self.scheduler.plan(&output).map(|planned| planned.num_tokens()).sum();
        let told = self.tells_hidden(&output);
        let gives_way = self.scheduler.is_yielding(&output);
        match self.run_model(&output, &told, gives_way) {
            Ok(Ok(step)) => {
                self.pool(&output, &told, &step);
                self.finish_step(&output, step.logits);
                self.finish_embeddings(&output);
                self.take_snapshots();
                self.searches.advance(&mut self.scheduler, &self.runner);
                self.observe_step(&output, num_rows, began.elapsed().saturating_sub(drafting));
                self.absorb_hidden();
            }
            Ok(Err(_)) if gives_way && self.shared.interruption.take_followed() => {
                self.scheduler.give_up(&output);
            }
            Ok(Err(error)) => self.fail_step(&output, &error.to_string()),
            Err(panic) => self.fail_step(&output, &panic_message(panic.as_ref())),
        }
    }

    /// Encodes pictures and sounds that sequences wait for, as long as a step should take where others run.
    fn look(&mut self) {
        if self.sights.num_waiting() > 0 {
            let others = self.scheduler.num_running() + self.scheduler.num_waiting() > 0;
            let time = self.pace.target().filter(|_| others).unwrap_or(LONGEST_LOOK);
            let looked = catch_unwind(AssertUnwindSafe(|| {
                self.sights.look(&self.runner, Instant::now() + time)
            }));
            match looked {
                Ok(looked) => {
                    looked.ready.into_iter().for_each(|sequence| self.scheduler.add(sequence));
                    if let Some((id, reason)) = looked.failed {
                        self.fail_sequence(id, &reason);
                    }
                }
                Err(panic) => {
                    let reason = panic_message(panic.as_ref());
                    if let Some(id) = self.sights.drop_first() {
                        self.fail_sequence(id, &reason);
                    }
                }
            }
        }
        self.sights.forget(&self.scheduler);
    }

    /// Ends a sequence that never ran.
    fn fail_sequence(&mut self, id: SequenceId, reason: &str) {
        tracing::error!("a picture or a sound could not be encoded: {reason}");
        self.failed = true;
        if let Some(active) = self.active.remove(&id) {
            active.send(EngineOutput::Failed(EngineError::StepFailed(reason.to_owned())));
        }
    }

    /// Runs the model, and beside it what sampling needs besides logits. A step that `gives_way` may be
    /// given up when someone comes.
    fn run_model(
        &mut self,
        output: &SchedulerOutput,
        told: &Told,
        gives_way: bool,
    ) -> std::thread::Result<candle_core::Result<StepOutput>> {
        let Self { scheduler, runner, active, searches, adapters, sights, draft_model, .. } = self;
        let interruption = gives_way.then_some(&self.shared.interruption);
        let due: HashSet<SequenceId> =
            scheduler.plan(output).filter(|planned| planned.samples).map(|p| p.id).collect();
        let samplers = active.iter_mut().filter(|(id, _)| due.contains(id));
        let mut constrained: Vec<&mut SamplerState> = samplers
            .filter_map(|(_, active)| active.sampler())
            .chain(searches.samplers(&due))
            .filter(|sampler| sampler.is_constrained())
            .collect();
        let adapter = |id| adapters.weights(id);
        let mut run = || {
            catch_unwind(AssertUnwindSafe(|| {
                let seen = sights.features(runner, scheduler, output)?;
                let features = |span: &MediaSpan| match seen.get(&span.digest) {
                    Some(features) => Ok(features.clone()),
                    None => Err(candle_core::Error::Msg(
                        "a picture or a sound was not encoded".to_owned(),
                    )),
                };
                if !output.copied.is_empty() {
                    runner.copy(&output.copied)?;
                    draft_model.as_ref().map_or(Ok(()), |model| model.copy(&output.copied))?;
                }
                runner.restore(&output.restored)?;
                let plan = scheduler.plan(output).map(|planned| told.with_hidden(planned));
                runner.run(plan, adapter, features, interruption)
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
            self.failed = true;
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

    /// Pools the step's hidden states with those that the texts to embed have already, and keeps those of
    /// sequences that are `told` to a head which drafts.
    fn pool(&mut self, output: &SchedulerOutput, told: &Told, step: &StepOutput) {
        let (mut rows, mut tapped) = (step.hidden.rows(), step.tapped.rows());
        for planned in self.scheduler.plan(output) {
            let planned = told.with_hidden(planned);
            let own = rows.by_ref().take(planned.num_pooled());
            if let Some(Active { task: Task::Embed { pooler, .. }, .. }) =
                self.active.get_mut(&planned.id)
            {
                own.for_each(|row| pooler.add(row));
            } else if let (Some(model), Some(sequence)) =
                (&mut self.draft_model, self.scheduler.sequence(planned.id))
                && told.ids.contains(&planned.id)
            {
                if told.taps {
                    let own = tapped.by_ref().take(planned.num_tokens());
                    model.keep(sequence, planned.first_position, own);
                } else {
                    model.keep(sequence, planned.first_position, own);
                }
            }
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
        self.searches.fail_all(message, &mut self.scheduler);
        for id in self.active.keys().copied().collect::<Vec<_>>() {
            self.fail(id, message);
        }
    }

    fn fail(&mut self, id: SequenceId, message: &str) {
        self.failed = true;
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
        let waiting = self.scheduler.num_waiting() + self.sights.num_waiting();
        self.metrics.set_load(self.scheduler.num_running(), waiting);
        self.metrics.set_kv_blocks(kv_cache.num_used(), kv_cache.num_blocks());
        self.adapters.report(&self.scheduler, &self.metrics);
    }
}
