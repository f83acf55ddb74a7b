//! The tables of the guide say what the code says, and commands in it and in the README exist. After a
//! change of the code, `SCONCE_UPDATE_README=1 cargo test --test main readme` writes the tables anew.

use std::path::PathBuf;

use candle_core::quantized::gguf_file::Content;
use clap::{Arg, CommandFactory};
use sconce::cli::Cli;
use sconce::layers::moe::{ExpertTensors, StackedTensors};
use sconce::metrics::{Metric, MetricKind, TABLE};
use sconce::models::config::HfConfig;
use sconce::models::{architectures, bidirectional, embedders, encoder};

use crate::parity::gguf_files::converted;
use crate::parity::{MODELS, folder, pictures, sounds};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The file of a page of the guide.
fn page(name: &str) -> PathBuf {
    root().join("src/guide").join(format!("{name}.md"))
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

fn list(names: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    format!("{}\n", names.join(", "))
}

/// What the fixtures show of each architecture: that its numbers are those of transformers, what
/// the converter of GGUF's own project makes of it, and whether its experts can be quantized.
fn models_table() -> String {
    let seeing = pictures::MODELS.iter().map(|name| format!("../pictures/{name}"));
    let hearing = sounds::MODELS.iter().map(|(name, _)| format!("../sounds/{name}"));
    let others = MODELS.iter().chain(&["gpt_oss_mxfp4"]).map(|name| (*name).to_owned());
    let fixtures = others.chain(seeing).chain(hearing).map(|name| {
        let text = std::fs::read_to_string(folder(&name).join("config.json")).unwrap();
        let config = HfConfig::from_value(&unquantized(&text)).unwrap();
        (name, config.architectures[0].clone(), sconce::models::spec(&config).unwrap())
    });
    let fixtures: Vec<_> = fixtures.collect();
    let row = |class: &str| {
        let own: Vec<_> = fixtures.iter().filter(|(_, of, _)| of == class).collect();
        let mut files: Vec<String> = own.iter().filter_map(|(name, ..)| gguf_name(name)).collect();
        files.sort();
        files.dedup();
        let experts = own.iter().find_map(|(.., spec)| match spec.moe.as_ref()?.experts {
            ExpertTensors::List(_) | ExpertTensors::StackedOrList(..) => None,
            ExpertTensors::Stacked(StackedTensors { compressed: None, .. }) => Some("not experts"),
            ExpertTensors::Stacked(_) => Some("experts: MXFP4"),
        });
        let checked = if own.is_empty() { "not checked" } else { "checked" };
        let formats = experts.map_or_else(|| "all".to_owned(), |experts| format!("all, {experts}"));
        let formats = if own.is_empty() { String::new() } else { formats };
        let files: Vec<String> = files.into_iter().map(|name| format!("`{name}`")).collect();
        format!("| `{class}` | {checked} | {} | {formats} |\n", files.join(", "))
    };
    let head = "| Architecture | Numbers | GGUF | Quantized folders |\n|---|---|---|---|\n";
    format!("{head}{}", architectures().map(row).collect::<String>())
}

/// The configuration that a reader of quantized checkpoints leaves.
fn unquantized(config: &str) -> serde_json::Value {
    let mut config: serde_json::Value = serde_json::from_str(config).unwrap();
    config.as_object_mut().unwrap().remove("quantization_config");
    config
}

/// What a converted fixture calls its architecture.
fn gguf_name(fixture: &str) -> Option<String> {
    // The tensor library doesn't read the kind of its experts; `gpt_oss` is of the same.
    if fixture == "gpt_oss_mxfp4" {
        return None;
    }
    let file = converted(fixture)?;
    let content = Content::read(&mut std::io::Cursor::new(file)).unwrap();
    Some(content.metadata["general.architecture"].to_string().unwrap().clone())
}

#[test]
fn readme_tables_are_those_of_the_code() {
    let encoders = || {
        let decoders = embedders().map(str::to_owned);
        list(encoder::architectures().chain(bidirectional::architectures()).chain(decoders))
    };
    let sections = [
        ("models", "models", models_table()),
        ("embeddings", "encoders", encoders()),
        ("flags", "flags", flags_table()),
        ("metrics", "metrics", metrics_table()),
    ];
    let is_update = std::env::var_os("SCONCE_UPDATE_README").is_some();
    let hint = "SCONCE_UPDATE_README=1 cargo test --test main readme writes it anew";
    for (name, mark, table) in sections {
        let text = std::fs::read_to_string(page(name)).unwrap();
        let range = section(&text, mark);
        if is_update {
            let mut updated = text;
            updated.replace_range(range, &table);
            std::fs::write(page(name), updated).unwrap();
        } else {
            assert_eq!(text[range], table, "the {mark} of src/guide/{name}.md; {hint}");
        }
    }
}

/// The README is for who is new here; what it leads to exists.
#[test]
fn the_readme_is_short_and_its_links_lead_somewhere() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= 220, "{} lines", text.lines().count());
    let linked = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    for link in linked.filter(|link| !link.contains("://") && !link.starts_with('#')) {
        assert!(root().join(link).exists(), "{link}");
    }
}

/// Commands that the README and the guide show exist, with their flags.
#[test]
fn commands_of_the_readme_and_the_guide_parse() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let pages = sconce::guide::PAGES.iter().copied();
    let pages = pages.chain([("index", sconce::guide::INDEX), ("README", readme.as_str())]);
    let mut shown = Vec::new();
    for (name, text) in pages {
        shown.extend(text.lines().filter_map(|line| {
            let line = line.split(" #").next()?.trim();
            let command = line.strip_prefix("sconce ");
            Some((name, command.or_else(|| line.strip_prefix("cargo run --release -- "))?))
        }));
    }
    assert!(shown.len() >= 25, "{shown:?}");
    for (name, line) in shown {
        // A word of prose that begins a line is no command.
        let Some(first) = line.split_whitespace().next() else { continue };
        if Cli::command().find_subcommand(first).is_none() {
            continue;
        }
        let words = std::iter::once("sconce").chain(line.split_whitespace());
        let parsed = Cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{name}: `sconce {line}`: {}", parsed.unwrap_err());
    }
}
