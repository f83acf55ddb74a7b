//! Models in the hub's cache of this machine.

use std::io::Write;

use chrono::{DateTime, Local};
use serde_json::json;

use crate::cli::download::{self, DownloadArgs};
use crate::cli::table;
use crate::engine::memory::Size;
use crate::weights::hub::HubOptions;
use crate::weights::hub::inventory;

/// Fetches a model, with bars on a terminal.
pub(super) fn pull(model: &str) -> anyhow::Result<()> {
    let args = DownloadArgs { model: model.to_owned(), revision: None, file: None, offline: false };
    download::run(args)
}

pub(super) fn list(as_json: bool) -> anyhow::Result<()> {
    let models = inventory::models(&HubOptions::from_env().cache);
    let mut out = std::io::stdout().lock();
    if as_json {
        let models = models
            .iter()
            .map(|model| json!({"name": model.id, "path": model.path, "size": model.bytes}));
        let models: Vec<_> = models.collect();
        writeln!(out, "{}", serde_json::Value::from(models))?;
        return Ok(());
    }
    let rows = models.into_iter().map(|model| {
        let modified = model.modified.map(DateTime::<Local>::from);
        let modified = modified.map(|time| time.format("%Y-%m-%d %H:%M").to_string());
        let size = Size(usize::try_from(model.bytes).unwrap_or(usize::MAX)).to_string();
        [model.id, size, modified.unwrap_or_default()]
    });
    Ok(table::write(&mut out, ["NAME", "SIZE", "MODIFIED"], rows)?)
}

pub(super) fn remove(model: &str) -> anyhow::Result<()> {
    inventory::remove(&HubOptions::from_env().cache, model)?;
    Ok(())
}
