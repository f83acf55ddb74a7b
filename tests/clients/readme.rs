//! The tables of the README say what the code says. After a change of the code,
//! `SCONCE_UPDATE_README=1 cargo test --test main readme` writes them anew.

use std::path::PathBuf;

use clap::{Arg, CommandFactory};
use sconce::cli::Cli;
use sconce::metrics::{Metric, MetricKind, TABLE};
use sconce::models::{architectures, encoder};

fn readme() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md")
}

/// What stands between `<!-- name:begin -->` and `<!-- name:end -->`, marks excluded.
fn section(text: &str, name: &str) -> std::ops::Range<usize> {
    let begin = format!("<!-- {name}:begin -->\n");
    let end = format!("<!-- {name}:end -->");
    let start = text.find(&begin).expect("the begin mark") + begin.len();
    start..start + text[start..].find(&end).expect("the end mark")
}

fn flags_table() -> String {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("the command");
    let flags = serve.get_arguments().filter(|flag| !flag.is_hide_set());
    let rows: Vec<String> = flags.filter_map(flag_row).collect();
    format!("| Flag | Default | Meaning |\n|---|---|---|\n{}", rows.concat())
}

/// `None` for what has no long name, and for `--help`.
fn flag_row(flag: &Arg) -> Option<String> {
    let name = flag.get_long().filter(|&name| name != "help")?;
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let environment = match flag.get_env() {
        Some(name) => format!(" (environment: `{}`)", name.to_string_lossy()),
        None => String::new(),
    };
    let (value, default) = if flag.get_action().takes_values() {
        (value_of(flag), default_of(flag))
    } else {
        (String::new(), String::new())
    };
    // A bar inside of a cell would end it.
    let cell = |text: String| text.replace('|', "\\|");
    Some(format!(
        "| {} | {} | {} |\n",
        cell(format!("`--{name}{value}`")),
        cell(default),
        cell(format!("{help}{environment}"))
    ))
}

/// What the flag takes: its values where they are few, else a name for them.
fn value_of(flag: &Arg) -> String {
    let values: Vec<String> =
        flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let names = flag.get_value_names().unwrap_or_default();
    let shown = if values.is_empty() { names.join(" ") } else { values.join("|") };
    format!(" {shown}")
}

fn default_of(flag: &Arg) -> String {
    let values = flag.get_default_values().iter().map(|value| value.to_string_lossy());
    let values: Vec<_> = values.collect();
    if values.is_empty() { String::new() } else { format!("`{}`", values.join(",")) }
}

fn metrics_table() -> String {
    let row = |metric: &Metric| {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        format!("| `{}` | {kind} | {} |\n", metric.name, metric.help)
    };
    let rows: Vec<String> = TABLE.iter().map(row).collect();
    format!("| Name | Type | Meaning |\n|---|---|---|\n{}", rows.concat())
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    format!("{}\n", names.join(", "))
}

#[test]
fn readme_tables_are_those_of_the_code() {
    let sections = [
        ("models", list(architectures())),
        ("encoders", list(encoder::architectures())),
        ("flags", flags_table()),
        ("metrics", metrics_table()),
    ];
    let mut text = std::fs::read_to_string(readme()).unwrap();
    let before = text.clone();
    for (name, table) in &sections {
        let range = section(&text, name);
        text.replace_range(range, table);
    }
    if std::env::var_os("SCONCE_UPDATE_README").is_some() {
        std::fs::write(readme(), &text).unwrap();
        return;
    }
    let hint = "SCONCE_UPDATE_README=1 cargo test --test main readme writes it anew";
    for (name, table) in sections {
        assert_eq!(before[section(&before, name)], table, "the {name} of the README; {hint}");
    }
}

/// Commands that the README shows exist, with their flags.
#[test]
fn commands_of_the_readme_parse() {
    let text = std::fs::read_to_string(readme()).unwrap();
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let line = line.split(" #").next()?.trim();
            line.strip_prefix("sconce ").or_else(|| line.strip_prefix("cargo run --release -- "))
        })
        .collect();
    assert!(shown.len() >= 7, "{shown:?}");
    for line in shown {
        // A word of prose that begins a line is no command.
        let Some(first) = line.split_whitespace().next() else { continue };
        if Cli::command().find_subcommand(first).is_none() {
            continue;
        }
        let words = std::iter::once("sconce").chain(line.split_whitespace());
        let parsed = Cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "`sconce {line}`: {}", parsed.unwrap_err());
    }
}
