//! Records -> figures -> a table for people or JSON for programs.
//!
//! Times are in milliseconds. TTFT: from when a request was due to its first text. ITL: between two
//! chunks of text. TPOT: time after the first text divided by the tokens after the first one. E2E:
//! from when a request was due to its end. A server may put several tokens into one chunk, so ITL
//! is what a reader sees and TPOT what the engine does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::bench::driver::{LoadPlan, LoadResult, Outcome, RequestRecord};
use crate::cli::bench::histogram::{self, Bucket, histogram};
use crate::cli::bench::prompts::{PromptKind, PromptShape};
use crate::cli::bench::stats::{Distribution, as_f64};

/// One run, complete: what was asked and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    url: String,
    workload: Workload,
    requests: RequestCounts,
    errors: BTreeMap<String, ErrorCount>,
    duration_s: f64,
    requests_per_s: f64,
    output_tokens: u64,
    output_tokens_per_s: f64,
    prompt_tokens: u64,
    cached_prompt_tokens: u64,
    ttft_ms: Option<Distribution>,
    tpot_ms: Option<Distribution>,
    itl_ms: Option<Distribution>,
    e2e_ms: Option<Distribution>,
    longest_gap_ms: Option<Distribution>,
    ttft_histogram: Vec<Bucket>,
    itl_histogram: Vec<Bucket>,
}

#[derive(Clone, Debug, Serialize)]
struct Workload {
    model: String,
    endpoint: &'static str,
    prompts: PromptKind,
    input_len: usize,
    shared_prefix_len: usize,
    output_len: usize,
    concurrency: Option<usize>,
    request_rate: Option<f64>,
    temperature: f64,
    seed: u64,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra_body: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct RequestCounts {
    sent: usize,
    completed: usize,
    cut_by_time: usize,
    failed: usize,
    /// Complete answers with fewer tokens than asked for.
    short: usize,
}

#[derive(Clone, Debug, Serialize)]
struct ErrorCount {
    count: usize,
    first_message: String,
}

impl BenchReport {
    pub(crate) fn new(
        url: &str,
        shape: &PromptShape,
        prompts: PromptKind,
        plan: LoadPlan,
        result: &LoadResult,
    ) -> Self {
        let records = &result.records;
        let wall = result.wall.as_secs_f64().max(f64::MIN_POSITIVE);
        let requests = count_requests(records, shape.output_len);
        let output_tokens: u64 = records.iter().map(output_tokens).sum();
        let usage_sum = |field: fn(&crate::cli::client::Usage) -> u64| {
            records.iter().filter_map(|record| record.usage.as_ref().map(field)).sum()
        };
        Self {
            url: url.to_owned(),
            workload: Workload {
                model: shape.models.join(", "),
                endpoint: shape.endpoint.name(),
                prompts,
                input_len: shape.input_len,
                shared_prefix_len: shape.shared_prefix_len,
                output_len: shape.output_len,
                concurrency: plan.concurrency,
                request_rate: plan.request_rate,
                temperature: shape.temperature,
                seed: shape.seed,
                extra_body: shape.extra.clone(),
            },
            requests,
            errors: count_errors(records),
            duration_s: wall,
            requests_per_s: as_f64(requests.completed) / wall,
            output_tokens,
            output_tokens_per_s: tokens_as_f64(output_tokens) / wall,
            prompt_tokens: usage_sum(|usage| usage.prompt_tokens),
            cached_prompt_tokens: usage_sum(|usage| usage.cached_tokens),
            ttft_ms: Distribution::of(records.iter().filter_map(ttft_ms).collect()),
            tpot_ms: Distribution::of(records.iter().filter_map(tpot_ms).collect()),
            itl_ms: Distribution::of(records.iter().flat_map(gaps_ms).collect()),
            e2e_ms: Distribution::of(completed(records).map(e2e_ms).collect()),
            longest_gap_ms: Distribution::of(
                records
                    .iter()
                    .filter_map(|record| gaps_ms(record).max_by(f64::total_cmp))
                    .collect(),
            ),
            ttft_histogram: histogram(records.iter().filter_map(ttft_ms)),
            itl_histogram: histogram(records.iter().flat_map(gaps_ms)),
        }
    }

    /// Requests that got their whole answer.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.requests.completed
    }

    /// Requests that failed, by kind of error.
    pub fn errors(&self) -> impl Iterator<Item = (&str, usize)> {
        self.errors.iter().map(|(kind, error)| (kind.as_str(), error.count))
    }

