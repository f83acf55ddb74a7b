//! What came of all cases: a line each as they end, and the sum; or JSON at the end.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::case::Outcome;
use super::probe::Probe;

/// Width of the column of names.
const NAMES: usize = 62;

pub(super) struct Report {
    url: String,
    model: String,
    as_json: bool,
    cases: Vec<Value>,
    /// Passed, failed, absent.
    counts: [usize; 3],
}

impl Report {
    pub(super) fn new(probe: &Probe, as_json: bool) -> Self {
        let (url, model) = (probe.url().to_owned(), probe.model.clone());
        Self { url, model, as_json, cases: Vec::new(), counts: [0; 3] }
    }

    pub(super) fn add(
        &mut self,
        group: &str,
        name: &str,
        outcome: Outcome,
        took: Duration,
    ) -> std::io::Result<()> {
        let (at, word, why) = match outcome {
            Outcome::Passed => (0, "pass", String::new()),
            Outcome::Failed(why) => (1, "FAIL", why),
            Outcome::Absent(why) => (2, "absent", why),
        };
        self.counts[at] += 1;
        if self.as_json {
            let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            self.cases.push(json!({
                "group": group, "case": name, "result": word.to_lowercase(), "why": why, "ms": ms,
            }));
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        let word = match at {
            1 if out.is_terminal() => format!("\x1b[31m{word:<6}\x1b[0m"),
            _ => format!("{word:<6}"),
        };
        writeln!(out, "{}", format!("{word}  {group:<11}  {name:<NAMES$}  {why}").trim_end())
    }

    /// Writes the sum; gives the number of cases that failed.
    pub(super) fn finish(self) -> std::io::Result<usize> {
        let [passed, failed, absent] = self.counts;
        let mut out = std::io::stdout().lock();
        if self.as_json {
            let report = json!({
                "url": self.url, "model": self.model, "passed": passed, "failed": failed,
                "absent": absent, "cases": self.cases,
            });
            writeln!(out, "{report}")?;
        } else {
            writeln!(
                out,
                "{passed} passed, {failed} failed, {absent} absent: {} at {}",
                self.model, self.url
            )?;
        }
        Ok(failed)
    }
}
