//! Searches: each runs several sequences of one prompt, which gain their tokens together, and
//! tells its answers when it has ended.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::EngineCore;
use crate::engine::output::{EngineError, EngineOutput, OutputSender, SequenceStats};
use crate::engine::request::{BeamRequest, EngineRequest, RequestId};
use crate::sampling::beams::{Beam, BeamSearch, Chosen, Continuation};
use crate::sampling::{BeamRow, SamplerState, expand_rows};
use crate::scheduler::output::SchedulerOutput;
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::scheduler::stop::{FinishReason, StopConditions};

/// A sequence of a search.
struct RunningBeam {
    id: SequenceId,
    sampler: SamplerState,
    /// Present once its logits of this step were given.
    continuations: Option<Vec<Continuation>>,
}

/// One search.
struct Search {
    /// Where the answers go, the best one's first; `None` for those that nobody waits for.
    answers: Vec<(RequestId, Option<OutputSender>)>,
    state: BeamSearch,
    stop: StopConditions,
    /// Tokens that may end an answer.
    num_ends: usize,
    /// In the order of the search.
    beams: Vec<RunningBeam>,
    submitted: Instant,
    first_scheduled: Option<Instant>,
    first_token: Option<Instant>,
    cached_tokens: usize,
    preemptions: u32,
}

/// All searches.
#[derive(Default)]
pub(super) struct Searches {
    /// By the id of the first answer.
    searches: HashMap<RequestId, Search>,
    owners: HashMap<SequenceId, RequestId>,
}

impl Searches {
    pub(super) fn is_empty(&self) -> bool {
        self.searches.is_empty()
    }

    /// Whether a sequence is one of theirs.
    pub(super) fn own(&self, id: SequenceId) -> bool {
        self.owners.contains_key(&id)
    }

    fn of(&mut self, id: SequenceId) -> Option<&mut Search> {
        self.searches.get_mut(self.owners.get(&id)?)
    }

    /// The samplers of these sequences.
    pub(super) fn samplers<'a>(
        &'a mut self,
        ids: &'a HashSet<SequenceId>,
    ) -> impl Iterator<Item = &'a mut SamplerState> {
        let beams = self.searches.values_mut().flat_map(|search| &mut search.beams);
        beams.filter(|beam| ids.contains(&beam.id)).map(|beam| &mut beam.sampler)
    }

    /// Notes what the step admits and what it takes away. Returns the sequences of which the first
    /// was admitted here.
    pub(super) fn note_scheduled(&mut self, output: &SchedulerOutput) -> Vec<(SequenceId, usize)> {
        for id in &output.preempted {
            if let Some(search) = self.of(*id) {
                search.preemptions += 1;
            }
        }
        let mut begun = Vec::new();
        for (id, cached) in &output.admitted {
            if let Some(search) = self.of(*id).filter(|search| search.first_scheduled.is_none()) {
                search.start(*cached);
                begun.push((*id, *cached));
            }
        }
        begun
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
        let (rows, places): (Vec<_>, Vec<_>) = beams.into_iter().unzip();
        let mut failed = Vec::new();
        for (expanded, (id, place)) in expand_rows(rows.into_iter()).into_iter().zip(places) {
            match expanded {
                Ok(expanded) => *place = Some(expanded),
                Err(error) => failed.push((id, error)),
            }
        }
        for (id, error) in failed {
            if let Some(search) = self.of(id) {
                search.fail(&error);
            }
        }
    }
}

impl EngineCore {
    pub(super) fn submit_search(
        &mut self,
        BeamRequest { request, beams }: BeamRequest,
        answers: Vec<(RequestId, OutputSender)>,
    ) {
        let checked = self.check(&request).and_then(|()| check(&request, &answers));
        if let Err(reason) = checked {
            let rejected = EngineOutput::Failed(EngineError::Rejected(reason));
            for (_, outputs) in answers {
                let _ = outputs.send(rejected.clone());
            }
            return;
        }
        let EngineRequest {
            id,
            prompt_token_ids,
            sampling,
            stop,
            priority,
            cache_salt,
            adapter,
            ..
        } = request;
        let (sequence_id, suppressed) = (SequenceId(id.0), stop.suppressed_before_min_tokens());
        let num_ends = suppressed.len();
        let sampler = SamplerState::new(sampling, &prompt_token_ids, stop.min_tokens, suppressed);
        let salt = cache_salt.as_deref();
        let prompt = Sequence::new(sequence_id, prompt_token_ids, stop.clone(), priority, salt)
            .with_adapter(self.adapters.take(adapter));
        self.scheduler.add(prompt.as_beam());
        let search = Search {
            answers: answers.into_iter().map(|(id, outputs)| (id, Some(outputs))).collect(),
            state: BeamSearch::new(beams, stop.max_tokens),
            stop,
            num_ends,
            beams: vec![RunningBeam { id: sequence_id, sampler, continuations: None }],
            submitted: Instant::now(),
            first_scheduled: None,
            first_token: None,
            cached_tokens: 0,
            preemptions: 0,
        };
        self.searches.owners.insert(sequence_id, id);
        self.searches.searches.insert(id, search);
    }

    /// Forgets an answer that nobody waits for, and its search with the last of them.
    pub(super) fn abort_answer(&mut self, answer: RequestId) {
        for search in self.searches.searches.values_mut() {
            for (_, outputs) in search.answers.iter_mut().filter(|(id, _)| *id == answer) {
                *outputs = None;
            }
        }
        self.drop_searches();
    }

