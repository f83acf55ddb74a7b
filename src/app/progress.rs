//! How much of the weights is loaded, for people who wait: a bar on a terminal, log lines elsewhere.
//! A load that is over within half a second shows neither.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use crate::weights::progress::ProgressSink;

/// How long a load may take before its progress is shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two log lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Shows how much of `model` is loaded, from now on; dropping the sink clears the bar.
pub(super) fn show(model: &str) -> ProgressSink {
    let began = Instant::now();
    if std::io::stderr().is_terminal() {
        let bar = hidden_bar(model);
        return Arc::new(move |loaded, total| {
            if bar.is_hidden() && began.elapsed() > PATIENCE {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.set_length(total);
            bar.set_position(loaded);
        });
    }
    let pace = Mutex::new(Pace { next: began + PATIENCE });
    let model = model.to_owned();
    Arc::new(move |loaded, total| {
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded < total && pace.due(Instant::now()) {
            let percent = loaded * 100 / total.max(1);
            tracing::info!(model, "loading weights: {percent} % of {} MB", total / 1_000_000);
        }
    })
}

fn hidden_bar(model: &str) -> ProgressBar {
    let template =
        "{msg:40!} {bar:30} {bytes:>12} / {total_bytes:<12} {bytes_per_sec:>14} {eta:>5}";
    let style =
        ProgressStyle::with_template(template).expect("a constant template").progress_chars("=> ");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style);
    bar.set_message(model.to_owned());
    bar.with_finish(ProgressFinish::AndClear)
}

/// Limits how often log lines are written.
struct Pace {
    /// When the next line may be written.
    next: Instant,
}

impl Pace {
    fn due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + BETWEEN_LINES;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_after_some_patience_and_then_at_their_pace() {
        let began = Instant::now();
        let mut pace = Pace { next: began + PATIENCE };
        assert!(!pace.due(began));
        assert!(pace.due(began + PATIENCE));
        assert!(!pace.due(began + PATIENCE + Duration::from_secs(9)));
        assert!(pace.due(began + PATIENCE + BETWEEN_LINES));
    }
}
