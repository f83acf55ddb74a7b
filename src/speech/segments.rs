//! From the tokens of a window to segments of its text, and to where the next window begins.

use super::marks::{Marks, SECONDS_OF_MARK};

/// Seconds between feature vectors.
pub(super) const SECONDS_OF_FRAME: f64 = 0.01;
/// Feature vectors of a timestamp's step.
const FRAMES_OF_MARK: usize = 2;

/// A part of a window's tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// Seconds after the window's start.
    pub(super) start: f64,
    /// The same.
    pub(super) end: f64,
    /// Which tokens.
    pub(super) tokens: std::ops::Range<usize>,
}

/// How a window is divided.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Division {
    /// In order.
    pub(super) parts: Vec<Part>,
    /// Feature vectors after the window's start at which the next one starts.
    pub(super) next: usize,
}

/// Divides a window of `frames` feature vectors where two times follow each other. What comes after the
/// last such pair was cut by the window's end, and is heard again in the next; a single time at the end
/// says that nothing was cut.
pub(super) fn divide(marks: &Marks, tokens: &[u32], frames: usize) -> Division {
    let is_time = |at: usize| tokens.get(at).is_some_and(|token| marks.is_time(*token));
    let seconds = |at: usize| f64::from(tokens[at] - marks.first_time) * SECONDS_OF_MARK;
    let count = tokens.len();
    let single_end = count >= 2 && is_time(count - 1) && !is_time(count - 2);
    let mut cuts: Vec<usize> = (1..count).filter(|at| is_time(at - 1) && is_time(*at)).collect();
    if cuts.is_empty() {
        return Division { parts: vec![whole(marks, tokens, frames)], next: frames };
    }
    if single_end {
        cuts.push(count);
    }
    let mut parts = Vec::with_capacity(cuts.len());
    let mut from = 0;
    for cut in &cuts {
        let (start, end) = (seconds_or_zero(marks, tokens, from), seconds(*cut - 1));
        parts.push(Part { start, end, tokens: from..*cut });
        from = *cut;
    }
    if single_end {
        return Division { parts, next: frames };
    }
    let last = (tokens[from - 1] - marks.first_time) as usize * FRAMES_OF_MARK;
    // The rules let no segment end where the window begins; a window that moved nowhere never ends.
    Division { parts, next: if last == 0 { frames } else { last } }
}

/// The whole window as one part, up to the time that it names.
fn whole(marks: &Marks, tokens: &[u32], frames: usize) -> Part {
    let named = tokens.iter().rev().find(|token| marks.is_time(**token));
    #[expect(clippy::cast_precision_loss, reason = "a window is short")]
    let end = match named.filter(|token| **token != marks.first_time) {
        Some(token) => f64::from(*token - marks.first_time) * SECONDS_OF_MARK,
        None => (frames / FRAMES_OF_MARK) as f64 * SECONDS_OF_MARK,
    };
    Part { start: 0.0, end, tokens: 0..tokens.len() }
}

/// The time of a token; a part begins with one, by the rules.
fn seconds_or_zero(marks: &Marks, tokens: &[u32], at: usize) -> f64 {
    f64::from(tokens[at].saturating_sub(marks.first_time)) * SECONDS_OF_MARK
}