    /// Lets every search whose beams all have their continuations take a step.
    pub(super) fn advance_searches(&mut self) {
        self.drop_searches();
        let ready = |search: &Search| search.beams.iter().all(|beam| beam.continuations.is_some());
        let searches = self.searches.searches.iter();
        let due: Vec<RequestId> =
            searches.filter(|(_, search)| ready(search)).map(|(id, _)| *id).collect();
        for id in due {
            let search = self.searches.searches.get_mut(&id).expect("just listed");
            let chosen = search.advance();
            if chosen.is_empty() {
                search.tell_answers();
            } else if let Err(error) = self.follow(id, &chosen) {
                let search = self.searches.searches.get_mut(&id).expect("just listed");
                search.fail(&error);
            }
        }
        self.drop_searches();
    }

    /// Makes the sequences of a search what was chosen.
    fn follow(&mut self, id: RequestId, chosen: &[Chosen]) -> Result<(), String> {
        let search = self.searches.searches.get_mut(&id).expect("the search goes on");
        let parents = std::mem::take(&mut search.beams);
        for (index, parent) in parents.iter().enumerate() {
            if chosen.iter().all(|chosen| chosen.parent != index) {
                self.scheduler.remove(parent.id);
                self.searches.owners.remove(&parent.id);
            }
        }
        let mut copies = Vec::new();
        let mut continued = vec![false; parents.len()];
        for chosen in chosen {
            let parent = &parents[chosen.parent];
            let mut beam = parent.id;
            if std::mem::replace(&mut continued[chosen.parent], true) {
                beam = SequenceId(RequestId::next().0);
                copies.push(self.scheduler.fork(parent.id, beam));
                self.searches.owners.insert(beam, id);
            }
            let sampler = parent.sampler.clone();
            search.beams.push(RunningBeam { id: beam, sampler, continuations: None });
        }
        for (beam, chosen) in search.beams.iter_mut().zip(chosen) {
            self.scheduler.extend(beam.id, chosen.token_id);
            beam.sampler.take(chosen.token_id).map_err(|error| error.to_string())?;
        }
        self.runner.copy(&copies).map_err(|error| error.to_string())
    }

    /// Frees what searches hold that nobody waits for any more.
    fn drop_searches(&mut self) {
        let Self { searches, scheduler, .. } = self;
        searches.searches.retain(|_, search| {
            let wanted = search.answers.iter().any(|(_, outputs)| outputs.is_some());
            if !wanted {
                for beam in &search.beams {
                    scheduler.remove(beam.id);
                    searches.owners.remove(&beam.id);
                }
            }
            wanted
        });
    }

    /// Ends the search that a sequence belongs to. Returns whether there is one.
    pub(super) fn fail_search(&mut self, id: SequenceId, message: &str) -> bool {
        let search = self.searches.of(id);
        let found = search.map(|search| search.fail(&message)).is_some();
        self.drop_searches();
        found
    }
}

impl Search {
    fn start(&mut self, cached_tokens: usize) {
        let now = Instant::now();
        self.first_scheduled = Some(now);
        self.cached_tokens = cached_tokens;
        let queue = now - self.submitted;
        for outputs in self.answers.iter().filter_map(|(_, outputs)| outputs.as_ref()) {
            let _ = outputs.send(EngineOutput::Started { cached_tokens, queue });
        }
    }

    fn advance(&mut self) -> Vec<Chosen> {
        self.first_token.get_or_insert_with(Instant::now);
        let continuations =
            self.beams.iter_mut().map(|beam| beam.continuations.take().unwrap_or_default());
        let ends = |token, length| self.stop.check(token, length).is_some();
        self.state.advance(continuations.collect(), ends)
    }

    /// Sends every answer to whom it may concern; nobody waits then.
    fn tell_answers(&mut self) {
        let beams = self.state.answers();
        if beams.len() < self.answers.len() {
            let message = format!(
                "the search found {} answers, asked for were {}: nothing else is allowed",
                beams.len(),
                self.answers.len()
            );
            return self.fail_as(&EngineError::Rejected(message));
        }
        let stats = self.stats();
        for ((_, outputs), beam) in self.answers.iter_mut().zip(beams) {
            if let Some(outputs) = outputs.take() {
                tell(&outputs, beam, &self.stop, stats);
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

    fn stats(&self) -> SequenceStats {
        let now = Instant::now();
        let scheduled = self.first_scheduled.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        SequenceStats {
            cached_tokens: self.cached_tokens,
            preemptions: self.preemptions,
            queue: scheduled - self.submitted,
            prefill: first_token - scheduled,
            decode: now - first_token,
        }
    }
}

fn tell(outputs: &OutputSender, beam: &Beam, stop: &StopConditions, stats: SequenceStats) {
    let mut logprobs = beam.logprobs.iter().cloned();
    for token_id in &beam.token_ids {
        let logprobs = logprobs.next();
        let _ = outputs.send(EngineOutput::Token { token_id: *token_id, logprobs });
    }
    let last = beam.token_ids.last().copied().unwrap_or_default();
    let reason = stop.check(last, beam.token_ids.len()).unwrap_or(FinishReason::Length);
    let _ = outputs.send(EngineOutput::Finished { reason, stats });
}

fn check(request: &EngineRequest, answers: &[(RequestId, OutputSender)]) -> Result<(), String> {
    if request.prompt_logprobs.is_some() {
        return Err("a search doesn't tell logprobs of the prompt".to_owned());
    }
    if answers.is_empty() {
        return Err("a search needs at least one answer".to_owned());
    }
    Ok(())
}
