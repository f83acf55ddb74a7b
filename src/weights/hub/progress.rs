//! Progress bars for downloads, on standard error and only when it is a terminal.

use super::watch::Watch;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Bars of files that arrive at the same time.
#[derive(Debug)]
pub(crate) struct Bars {
    all: MultiProgress,
    watch: Watch,
}

impl Bars {
    /// `shown` false draws nothing; `watch` sees each file in any case.
    pub(crate) fn new(shown: bool, watch: Watch) -> Self {
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { all: MultiProgress::with_draw_target(target), watch }
    }

    /// A bar for `file` of `size` bytes.
    pub(crate) fn add(&self, file: &str, size: u64) -> ProgressBar {
        let template =
            "{msg:40!} {bar:30} {bytes:>12} / {total_bytes:<12} {bytes_per_sec:>14} {eta:>5}";
        let style = ProgressStyle::with_template(template)
            .expect("a constant template")
            .progress_chars("=> ");
        let bar = self.all.add(ProgressBar::new(size).with_style(style));
        bar.set_message(file.to_owned());
        self.watch.add(file, bar.clone());
        bar
    }
}
