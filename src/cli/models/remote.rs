//! Models of a running server, over the routes that Ollama's clients use.

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::client::ApiClient;
use crate::cli::table;
use crate::engine::memory::Size;

/// Has the server fetch a model, and shows how far it is.
pub(super) async fn pull(client: &ApiClient, model: &str) -> anyhow::Result<()> {
    let mut lines = client.lines("/api/pull", &json!({ "model": model })).await?;
    let mut bars = Bars::default();
    while let Some(line) = lines.next().await? {
        if let Some(error) = line["error"].as_str() {
            bail!("{error}");
        }
        bars.show(&line)?;
        if line["status"] == "success" {
            bars.clear();
            writeln!(std::io::stdout(), "{model} is there")?;
            return Ok(());
        }
    }
    bail!("the server ended the download without a word")
}

/// A bar for each file, on a terminal.
#[derive(Default)]
struct Bars {
    all: MultiProgress,
    files: Vec<(String, ProgressBar)>,
}

impl Bars {
    fn show(&mut self, line: &Value) -> anyhow::Result<()> {
        let (Some(file), Some(total)) = (line["digest"].as_str(), line["total"].as_u64()) else {
            return Ok(());
        };
        if !std::io::stderr().is_terminal() {
            return Ok(());
        }
        let known = self.files.iter().find(|(name, _)| name == file).map(|(_, bar)| bar.clone());
        let bar = if let Some(bar) = known {
            bar
        } else {
            let style = ProgressStyle::with_template(
                "{msg:40!} {bar:30} {bytes:>12} / {total_bytes:<12} {eta:>5}",
            )?;
            let bar = self.all.add(ProgressBar::new(total).with_style(style));
            bar.set_message(file.to_owned());
            self.files.push((file.to_owned(), bar.clone()));
            bar
        };
        bar.set_position(line["completed"].as_u64().unwrap_or_default());
        Ok(())
    }

    fn clear(&self) {
        // Whether the terminal takes it or not.
        let _ = self.all.clear();
    }
}

pub(super) async fn list(client: &ApiClient, as_json: bool) -> anyhow::Result<()> {
    let models = models(client, "/v1/models", "data").await?;
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", Value::from(models))?;
        return Ok(());
    }
    let rows = models.iter().map(|model| {
        let state = match model["status"]["value"].as_str() {
            // A server of one model has it loaded.
            None => "loaded",
            Some(_) if model["status"]["failed"] == true => "failed",
            Some(state) => state,
        };
        let aliases = model["aliases"].as_array().into_iter().flatten();
        let aliases: Vec<&str> = aliases.filter_map(Value::as_str).collect();
        [text(&model["id"]), size(&model["size"]), state.to_owned(), aliases.join(", ")]
    });
    Ok(table::write(&mut out, ["NAME", "SIZE", "STATE", "ALIASES"], rows)?)
}

pub(super) async fn loaded(client: &ApiClient, as_json: bool) -> anyhow::Result<()> {
    let models = models(client, "/api/ps", "models").await?;
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", Value::from(models))?;
        return Ok(());
    }
    let rows = models.iter().map(|model| {
        let on_gpu = model["size_vram"].as_u64().is_some_and(|bytes| bytes > 0);
        [
            text(&model["name"]),
            size(&model["size"]),
            if on_gpu { "GPU" } else { "CPU" }.to_owned(),
            model["context_length"].as_u64().map_or(String::new(), |length| length.to_string()),
            until(&model["expires_at"]),
        ]
    });
    Ok(table::write(&mut out, ["NAME", "SIZE", "DEVICE", "CONTEXT", "UNTIL"], rows)?)
}

pub(super) async fn unload(client: &ApiClient, model: &str) -> anyhow::Result<()> {
    client.post_json("/v1/models/unload", &json!({ "model": model })).await?;
    Ok(())
}

pub(super) async fn remove(client: &ApiClient, model: &str) -> anyhow::Result<()> {
    Ok(client.delete("/api/delete", &json!({ "model": model })).await?)
}

/// Whether a server is there and has a model of this name.
pub(super) async fn serves(client: &ApiClient, model: &str) -> bool {
    let Ok(models) = models(client, "/v1/models", "data").await else { return false };
    models.iter().any(|entry| {
        let aliases = entry["aliases"].as_array().into_iter().flatten();
        aliases.chain([&entry["id"]]).any(|name| name == model)
    })
}

async fn models(client: &ApiClient, path: &str, key: &str) -> anyhow::Result<Vec<Value>> {
    let (status, body) = client.get_text(path).await?;
    if status != 200 {
        bail!("{path} answered {status}: {}", body.trim());
    }
    let mut list: Value = serde_json::from_str(&body).with_context(|| format!("{path}: {body}"))?;
    match list[key].take() {
        Value::Array(models) => Ok(models),
        _ => bail!("{path} answered without {key:?}: {body}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn size(value: &Value) -> String {
    let bytes = value.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
    bytes.map_or(String::new(), |bytes| Size(bytes).to_string())
}

/// How long a model stays, in words.
fn until(value: &Value) -> String {
    let Some(time) = value.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok()) else {
        return String::new();
    };
    let left = time.with_timezone(&Utc) - Utc::now();
    match left.num_seconds() {
        86_400_000.. => "for ever".to_owned(),
        seconds @ 7200.. => format!("{} hours from now", seconds / 3600),
        seconds @ 120.. => format!("{} minutes from now", seconds / 60),
        seconds => format!("{} seconds from now", seconds.max(0)),
    }
}
