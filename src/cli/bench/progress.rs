//! What a run shows while it goes on: how many requests are done and running, and how fast tokens come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// The speed that is shown is that of so long.
const WINDOW: Duration = Duration::from_secs(5);
/// Time between two changes of what is shown.
const TICK: Duration = Duration::from_millis(200);

/// A bar on standard error; clones share it.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    live: Arc<Mutex<Live>>,
}

struct Live {
    began: Instant,
    running: usize,
    /// When text came, within the window.
    recent: VecDeque<Instant>,
    shown: Option<Instant>,
}

impl Progress {
    /// A bar for so many requests, or for as many as come.
    pub(super) fn new(num_requests: Option<usize>) -> Self {
        let (bar, template) = match num_requests {
            Some(total) => (
                ProgressBar::new(total as u64),
                "{bar:30} {pos}/{len} requests, {msg}, {elapsed} gone, {eta} to go",
            ),
            None => (ProgressBar::no_length(), "{spinner} {pos} requests, {msg}, {elapsed} gone"),
        };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.expect("the templates above are valid"));
        bar.enable_steady_tick(TICK);
        Self::of(bar)
    }

    /// Shows nothing.
    pub(super) fn hidden() -> Self {
        Self::of(ProgressBar::hidden())
    }

    fn of(bar: ProgressBar) -> Self {
        let live = Live { began: Instant::now(), running: 0, recent: VecDeque::new(), shown: None };
        bar.set_message(live.told(Instant::now()));
        Self { bar, live: Arc::new(Mutex::new(live)) }
    }

    pub(super) fn sent(&self) {
        self.change(|live| live.running += 1);
    }

    pub(super) fn received(&self) {
        self.change(|live| live.recent.push_back(Instant::now()));
    }

    pub(super) fn ended(&self) {
        self.change(|live| live.running -= 1);
        self.bar.inc(1);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn change(&self, change: impl FnOnce(&mut Live)) {
        // Counts: nothing can be half changed.
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut live);
        let now = Instant::now();
        live.forget_before(now);
        if live.shown.is_none_or(|shown| now - shown >= TICK) {
            live.shown = Some(now);
            self.bar.set_message(live.told(now));
        }
    }
}

impl Live {
    fn forget_before(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|came| now - *came > WINDOW) {
            self.recent.pop_front();
        }
    }

    fn told(&self, now: Instant) -> String {
        let window = (now - self.began).min(WINDOW).as_secs_f64().max(TICK.as_secs_f64());
        let speed = super::stats::as_f64(self.recent.len()) / window;
        format!("{} running, {speed:.0} chunks/s", self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_speed_is_that_of_the_last_seconds() {
        let progress = Progress::hidden();
        progress.sent();
        for _ in 0..20 {
            tokio::time::advance(Duration::from_millis(100)).await;
            progress.received();
        }
        let told = |progress: &Progress| progress.live.lock().unwrap().told(Instant::now());
        assert_eq!(told(&progress), "1 running, 10 chunks/s");
        tokio::time::advance(Duration::from_mins(1)).await;
        progress.ended();
        assert_eq!(told(&progress), "0 running, 0 chunks/s");
    }
}
