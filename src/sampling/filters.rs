//! Which tokens may be drawn: temperature, then top-k, typical-p (Meister et al. 2022), top-p
//! (Holtzman et al. 2020), min-p (Nguyen et al. 2024) and xtc, without sorting the whole vocabulary
//! but for typical-p and xtc; and, before all of them, top-n-sigma (Tang et al. 2024).

use std::cmp::Ordering;

use super::logprobs::most_likely;
use super::params::SamplingParams;
use crate::kernels::sample::logits::{BLOCK, Scan, weigh};

/// Candidates that are sorted at first; each further portion is four times as large.
const FIRST_PORTION: usize = 512;

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) token_id: u32,
    /// Proportional to its probability; 1 for the most likely token.
    pub(super) weight: f32,
}

/// The tokens that pass all filters, in the order in which a draw walks over them.
pub(super) enum Candidates<'a> {
    /// Every token, by id; the excluded ones weigh nothing.
    All {
        /// `[vocab_size]`
        weights: &'a [f32],
        /// Of each block of weights.
        sums: Vec<f64>,
    },
    /// These, best first.
    Few(Vec<Candidate>),
}

impl<'a> Candidates<'a> {
    /// Filters `logits` (`[vocab_size]`, scanned in `scan`, overwritten).
    pub(super) fn new(params: &SamplingParams, logits: &'a mut [f32], scan: &Scan) -> Self {
        let (max, temperature) = (scan.max, params.temperature);
        let top_k = params.top_k as usize;
        let top_p = f64::from(params.top_p);
        let mut kept = if top_k > 0 && top_k < logits.len() {
            let ids = most_likely(logits, &scan.maxima, top_k);
            let mut weights: Vec<f32> = ids.iter().map(|id| logits[*id as usize]).collect();
            weigh(&mut weights, max, temperature, 0.0);
            let pairs = ids.into_iter().zip(weights);
            let kept = pairs.map(|(token_id, weight)| Candidate { token_id, weight });
            let mut kept: Vec<_> = kept.filter(|candidate| candidate.weight > 0.0).collect();
            keep_typical(&mut kept, params.typical_p);
            if top_p < 1.0 {
                let total = total(&kept);
                keep_nucleus(&mut kept, top_p, total);
            }
            kept
        } else if params.typical_p < 1.0 || excludes_top(params) {
            weigh(logits, max, temperature, 0.0);
            let all = (0..).zip(&*logits).filter(|(_, weight)| **weight > 0.0);
            let all = all.map(|(token_id, weight)| Candidate { token_id, weight: *weight });
            let mut kept: Vec<_> = all.collect();
            keep_typical(&mut kept, params.typical_p);
            if top_p < 1.0 {
                let total = total(&kept);
                keep_nucleus(&mut kept, top_p, total);
            }
            kept
        } else if top_p < 1.0 {
            let mut tops = scan.maxima.clone();
            weigh(&mut tops, max, temperature, 0.0);
            let total = weigh(logits, max, temperature, 0.0).iter().sum();
            let mut kept = not_negligible(logits, &tops, top_p, total);
            keep_nucleus(&mut kept, top_p, total);
            kept
        } else {
            let sums = weigh(logits, max, temperature, params.min_p);
            return Self::All { weights: logits, sums };
        };
        // The most likely token that is left: typical-p may have excluded the very first.
        let heaviest = kept.iter().map(|candidate| candidate.weight).fold(0.0, f32::max);
        kept.retain(|candidate| candidate.weight >= params.min_p * heaviest);
        Self::Few(kept)
    }

    /// Excludes the top choices: all tokens that are likely enough, but for the least likely of
    /// them. `position`, from 0 to 1, says whether chance wants it.
    pub(super) fn exclude_top(&mut self, params: &SamplingParams, position: f64) {
        if let Self::Few(kept) = self
            && position <= f64::from(params.xtc_probability)
        {
            kept.sort_unstable_by(|a, b| heavier_first(*a, *b));
            let enough = f64::from(params.xtc_threshold) * total(kept);
            let likely = kept.iter().filter(|one| f64::from(one.weight) >= enough).count();
            kept.drain(..likely.saturating_sub(1));
        }
    }

    /// The token at `position`, from 0 to 1, of all weights laid end to end.
    pub(super) fn at(&self, position: f64) -> Option<u32> {
        match self {
            Self::All { weights, sums } => {
                let mut left = position * sums.iter().sum::<f64>();
                for ((first_id, block), sum) in first_ids().zip(weights.chunks(BLOCK)).zip(sums) {
                    if left >= *sum {
                        left -= sum;
                        continue;
                    }
                    for (token_id, weight) in (first_id..).zip(block) {
                        left -= f64::from(*weight);
                        if left < 0.0 {
                            return Some(token_id);
                        }
                    }
                }
                // Rounding may leave a crumb behind the last token.
                let last = (0..).zip(*weights).filter(|(_, weight)| **weight > 0.0).last();
                last.map(|(token_id, _)| token_id)
            }
            Self::Few(kept) => {
                let total: f64 = kept.iter().map(|candidate| f64::from(candidate.weight)).sum();
                let mut left = position * total;
                let drawn = kept.iter().find(|candidate| {
                    left -= f64::from(candidate.weight);
                    left < 0.0
                });
                drawn.or(kept.last()).map(|candidate| candidate.token_id)
            }
        }
    }
}

