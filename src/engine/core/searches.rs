//! Beam searches: each runs several sequences of one prompt, which gain their tokens together, and
//! sends its answers when it has ended.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::engine::output::{EngineError, EngineOutput, Foreseen, OutputSender, SequenceStats};
use crate::engine::request::{EngineRequest, RequestId};
use crate::engine::timeline::Timeline;
use crate::runner::Runner;
use crate::sampling::beams::{Beam, BeamSearch, Chosen, Continuation};
use crate::sampling::params::BeamParams;
use crate::sampling::{BeamRow, SamplerState, expand_rows};
use crate::scheduler::Scheduler;
use crate::scheduler::output::SchedulerOutput;
use crate::scheduler::sequence::SequenceId;
use crate::scheduler::stop::{FinishReason, StopConditions};

/// A sequence of a beam search.
struct RunningBeam {
    id: SequenceId,
    sampler: SamplerState,
    /// Present once the step has computed the beam's logits.
    continuations: Option<Vec<Continuation>>,
}

/// One beam search.
pub(super) struct Search {
    /// Where the answers go, the best one's first; `None` for those that nobody waits for.
    answers: Vec<(RequestId, Option<OutputSender>)>,
    state: BeamSearch,
    stop: StopConditions,
    /// Number of tokens that may end an answer.
    num_ends: usize,
    /// In the order of `state`.
    beams: Vec<RunningBeam>,
    timeline: Timeline,
    cached_tokens: usize,
    preemptions: u32,
}

/// The beam searches that run.
#[derive(Default)]
pub(super) struct Searches {
    /// By the id of the first answer.
    searches: HashMap<RequestId, Search>,
    /// The search that each sequence belongs to.
    owners: HashMap<SequenceId, RequestId>,
}

impl Searches {
    /// Whether no search runs.
    pub(super) fn is_empty(&self) -> bool {
        self.searches.is_empty()
    }

    /// Whether a sequence is a beam of a search.
    pub(super) fn contains(&self, id: SequenceId) -> bool {
        self.owners.contains_key(&id)
    }

    fn of(&mut self, id: SequenceId) -> Option<&mut Search> {
        self.searches.get_mut(self.owners.get(&id)?)
    }

    /// Adds the search of a request.
    pub(super) fn add(&mut self, id: RequestId, search: Search) {
        self.owners.extend(search.beams.iter().map(|beam| (beam.id, id)));
        self.searches.insert(id, search);
    }