    /// The table that people read.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::new();
        // Writing to a String can't fail.
        let _ = self.write_table(&mut table);
        table
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let (work, requests) = (&self.workload, self.requests);
        writeln!(out, "{} at {} ({})", work.model, self.url, work.endpoint)?;
        writeln!(out, "{}\n", describe(work))?;
        writeln!(
            out,
            "requests   {} sent, {} completed, {} failed, {} cut by time",
            requests.sent, requests.completed, requests.failed, requests.cut_by_time
        )?;
        writeln!(out, "duration   {:.2} s", self.duration_s)?;
        writeln!(
            out,
            "rate       {:.2} requests/s, {:.1} output tokens/s",
            self.requests_per_s, self.output_tokens_per_s
        )?;
        writeln!(
            out,
            "tokens     {} in ({} from the prefix cache), {} out\n",
            self.prompt_tokens, self.cached_prompt_tokens, self.output_tokens
        )?;
        self.write_latencies(out)?;
        let histograms = [
            ("time to first token, milliseconds", &self.ttft_histogram),
            ("between chunks, milliseconds", &self.itl_histogram),
        ];
        for (name, buckets) in histograms.into_iter().filter(|(_, buckets)| buckets.len() > 1) {
            write!(out, "\n{name}\n{}", histogram::lines(buckets))?;
        }
        for (kind, error) in &self.errors {
            writeln!(out, "\n{} x {kind}: {}", error.count, error.first_message)?;
        }
        if requests.short > 0 {
            writeln!(
                out,
                "\n{} answers were shorter than {} tokens: the figures are not comparable",
                requests.short, work.output_len
            )?;
        }
        Ok(())
    }

    fn write_latencies(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{:<28}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "milliseconds", "mean", "p50", "p90", "p99", "max"
        )?;
        let rows = [
            ("time to first token (TTFT)", self.ttft_ms),
            ("time per token (TPOT)", self.tpot_ms),
            ("between chunks (ITL)", self.itl_ms),
            ("longest gap of a request", self.longest_gap_ms),
            ("whole request (E2E)", self.e2e_ms),
        ];
        for (name, row) in rows {
            match row {
                Some(row) => writeln!(
                    out,
                    "{name:<28}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
                    row.mean, row.p50, row.p90, row.p99, row.max
                )?,
                None => writeln!(out, "{name:<28}{:>10}", "-")?,
            }
        }
        Ok(())
    }
}

fn describe(work: &Workload) -> String {
    let mut text = format!("{} tokens in, {} out", work.input_len, work.output_len);
    if work.shared_prefix_len > 0 {
        let _ = write!(text, ", {} more shared by all", work.shared_prefix_len);
    }
    if let Some(rate) = work.request_rate {
        let _ = write!(text, ", {rate} arrivals/s");
    }
    if let Some(concurrency) = work.concurrency {
        let _ = write!(text, ", at most {concurrency} at once");
    }
    let _ = write!(text, ", seed {}", work.seed);
    if work.prompts == PromptKind::Words {
        text.push_str(", prompts of words (lengths are approximate)");
    }
    text
}

fn completed(records: &[RequestRecord]) -> impl Iterator<Item = &RequestRecord> {
    records.iter().filter(|record| record.outcome == Outcome::Completed)
}

fn count_requests(records: &[RequestRecord], output_len: usize) -> RequestCounts {
    let mut counts = RequestCounts { sent: records.len(), ..RequestCounts::default() };
    for record in records {
        match record.outcome {
            Outcome::Completed => {
                counts.completed += 1;
                counts.short += usize::from(output_tokens(record) < output_len as u64);
            }
            Outcome::CutByTime => counts.cut_by_time += 1,
            Outcome::Failed { .. } => counts.failed += 1,
        }
    }
    counts
}

fn count_errors(records: &[RequestRecord]) -> BTreeMap<String, ErrorCount> {
    let mut errors = BTreeMap::new();
    for record in records {
        if let Outcome::Failed { kind, message } = &record.outcome {
            let error = errors
                .entry(kind.clone())
                .or_insert_with(|| ErrorCount { count: 0, first_message: message.clone() });
            error.count += 1;
        }
    }
    errors
}

/// As the server counts them, or one for each chunk where it does not say.
fn output_tokens(record: &RequestRecord) -> u64 {
    record.usage.map_or(record.chunk_times.len() as u64, |usage| usage.completion_tokens)
}

fn ttft_ms(record: &RequestRecord) -> Option<f64> {
    record.chunk_times.first().map(|&first| millis(first - record.due))
}

fn gaps_ms(record: &RequestRecord) -> impl Iterator<Item = f64> {
    record.chunk_times.windows(2).map(|pair| millis(pair[1] - pair[0]))
}

