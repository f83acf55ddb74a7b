//! The LoRA adapters that a model's own folder has for tasks: `adapters/TASK`, as PEFT writes them, for
//! each of the `task_names` in `config.json`. Jina's fifth embeddings come so.
//!
//! Knows where files lie; never what a task is.

use std::path::PathBuf;

use serde_json::Value;

use super::error::WeightError;
use super::folder::ModelFolder;
use super::lora::files::{CONFIG, TENSORS};

const TASKS: &str = "task_names";
/// The folder that has one for each task.
const FOLDER: &str = "adapters";
/// A model has an adapter for each of a few uses.
const MOST: usize = 64;

/// An adapter for a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAdapterFolder {
    /// The task's name.
    pub task: String,
    /// The adapter's folder.
    pub path: PathBuf,
}

/// The adapters of the tasks that `config` names, in their order; none where it names no tasks.
///
/// # Errors
/// `task_names` is no list of plain names, or a task's adapter is missing.
pub(crate) fn find(
    folder: &ModelFolder,
    config: &Value,
) -> Result<Vec<TaskAdapterFolder>, WeightError> {
    let Some(listed) = config.get(TASKS).filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let corrupt = || {
        let reason = format!(
            "`{TASKS}` is {listed}, expected a list of at most {MOST} names of folders in \
             {FOLDER}, no two alike"
        );
        WeightError::corrupt(&folder.path("config.json"), reason)
    };
    let names = listed.as_array().filter(|names| names.len() <= MOST).ok_or_else(corrupt)?;
    let mut found: Vec<TaskAdapterFolder> = Vec::with_capacity(names.len());
    for name in names {
        let task = name.as_str().filter(|name| is_plain(name)).ok_or_else(corrupt)?;
        if found.iter().any(|known| known.task == task) {
            return Err(corrupt());
        }
        let inner = format!("{FOLDER}/{task}");
        for file in [CONFIG, TENSORS].map(|file| format!("{inner}/{file}")) {
            if folder.open(&file)?.is_none() {
                let reason = format!("{file} is missing: config.json names the task {task:?}");
                return Err(WeightError::Incomplete { folder: folder.root().to_owned(), reason });
            }
        }
        found.push(TaskAdapterFolder { task: task.to_owned(), path: folder.path(&inner) });
    }
    Ok(found)
}

/// Whether a file of a repository is one of a task's adapter.
pub(crate) fn is_task_file(file: &str) -> bool {
    let inner = file.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
    let Some((task, name)) = inner.and_then(|inner| inner.split_once('/')) else { return false };
    is_plain(task) && (name == CONFIG || name == TENSORS)
}

/// Whether a name is that of a folder right below another.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\'])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folder(files: &[&str]) -> ModelFolder {
        let files = files.iter().map(|name| ((*name).to_owned(), &b"{}"[..]));
        ModelFolder::Embedded(files.collect())
    }

    #[test]
    fn each_named_task_has_a_folder() {
        let both = ["adapters/a/adapter_config.json", "adapters/a/adapter_model.safetensors"];
        let found = find(&folder(&both), &json!({"task_names": ["a"]})).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].task, found[0].path.ends_with("adapters/a")), ("a", true));
        assert!(find(&folder(&both), &json!({})).unwrap().is_empty());
        assert!(find(&folder(&both), &json!({"task_names": null})).unwrap().is_empty());
        for (names, expected) in [
            (json!(["a", "b"]), "adapters/b/adapter_config.json is missing"),
            (json!("a"), "`task_names` is \"a\""),
            (json!(["../a"]), "expected a list"),
            (json!([""]), "expected a list"),
            (json!(["a", "a"]), "no two alike"),
        ] {
            let error = find(&folder(&both), &json!({"task_names": names})).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = find(&folder(&both[..1]), &json!({"task_names": ["a"]})).unwrap_err();
        assert!(error.to_string().contains("adapter_model.safetensors is missing"), "{error}");
    }

    #[test]
    fn files_of_adapters_are_told_from_others() {
        assert!(is_task_file("adapters/text-matching/adapter_config.json"));
        assert!(is_task_file("adapters/retrieval/adapter_model.safetensors"));
        for other in [
            "adapters/adapter_config.json",
            "adapters/a/b/adapter_config.json",
            "adapters/a/adapter_model.bin",
            "adapters/../adapter_config.json",
            "other/a/adapter_config.json",
        ] {
            assert!(!is_task_file(other), "{other}");
        }
    }
}
