//! From a step's logits to tokens: sampled, taken by the scheduler, sent.

use std::collections::HashMap;
use std::time::Instant;

use super::EngineCore;
use super::active::{ACTIVE, Active, samplers};
use super::rows::{NextToken, Rows, ScoredRows};
use crate::engine::output::EngineOutput;
use crate::runner::{DeviceLogits, HostLogits, Logits};
use crate::sampling::logprobs::TokenLogprobs;
use crate::sampling::on_device::sample_rows_on_device;
use crate::sampling::{
    SampledToken, SampledTokens, SamplingError, ScoredRow, sample_rows, score_rows,
};
use crate::scheduler::output::{Finished, SchedulerOutput};
use crate::scheduler::sequence::{Sequence, SequenceId};

/// A sequence's next tokens.
type Sampled = (SequenceId, SampledTokens);

/// A sequence's drafts, and the logits behind its last token and behind each of them.
type HostRows<'a> = (SequenceId, &'a [u32], Vec<&'a mut [f32]>);

/// The logprobs of some tokens of a sequence's prompt, or why there are none.
type Scored = (SequenceId, Result<Vec<TokenLogprobs>, SamplingError>);

impl EngineCore {
    /// Samples and scores what the step computed, updates its sequences and sends their tokens.
    pub(super) fn finish_step(&mut self, output: &SchedulerOutput, logits: Logits) {
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
        let (mut tokens, mut failed) = (Vec::with_capacity(sampled.len()), Vec::new());
        for (id, SampledTokens { tokens: own, error }) in sampled {
            match error {
                Some(error) if own.is_empty() => self.fail(id, &error.to_string()),
                error => {
                    failed.extend(error.map(|error| (id, error)));
                    tokens.push((id, own));
                }
            }
        }
        let token_ids: Vec<_> = tokens.iter().map(|(id, own)| (*id, token_ids(own))).collect();
        let drafted = self.count_drafts(&rows, &token_ids);
        let finished = self.scheduler.update(output, &token_ids);
        self.read_prompts(output);
        self.emit(tokens, &drafted, finished);
        // What was sampled before is sent.
        for (id, error) in failed {
            self.fail(id, &error.to_string());
        }
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
        let mut own = |row| host.remove(&row).expect("one row for each that samples");
        self.searches.expand(rows.searched.iter().map(|(id, row)| (*id, own(*row))).collect());
        let sampled = rows.sampled.iter().map(|sampled| {
            (sampled.id, &sampled.drafts[..], sampled.rows.clone().map(&mut own).collect())
        });
        let sampled = sampled.collect();
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
        rows.iter().map(|(id, _)| *id).zip(sampled.into_iter().map(SampledTokens::from)).collect()
    }

    /// Samples from rows of logits on the host, each sequence along its drafts.
    fn sample_on_host(&mut self, rows: Vec<HostRows<'_>>) -> Vec<Sampled> {
        if rows.is_empty() {
            return Vec::new();
        }
        let ids: Vec<SequenceId> = rows.iter().map(|(id, ..)| *id).collect();
        let mut samplers = samplers(&mut self.active);
        let with_sampler = rows
            .into_iter()
            .map(|(id, drafts, rows)| (samplers.remove(&id).expect(ACTIVE), drafts, rows));
        let sampled = sample_rows(with_sampler);
        ids.into_iter().zip(sampled).collect()
    }

    fn emit(
        &mut self,
        sampled: Vec<(SequenceId, Vec<SampledToken>)>,
        drafted: &HashMap<SequenceId, [usize; 2]>,
        finished: Vec<(Finished, Sequence)>,
    ) {
        let now = Instant::now();
        for (id, tokens) in sampled {
            let end = finished.iter().find(|(end, _)| end.id == id);
            self.read_answer(id, &tokens, end);
            let Some(active) = self.active.get_mut(&id) else { continue };
            active.timeline.token(now);
            let dropped = end.map_or(0, |(end, _)| end.dropped);
            active.send_tokens(tokens, dropped, drafted.get(&id).copied().unwrap_or_default());
        }
        for (end, sequence) in finished {
            let mut active = self.active.remove(&end.id).expect("finished sequences are active");
            self.keep_answer(&mut active, &sequence);
            active.send_finished(&sequence, end.reason, now);
        }
    }
}

/// The ids of tokens in order, with those that follow each without a choice.
fn token_ids(tokens: &[SampledToken]) -> Vec<u32> {
    tokens.iter().flat_map(|token| [&[token.token_id], &token.forced[..]].concat()).collect()
}
