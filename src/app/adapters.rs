//! LoRA adapters that a server has from the start: their names are checked, then they are loaded.

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::engine::adapter::Adapter;
use crate::engine::startup::adapters::AdapterLoader;
use crate::http::state::adapter_registry::{AdapterParts, ServedAdapter};
use crate::weights::task_adapters::TaskAdapter;

/// A LoRA adapter to load, as `--lora-modules` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraModule {
    /// The name that requests use as their model.
    pub name: String,
    /// A folder or a hub id.
    pub path: String,
    /// Which of the model's names the adapter belongs to; `None` is the first.
    pub base_model_name: Option<String>,
}

/// Refuses more than `max_loras` adapters, and names that contradict the model's own `names`.
///
/// # Errors
/// The message names the adapter and what it contradicts.
pub fn check(modules: &[LoraModule], max_loras: usize, names: &[String]) -> anyhow::Result<()> {
    let count = modules.len();
    ensure!(count <= max_loras, "--lora-modules has {count} adapters, --max-loras is {max_loras}");
    for LoraModule { name, base_model_name, .. } in modules {
        ensure!(!names.contains(name), "--lora-modules: {name} is the model's name");
        if let Some(base) = base_model_name.as_ref().filter(|base| !names.contains(base)) {
            let known = names.join(", ");
            bail!("--lora-modules: {name} belongs to {base}, the model is {known}");
        }
    }
    Ok(())
}

/// Loads the adapters, each under a name of its own.
pub(super) fn load(modules: &[LoraModule], loader: AdapterLoader) -> anyhow::Result<AdapterParts> {
    let mut served: Vec<ServedAdapter> = Vec::with_capacity(modules.len());
    for LoraModule { name, path, base_model_name } in modules.iter().cloned() {
        ensure!(
            served.iter().all(|served| served.adapter.name() != name),
            "--lora-modules: the name {name} is given twice"
        );
        let adapter = loader.load(&name, &path);
        let adapter = adapter.with_context(|| format!("--lora-modules: {name}"))?;
        tracing::info!(name, path, bytes = adapter.size_in_bytes(), "a LoRA adapter was loaded");
        served.push(ServedAdapter::new(adapter, path, base_model_name));
    }
    Ok(AdapterParts { loader, served, tasks: Vec::new(), always_one: false })
}

/// Loads the adapters that the model has for tasks.
pub(super) fn of_tasks(
    own: &[TaskAdapter],
    loader: &AdapterLoader,
) -> anyhow::Result<Vec<Adapter>> {
    let load = |own: &TaskAdapter| {
        let task = &own.task;
        let adapter = loader.load_own(own);
        let adapter = adapter.with_context(|| format!("the adapter of the task {task}"))?;
        tracing::info!(task, bytes = adapter.size_in_bytes(), "the adapter of a task was loaded");
        Ok(adapter)
    };
    own.iter().map(load).collect()
}