/// Whether top choices may be excluded.
pub(super) fn excludes_top(params: &SamplingParams) -> bool {
    params.xtc_probability > 0.0 && params.xtc_threshold <= 0.5
}

/// Excludes all tokens but these, which ascend.
pub(super) fn keep_only(logits: &mut [f32], allowed: &[u32]) {
    let (mut next, size) = (0, logits.len());
    for token in allowed.iter().map(|token| *token as usize).take_while(|token| *token < size) {
        logits[next..token.max(next)].fill(f32::NEG_INFINITY);
        next = token + 1;
    }
    logits[next..].fill(f32::NEG_INFINITY);
}

/// Excludes the logits that are further below the largest than `sigmas` standard deviations of all
/// that are finite.
pub(super) fn keep_top_n_sigma(logits: &mut [f32], sigmas: f32) {
    let finite = || logits.iter().copied().filter(|logit| logit.is_finite()).map(f64::from);
    #[expect(clippy::cast_precision_loss, reason = "vocabularies are below 2^52")]
    let count = finite().count() as f64;
    let mean = finite().sum::<f64>() / count;
    let deviation = (finite().map(|logit| (logit - mean).powi(2)).sum::<f64>() / count).sqrt();
    let least = finite().fold(f64::NEG_INFINITY, f64::max) - f64::from(sigmas) * deviation;
    for logit in logits {
        if f64::from(*logit) < least {
            *logit = f32::NEG_INFINITY;
        }
    }
}

fn total(kept: &[Candidate]) -> f64 {
    kept.iter().map(|candidate| f64::from(candidate.weight)).sum()
}

/// Keeps the tokens whose surprise is nearest to the expected one, until their share is above
/// `typical_p`; the most likely first.
fn keep_typical(kept: &mut Vec<Candidate>, typical_p: f32) {
    if typical_p >= 1.0 {
        return;
    }
    let total = total(kept);
    let surprise = |candidate: &Candidate| -(f64::from(candidate.weight) / total).ln();
    let expected: f64 = kept.iter().map(|one| f64::from(one.weight) / total * surprise(one)).sum();
    let distance = |candidate: &Candidate| (surprise(candidate) - expected).abs();
    kept.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(heavier_first(*a, *b)));
    let mut share = 0.0;
    let last = kept.iter().position(|candidate| {
        share += f64::from(candidate.weight) / total;
        share > f64::from(typical_p)
    });
    kept.truncate(last.map_or(kept.len(), |last| last + 1));
    kept.sort_unstable_by(|a, b| heavier_first(*a, *b));
}

/// The tokens that can be in the nucleus: all others together weigh less than what the nucleus
/// may leave out. `tops` are the largest weights of each block.
fn not_negligible(weights: &[f32], tops: &[f32], top_p: f64, total: f64) -> Vec<Candidate> {
    #[expect(clippy::cast_precision_loss, reason = "vocabularies are below 2^52")]
    let negligible = (1.0 - top_p) * total / weights.len() as f64;
    let stays = |weight: f32| weight > 0.0 && f64::from(weight) >= negligible;
    let mut kept = Vec::new();
    for ((first_id, block), top) in first_ids().zip(weights.chunks(BLOCK)).zip(tops) {
        if stays(*top) {
            for (token_id, weight) in (first_id..).zip(block) {
                if stays(*weight) {
                    kept.push(Candidate { token_id, weight: *weight });
                }
            }
        }
    }
    kept
}

/// Keeps the smallest set of most likely tokens whose share of `total` is at least `top_p`, best
/// first. Sorts portion by portion, as far as the set reaches.
fn keep_nucleus(kept: &mut Vec<Candidate>, top_p: f64, total: f64) {
    let (mut sorted, mut portion, mut mass) = (0, FIRST_PORTION, 0.0);
    while sorted < kept.len() {
        let rest = &mut kept[sorted..];
        let portion_len = portion.min(rest.len());
        if portion_len < rest.len() {
            rest.select_nth_unstable_by(portion_len - 1, |a, b| heavier_first(*a, *b));
        }
        let rest = &mut rest[..portion_len];
        rest.sort_unstable_by(|a, b| heavier_first(*a, *b));
        let last = rest.iter().position(|candidate| {
            mass += f64::from(candidate.weight);
            mass >= top_p * total
        });
        if let Some(last) = last {
            kept.truncate(sorted + last + 1);
            return;
        }
        sorted += portion_len;
        portion *= 4;
    }
}

fn heavier_first(a: Candidate, b: Candidate) -> Ordering {
    b.weight.total_cmp(&a.weight).then(a.token_id.cmp(&b.token_id))
}

/// Ids of the first tokens of the blocks.
fn first_ids() -> impl Iterator<Item = u32> {
    (0..).step_by(BLOCK)
}
