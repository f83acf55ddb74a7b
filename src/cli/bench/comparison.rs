//! A run beside an earlier one, whose figures were written as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

/// What is compared: its name, and where a report has it.
const FIGURES: [(&str, &str); 8] = [
    ("requests/s", "/requests_per_s"),
    ("output tokens/s", "/output_tokens_per_s"),
    ("TTFT p50, ms", "/ttft_ms/p50"),
    ("TTFT p99, ms", "/ttft_ms/p99"),
    ("TPOT p50, ms", "/tpot_ms/p50"),
    ("ITL p99, ms", "/itl_ms/p99"),
    ("longest gap, ms", "/longest_gap_ms/max"),
    ("E2E p50, ms", "/e2e_ms/p50"),
];

/// An earlier report.
///
/// # Errors
/// The file can't be read, or is no report.
pub(super) fn read(path: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(path);
    let bytes = bytes.with_context(|| format!("can't read {}", path.display()))?;
    let report: Value = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not JSON", path.display()))?;
    if !report["workload"].is_object() {
        bail!("{} was not written by --json", path.display());
    }
    Ok(report)
}

/// Both runs side by side, and in what they were not asked the same.
pub(super) fn table(before: &Value, now: &Value) -> String {
    let mut text = format!("\n{:<28}{:>12}{:>12}{:>10}\n", "compared", "before", "now", "ratio");
    for (name, place) in FIGURES {
        let [old, new] = [before, now].map(|report| report.pointer(place).and_then(Value::as_f64));
        let shown =
            |figure: Option<f64>| figure.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let ratio = old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
        let (old, new, ratio) = (shown(old), shown(new), shown(ratio));
        let _ = writeln!(text, "{name:<28}{old:>12}{new:>12}{ratio:>10}");
    }
    let fields = now["workload"].as_object().into_iter().flatten();
    for (name, value) in fields {
        let old = &before["workload"][name];
        if old != value {
            let _ = writeln!(text, "not the same workload: {name} was {old} and is {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_stand_side_by_side_with_their_ratio() {
        let report = |speed: f64, seed: u64| {
            json!({"workload": {"seed": seed, "model": "m"}, "output_tokens_per_s": speed,
                "ttft_ms": {"p50": 10.0, "p99": 0.0}, "tpot_ms": null})
        };
        let text = table(&report(50.0, 1), &report(75.0, 2));
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        let words =
            |name: &str| line(name)[28..].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words("output tokens/s"), ["50.00", "75.00", "1.50"]);
        assert_eq!(words("TTFT p50"), ["10.00", "10.00", "1.00"]);
        assert_eq!(words("TTFT p99"), ["0.00", "0.00", "-"]);
        assert_eq!(words("TPOT p50"), ["-", "-", "-"]);
        assert!(text.ends_with("not the same workload: seed was 1 and is 2\n"), "{text}");
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for (bytes, told) in [("{", "is not JSON"), ("{}", "was not written by --json")] {
            std::fs::write(&path, bytes).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains(told));
        }
        assert!(read(folder.path()).unwrap_err().to_string().contains("can't read"));
    }
}