fn tpot_ms(record: &RequestRecord) -> Option<f64> {
    let (first, last) = (record.chunk_times.first()?, record.chunk_times.last()?);
    let rest = output_tokens(record).checked_sub(1).filter(|&rest| rest > 0)?;
    if record.outcome != Outcome::Completed || first == last {
        return None;
    }
    Some(millis(*last - *first) / tokens_as_f64(rest))
}

fn e2e_ms(record: &RequestRecord) -> f64 {
    millis(record.end - record.due)
}

fn millis(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Token counts of a run are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn tokens_as_f64(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::cli::bench::Endpoint;
    use crate::cli::client::Usage;

    fn record(times_ms: &[u64], tokens: Option<u64>, outcome: Outcome) -> RequestRecord {
        let due = Instant::now();
        let at = |ms: &u64| due + Duration::from_millis(*ms);
        RequestRecord {
            due,
            chunk_times: times_ms.iter().map(at).collect(),
            end: at(times_ms.last().unwrap_or(&0)),
            usage: tokens.map(|completion_tokens| Usage {
                prompt_tokens: 10,
                completion_tokens,
                cached_tokens: 4,
            }),
            outcome,
        }
    }

    fn report(records: Vec<RequestRecord>) -> BenchReport {
        let shape = PromptShape {
            endpoint: Endpoint::Chat,
            models: vec!["m".to_owned()],
            input_len: 10,
            shared_prefix_len: 0,
            output_len: 5,
            temperature: 0.0,
            ignore_eos: true,
            seed: 1,
            extra: Map::new(),
        };
        let plan = LoadPlan {
            num_requests: Some(records.len()),
            duration: None,
            concurrency: Some(1),
            request_rate: None,
            request_timeout: Duration::from_secs(1),
            seed: 1,
        };
        let result = LoadResult { records, wall: Duration::from_secs(2) };
        BenchReport::new("http://x", &shape, PromptKind::Words, plan, &result)
    }

    fn close(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn figures_of_one_request_follow_their_definitions() {
        // Five tokens in four chunks: 100 ms to the first, gaps of 10, 50 and 20 ms.
        let report = report(vec![record(&[100, 110, 160, 180], Some(5), Outcome::Completed)]);
        assert!(close(report.ttft_ms.unwrap().mean, 100.0));
        assert!(close(report.itl_ms.unwrap().p50, 20.0));
        assert!(close(report.longest_gap_ms.unwrap().max, 50.0));
        assert!(close(report.tpot_ms.unwrap().mean, 20.0));
        assert!(close(report.e2e_ms.unwrap().mean, 180.0));
        assert!(close(report.output_tokens_per_s, 2.5));
        assert!(close(report.requests_per_s, 0.5));
        assert_eq!((report.prompt_tokens, report.cached_prompt_tokens), (10, 4));
        assert_eq!(report.requests.short, 0);
    }

    #[test]
    fn counts_errors_by_kind_and_keeps_the_first_message() {
        let failed = |kind: &str, message: &str| Outcome::Failed {
            kind: kind.to_owned(),
            message: message.to_owned(),
        };
        let report = report(vec![
            record(&[], None, failed("http 429", "full")),
            record(&[5], None, failed("http 429", "still full")),
            record(&[], None, failed("timeout", "slow")),
            record(&[1, 2], None, Outcome::CutByTime),
            record(&[1, 2], Some(2), Outcome::Completed),
        ]);
        let errors: Vec<_> = report.errors().collect();
        assert_eq!(errors, [("http 429", 2), ("timeout", 1)]);
        assert_eq!(report.errors["http 429"].first_message, "full");
        let counts = report.requests;
        assert_eq!((counts.sent, counts.completed, counts.cut_by_time), (5, 1, 1));
        assert_eq!((counts.failed, counts.short), (3, 1));
        // Tokens of cut and failed requests that reached the client count.
        assert_eq!(report.output_tokens, 5);
        let table = report.table();
        assert!(table.contains("2 x http 429: full"), "{table}");
        assert!(table.contains("shorter than 5 tokens"), "{table}");
    }

    #[test]
    fn a_run_without_any_answer_has_a_table_too() {
        let report = report(Vec::new());
        assert!(report.table().contains("0 completed"));
        assert_eq!(report.ttft_ms, None);
    }

    #[test]
    fn json_has_every_figure_under_its_name() {
        let report = report(vec![record(&[100, 110], Some(5), Outcome::Completed)]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["workload"]["endpoint"], "chat");
        assert_eq!(json["workload"]["prompts"], "words");
        assert_eq!(json["requests"]["completed"], 1);
        for name in ["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "longest_gap_ms"] {
            for figure in ["count", "mean", "p50", "p90", "p99", "max"] {
                assert!(json[name][figure].is_number(), "{name}.{figure}");
            }
        }
    }
}
