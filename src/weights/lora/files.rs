//! Names of the files of an adapter's folder and of its tensors, and where a model's repository has those of its tasks.

/// What the adapter says of itself.
pub(crate) const CONFIG: &str = "adapter_config.json";
/// The adapter's matrices.
pub(crate) const TENSORS: &str = "adapter_model.safetensors";
/// The folder that has one for each task.
pub(crate) const TASK_FOLDERS: &str = "adapters";

/// What PEFT puts before the names of the model that it wraps.
pub(super) const WRAPPER: &str = "base_model.model.";
pub(super) const DOWN: &str = ".lora_A.weight";
pub(super) const UP: &str = ".lora_B.weight";

/// Whether a file of a repository is one of a task's adapter.
pub(crate) fn is_task_file(file: &str) -> bool {
    let inner = file.strip_prefix(TASK_FOLDERS).and_then(|rest| rest.strip_prefix('/'));
    let Some((task, name)) = inner.and_then(|inner| inner.split_once('/')) else { return false };
    is_plain(task) && (name == CONFIG || name == TENSORS)
}

/// Whether a name is that of a folder right below another.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

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
