//! The text of `/metrics` in OpenMetrics 1.0, which differs from Prometheus' own in the names of counters,
//! in how bounds of buckets are written, and in that it has exemplars.

use super::metric::{Metric, MetricKind};
use super::registry::Registry;

/// What the text is, to HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Rewrites Prometheus' text, and adds the exemplars of a registry.
pub(super) fn rewritten(text: &str, table: &[Metric], registry: &Registry) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ").and_then(|line| line.split_once(' ')) {
            Some((word, rest)) => {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let (family, kind) = family(name, table);
                let rest = if word == "TYPE" { kind.unwrap_or(rest) } else { rest };
                out.extend(["# ", word, " ", family, " ", rest]);
            }
            None => push_sample(&mut out, line, table, registry),
        }
        out.push('\n');
    }
    out.push_str("# EOF\n");
    out
}

/// The name of a metric's family, and its type where that is not what Prometheus takes it for: counters are
/// named without the ending of their samples, which they must have.
fn family<'a>(name: &'a str, table: &[Metric]) -> (&'a str, Option<&'static str>) {
    let metric = table.iter().find(|metric| metric.name == name);
    if metric.is_none_or(|metric| metric.kind != MetricKind::Counter) {
        return (name, None);
    }
    name.strip_suffix("_total").map_or((name, Some("unknown")), |family| (family, None))
}

/// Adds a sample; of a bucket, with its bound as a float and its exemplar.
fn push_sample(out: &mut String, line: &str, table: &[Metric], registry: &Registry) {
    let bound = line.split_once("_bucket{").and_then(|(name, rest)| {
        let (before, rest) = rest.split_once("le=\"")?;
        let (bound, after) = rest.split_once('"')?;
        Some((name, before, bound.parse::<f64>().ok()?, after))
    });
    let Some((name, before, bound, after)) = bound else { return out.push_str(line) };
    let written = if bound.is_infinite() { "+Inf".to_owned() } else { format!("{bound:?}") };
    out.extend([name, "_bucket{", before, "le=\"", &written, "\"", after]);
    let metric = table.iter().find(|metric| metric.name == name);
    if let Some(Metric { kind: MetricKind::Histogram(bounds), .. }) = metric {
        let bucket = bounds.partition_point(|other| *other < bound);
        if let Some(exemplar) = registry.exemplar(name, bucket) {
            out.extend([" ", &exemplar]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::metrics::{Finished, SequenceTimes, install};

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn buckets_tell_the_trace_of_their_last_sample() {
        let metrics = install("m");
        let times = SequenceTimes {
            total: Duration::from_millis(700),
            queue: Duration::ZERO,
            prefill: Duration::from_millis(100),
            decode: Duration::from_secs(10_000),
            output_tokens: 2,
        };
        metrics.sequence_ended(Finished::Stop, times, Some(TRACE));
        metrics.first_token(Duration::from_millis(5), 1, None);
        let text = metrics.render_open_metrics();
        let labels = "model_name=\"m\",engine=\"0\"";
        let line = |name: &str, bound: &str| {
            let start = format!("vllm:{name}_seconds_bucket{{{labels},le=\"{bound}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap_or_else(|| panic!("no {start} in {text}")).to_owned()
        };
        let total = line("e2e_request_latency", "0.8");
        assert!(total.starts_with(&format!("1 # {{trace_id=\"{TRACE}\"}} 0.7 ")), "{total}");
        assert_eq!(line("e2e_request_latency", "1.0"), "1");
        assert_eq!(line("e2e_request_latency", "0.5"), "0");
        assert!(line("request_decode_time", "+Inf").contains("} 10000 "));
        assert!(line("request_queue_time", "0.3").contains("} 0 "));
        assert_eq!(line("time_to_first_token", "0.005"), "1");
        assert!(!metrics.render().contains(TRACE));
    }

    #[test]
    fn families_of_counters_lack_the_ending_of_samples() {
        let text = install("m").render_open_metrics();
        assert!(text.contains("# TYPE vllm:prompt_tokens counter\n"), "{text}");
        assert!(text.contains("\nvllm:prompt_tokens_total{"));
        assert!(text.contains("# TYPE vllm:num_requests_running gauge\n"));
        assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"));
    }
}
