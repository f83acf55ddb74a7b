//! The Grafana dashboard and the alerts ask only for metrics that the server has.

use std::collections::BTreeSet;
use std::path::Path;

use sconce::metrics::{MetricKind, TABLE};
use serde_json::Value;

/// Every `expr` of the dashboard, wherever it is.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// The metrics that an expression names: identifiers that carry one of our prefixes.
fn metric_names(expression: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let prefixes = ["vllm:", "sconce:", "http_"];
    expression
        .split(move |c| !is_part(c))
        .filter(move |word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
}

/// Names under which Prometheus stores the table's metrics.
fn stored_names() -> BTreeSet<String> {
    let stored = |metric: &sconce::metrics::Metric| match metric.kind {
        MetricKind::Histogram(_) => {
            ["_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", metric.name)).to_vec()
        }
        MetricKind::Counter | MetricKind::Gauge => vec![metric.name.to_owned()],
    };
    TABLE.iter().flat_map(stored).collect()
}

#[test]
fn the_dashboard_asks_only_for_metrics_that_exist() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/grafana/dashboards/sconce.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    let known = stored_names();
    let asked: BTreeSet<&str> = found.iter().flat_map(|text| metric_names(text)).collect();
    assert!(asked.len() > 10, "{asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// That Prometheus reads the rules, its own program tells (`.ci/run alerts`).
#[test]
fn alerts_ask_only_for_metrics_that_exist() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/alerts.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', '-']));
    let lines = lines.filter(|line| !line.contains("summary:"));
    let known = stored_names();
    let asked: BTreeSet<&str> = lines.flat_map(metric_names).collect();
    assert!(asked.len() >= 8, "{asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
