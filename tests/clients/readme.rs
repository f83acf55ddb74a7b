//! The tables of the README say what the code says. After a change of the code,
//! `SCONCE_UPDATE_README=1 cargo test --test main readme` writes them anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::CommandFactory;
use sconce::cli::Cli;
use sconce::metrics::{MetricKind, TABLE};
use sconce::models::architectures;

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
    let mut table = String::from("| Flag | Default | Meaning |\n|---|---|---|\n");
    for flag in serve.get_arguments().filter(|flag| flag.get_long().is_some()) {
        if flag.is_hide_set() || flag.get_long() == Some("help") {
            continue;
        }
        let name = flag.get_long().unwrap();
        let takes_value = flag.get_action().takes_values();
        let values: Vec<String> = flag
            .get_possible_values()
            .iter()
            .filter(|_| takes_value)
            .map(|value| value.get_name().to_owned())
            .collect();
        let placeholder = match flag.get_value_names() {
            _ if !values.is_empty() => format!(" {}", values.join("\\|")),
            Some(names) if takes_value => format!(" {}", names[0]),
            _ => String::new(),
        };
        let defaults: Vec<_> =
            flag.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        let default = match takes_value {
            true if !defaults.is_empty() => format!("`{}`", defaults.join(",")),
            _ => String::new(),
        };
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let environment = flag
            .get_env()
            .map(|name| format!(" (environment: `{}`)", name.to_string_lossy()))
            .unwrap_or_default();
        let help = help.replace('|', "\\|");
        writeln!(table, "| `--{name}{placeholder}` | {default} | {help}{environment} |").unwrap();
    }
    table
}

fn metrics_table() -> String {
    let mut table = String::from("| Name | Type | Meaning |\n|---|---|---|\n");
    for metric in TABLE {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        writeln!(table, "| `{}` | {kind} | {} |", metric.name, metric.help).unwrap();
    }
    table
}

fn models_list() -> String {
    let names: Vec<String> = architectures().map(|name| format!("`{name}`")).collect();
    format!("{}\n", names.join(", "))
}

#[test]
fn readme_tables_are_those_of_the_code() {
    let sections =
        [("models", models_list()), ("flags", flags_table()), ("metrics", metrics_table())];
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