    /// The samplers of these sequences.
    pub(super) fn samplers<'a>(
        &'a mut self,
        ids: &'a HashSet<SequenceId>,
    ) -> impl Iterator<Item = &'a mut SamplerState> {
        let beams = self.searches.values_mut().flat_map(|search| &mut search.beams);
        beams.filter(|beam| ids.contains(&beam.id)).map(|beam| &mut beam.sampler)
    }

    /// Notes which beams the step admits and which it preempts. Returns the sequences with which a
    /// search starts, each with the tokens that the prefix cache gave it.
    pub(super) fn note_scheduled(&mut self, output: &SchedulerOutput) -> Vec<(SequenceId, usize)> {
        for id in &output.preempted {
            if let Some(search) = self.of(*id) {
                search.preemptions += 1;
            }
        }
        let mut started = Vec::new();
        for (id, cached) in &output.admitted {
            let search = self.of(*id).filter(|search| !search.timeline.is_scheduled());
            if let Some(search) = search {
                search.start(*cached);
                started.push((*id, *cached));
            }
        }
        started
    }

    /// Computes the continuations of beams from their rows of logits.
    pub(super) fn expand(&mut self, rows: Vec<(SequenceId, &mut [f32])>) {
        if rows.is_empty() {
            return;
        }
        let mut rows: HashMap<SequenceId, &mut [f32]> = rows.into_iter().collect();
        let mut beams = Vec::new();
        for search in self.searches.values_mut() {
            let count = search.state.num_continuations(search.num_ends);
            for RunningBeam { id, sampler, continuations } in &mut search.beams {
                if let Some(row) = rows.remove(id) {
                    beams.push(((sampler, row, count) as BeamRow<'_>, (*id, continuations)));
                }
            }
        }
        let (rows, targets): (Vec<_>, Vec<_>) = beams.into_iter().unzip();
        let mut failed = Vec::new();
        for (expanded, (id, target)) in expand_rows(rows.into_iter()).into_iter().zip(targets) {
            match expanded {
                Ok(expanded) => *target = Some(expanded),
                Err(error) => failed.push((id, error)),
            }
        }
        for (id, error) in failed {
            if let Some(search) = self.of(id) {
                search.fail(&error);
            }
        }
    }

    /// Drops an answer that nobody waits for, and with the last one of them its search.
    pub(super) fn abort_answer(&mut self, answer: RequestId, scheduler: &mut Scheduler) {
        for search in self.searches.values_mut() {
            for (_, outputs) in search.answers.iter_mut().filter(|(id, _)| *id == answer) {
                *outputs = None;
            }
        }
        self.drop_ended(scheduler);
    }

    /// Advances every search whose beams all have their continuations.
    pub(super) fn advance(&mut self, scheduler: &mut Scheduler, runner: &Runner) {
        self.drop_ended(scheduler);
        let ready = |search: &Search| search.beams.iter().all(|beam| beam.continuations.is_some());
        let searches = self.searches.iter();
        let due: Vec<RequestId> =
            searches.filter(|(_, search)| ready(search)).map(|(id, _)| *id).collect();
        for id in due {
            let search = self.searches.get_mut(&id).expect("just listed");
            let chosen = search.advance();
            if chosen.is_empty() {
                search.send_answers();
            } else if let Err(error) = self.follow(id, &chosen, scheduler, runner) {
                let search = self.searches.get_mut(&id).expect("just listed");
                search.fail(&error);
            }
        }
        self.drop_ended(scheduler);
    }

    /// Makes the sequences of a search those that were chosen: beams end, fork and gain tokens.
    fn follow(
        &mut self,
        id: RequestId,
        chosen: &[Chosen],
        scheduler: &mut Scheduler,
        runner: &Runner,
    ) -> Result<(), String> {
        let search = self.searches.get_mut(&id).expect("the search goes on");
        let parents = std::mem::take(&mut search.beams);
        for (index, parent) in parents.iter().enumerate() {
            if chosen.iter().all(|chosen| chosen.parent != index) {
                scheduler.remove(parent.id);
                self.owners.remove(&parent.id);
            }
        }
        let mut copies = Vec::new();
        let mut continued = vec![false; parents.len()];
        for chosen in chosen {
            let parent = &parents[chosen.parent];
            let mut beam = parent.id;
            if std::mem::replace(&mut continued[chosen.parent], true) {
                beam = SequenceId(RequestId::next().0);
                copies.push(scheduler.fork(parent.id, beam));
                self.owners.insert(beam, id);
            }
            let sampler = parent.sampler.clone();
            search.beams.push(RunningBeam { id: beam, sampler, continuations: None });
        }
        for (beam, chosen) in search.beams.iter_mut().zip(chosen) {
            scheduler.extend(beam.id, chosen.token_id);
            beam.sampler.take(chosen.token_id).map_err(|error| error.to_string())?;
        }
        runner.copy(&copies).map_err(|error| error.to_string())
    }

    /// Frees what searches hold whose answers nobody waits for any more.
    fn drop_ended(&mut self, scheduler: &mut Scheduler) {
        let Self { searches, owners } = self;
        searches.retain(|_, search| {
            let wanted = search.answers.iter().any(|(_, outputs)| outputs.is_some());
            if !wanted {
                for beam in &search.beams {
                    scheduler.remove(beam.id);
                    owners.remove(&beam.id);
                }
            }
            wanted
        });
    }

    /// Ends the search that a sequence belongs to. Returns whether there is one.
    pub(super) fn fail(
        &mut self,
        id: SequenceId,
        message: &str,
        scheduler: &mut Scheduler,
    ) -> bool {
        let found = self.of(id).map(|search| search.fail(&message)).is_some();
        self.drop_ended(scheduler);
        found
    }

    /// Fails every search, whose sequences are gone.
    pub(super) fn end(mut self, message: &str) {
        self.searches.values_mut().for_each(|search| search.fail(&message));
    }

    /// Fails every search.
    pub(super) fn fail_all(&mut self, message: &str, scheduler: &mut Scheduler) {
        self.searches.values_mut().for_each(|search| search.fail(&message));
        self.drop_ended(scheduler);
    }
}

impl Search {
    /// A search of which nothing has run: one beam, the prompt with its sampler.
    pub(super) fn new(
        beams: BeamParams,
        stop: StopConditions,
        answers: Vec<(RequestId, OutputSender)>,
        (id, sampler): (SequenceId, SamplerState),
    ) -> Self {
        Self {
            answers: answers.into_iter().map(|(id, outputs)| (id, Some(outputs))).collect(),
            state: BeamSearch::new(beams, stop.max_tokens),
            num_ends: stop.suppressed_before_min_tokens().len(),
            stop,
            beams: vec![RunningBeam { id, sampler, continuations: None }],
            timeline: Timeline::submitted(),
            cached_tokens: 0,
            preemptions: 0,
        }
    }

    fn start(&mut self, cached_tokens: usize) {
        self.cached_tokens = cached_tokens;
        let queue = self.timeline.scheduled(Instant::now());
        for outputs in self.answers.iter().filter_map(|(_, outputs)| outputs.as_ref()) {
            let _ = outputs.send(EngineOutput::Started { cached_tokens, queue });
        }
    }

    fn advance(&mut self) -> Vec<Chosen> {
        self.timeline.token(Instant::now());
        let continuations =
            self.beams.iter_mut().map(|beam| beam.continuations.take().unwrap_or_default());
        let ends = |token, length| self.stop.check(token, length).is_some();
        self.state.advance(continuations.collect(), ends)
    }

    /// Sends every answer to those who wait for it, which ends the search.
    fn send_answers(&mut self) {
        let beams = self.state.answers();
        if beams.len() < self.answers.len() {
            let message = format!(
                "the search found {} answers, asked for were {}: nothing else is allowed",
                beams.len(),
                self.answers.len()
            );
            return self.fail_as(&EngineError::Rejected(message));
        }
        let stats = self.timeline.stats(self.cached_tokens, self.preemptions, Instant::now());
        for ((_, outputs), beam) in self.answers.iter_mut().zip(beams) {
            if let Some(outputs) = outputs.take() {
                send_answer(&outputs, beam, &self.stop, stats);
            }
        }
    }

    fn fail(&mut self, error: &impl ToString) {
        self.fail_as(&EngineError::StepFailed(error.to_string()));
    }

    fn fail_as(&mut self, error: &EngineError) {
        for outputs in self.answers.iter_mut().filter_map(|(_, outputs)| outputs.take()) {
            let _ = outputs.send(EngineOutput::Failed(error.clone()));
        }
    }
}

fn send_answer(outputs: &OutputSender, beam: &Beam, stop: &StopConditions, stats: SequenceStats) {
    let mut logprobs = beam.logprobs.iter().cloned();
    for token_id in &beam.token_ids {
        let logprobs = logprobs.next();
        let _ = outputs.send(EngineOutput::Token {
            token_id: *token_id,
            logprobs,
            foreseen: Foreseen::default(),
        });
    }
    let last = beam.token_ids.last().copied().unwrap_or_default();
    let reason = stop.check(last, beam.token_ids.len()).unwrap_or(FinishReason::Length);
    let _ = outputs.send(EngineOutput::Finished { reason, stats });
}

/// Refuses what a search can't do.
pub(super) fn check(
    request: &EngineRequest,
    answers: &[(RequestId, OutputSender)],
) -> Result<(), String> {
    if request.prompt_logprobs.is_some() {
        return Err("a search doesn't tell logprobs of the prompt".to_owned());
    }
    if answers.is_empty() {
        return Err("a search needs at least one answer".to_owned());
    }
    Ok(())
}
