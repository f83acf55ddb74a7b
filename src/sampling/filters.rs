//! Which tokens may be drawn: temperature, then top-k, top-p (Holtzman et al. 2020) and min-p
//! (Nguyen et al. 2024), without sorting the whole vocabulary.

use super::logprobs::most_likely;
use super::params::SamplingParams;

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) token_id: u32,
    /// Proportional to its probability; 1 for the most likely token.
    pub(super) weight: f32,
}

/// The tokens that pass all filters, in a fixed order. `max` is the highest logit.
pub(super) fn candidates(params: &SamplingParams, logits: &[f32], max: f32) -> Vec<Candidate> {
    let weigh = |token_id: u32| Candidate {
        token_id,
        weight: ((logits[token_id as usize] - max) / params.temperature).exp(),
    };
    let top_k = params.top_k as usize;
    let mut kept: Vec<Candidate> = if top_k > 0 && top_k < logits.len() {
        most_likely(logits, top_k).into_iter().map(weigh).collect()
    } else {
        (0..).take(logits.len()).map(weigh).filter(|candidate| candidate.weight > 0.0).collect()
    };
    if params.top_p < 1.0 {
        keep_nucleus(&mut kept, f64::from(params.top_p));
    }
    if params.min_p > 0.0 {
        kept.retain(|candidate| candidate.weight >= params.min_p);
    }
    kept
}

/// Keeps the smallest set of most likely tokens whose share is at least `top_p`.
fn keep_nucleus(kept: &mut Vec<Candidate>, top_p: f64) {
    let total: f64 = kept.iter().map(|candidate| f64::from(candidate.weight)).sum();
    #[expect(clippy::cast_precision_loss, reason = "vocabularies are below 2^52")]
    let negligible = (1.0 - top_p) * total / kept.len() as f64;
    // All tokens below this weight together hold less than what the nucleus may leave out.
    kept.retain(|candidate| f64::from(candidate.weight) >= negligible);
    kept.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then(a.token_id.cmp(&b.token_id)));
    let mut mass = 0.0;
    let nucleus = kept.iter().position(|candidate| {
        mass += f64::from(candidate.weight);
        mass >= top_p * total
    });
    if let Some(last) = nucleus {
        kept.truncate(last + 1);
    }
}
