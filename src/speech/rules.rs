//! Which tokens may follow: the rules by which Whisper's timestamps come in pairs and never go back.
//!
//! As in the reference decoder (section 4.5 of "Robust Speech Recognition via Large-Scale Weak
//! Supervision" and its code) and `WhisperTimeStampLogitsProcessor` of transformers.

use super::marks::Marks;

/// Makes the logits of tokens that may not follow `written`, the tokens of this window so far, minus
/// infinity.
pub(super) fn apply(marks: &Marks, written: &[u32], logits: &mut [f32]) {
    for token in &marks.suppressed {
        logits[*token as usize] = f32::NEG_INFINITY;
    }
    if written.is_empty() {
        for token in &marks.suppressed_first {
            logits[*token as usize] = f32::NEG_INFINITY;
        }
    }
    logits[marks.no_timestamps as usize] = f32::NEG_INFINITY;
    keep_pairs(marks, written, logits);
    let first = marks.first_time as usize;
    if written.is_empty() {
        // A window begins with a time, and not a late one.
        logits[..first].fill(f32::NEG_INFINITY);
        if let Some(latest) = marks.latest_first {
            let after = (first + latest as usize + 1).min(logits.len());
            logits[after..].fill(f32::NEG_INFINITY);
        }
    }
    prefer_times(first, logits);
}

/// Times come in pairs, except before the end, and don't go back.
fn keep_pairs(marks: &Marks, written: &[u32], logits: &mut [f32]) {
    let first = marks.first_time as usize;
    let is_time = |back: usize| {
        let at = written.len().checked_sub(back + 1);
        at.map(|at| marks.is_time(written[at]))
    };
    let last_was_time = is_time(0) == Some(true);
    let one_before_was_time = is_time(1) != Some(false);
    if last_was_time {
        if one_before_was_time {
            logits[first..].fill(f32::NEG_INFINITY);
        } else {
            logits[..marks.end as usize].fill(f32::NEG_INFINITY);
        }
    }
    if let Some(last) = written.iter().rev().find(|token| marks.is_time(**token)) {
        // The time that ends a segment may begin the next; a segment is not without length.
        let opens = last_was_time && !one_before_was_time;
        let least = *last as usize + usize::from(!opens);
        let least = least.min(logits.len());
        logits[first..least].fill(f32::NEG_INFINITY);
    }
}

/// If all times together are likelier than the likeliest other token, only times remain.
fn prefer_times(first: usize, logits: &mut [f32]) {
    let (others, times) = logits.split_at(first);
    let likeliest = others.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if log_sum_exp(times) > f64::from(likeliest) {
        logits[..first].fill(f32::NEG_INFINITY);
    }
}

/// The logarithm of the sum of all exponentials.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    let most = f64::from(most);
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - most).exp()).sum();
    most + sum.ln()
}
