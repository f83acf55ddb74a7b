//! The LoRA adapters that a model's own folder has for tasks: `adapters/TASK`, as PEFT writes them, for
//! each of the `task_names` in `config.json`, as of Jina's fifth embeddings; or for each of the
//! `lora_adaptations` in the model's own tensors, as of their third.
//!
//! Knows where files lie; never what a task is.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::error::WeightError;
use super::folder::ModelFolder;
use super::lora::LoraFolder;
use super::lora::files::{CONFIG, TASK_FOLDERS, TENSORS, is_plain};
use super::lora::stack::{AdapterStack, STACKED};
use super::tensors::TensorSource;

const TASKS: &str = "task_names";
const STACKED_TASKS: &str = "lora_adaptations";
/// A model has an adapter for each of a few uses.
const MOST: usize = 64;

/// An adapter for a task.
#[derive(Clone, Debug)]
pub struct TaskAdapter {
    /// The task's name.
    pub task: String,
    place: Place,
}

/// Where an adapter is.
#[derive(Clone, Debug)]
enum Place {
    /// In a folder of its own.
    Folder(PathBuf),
    /// Among those of the model's tensors, in this place.
    Stack(AdapterStack, usize),
}

impl TaskAdapter {
    /// Opens the adapter.
    ///
    /// # Errors
    /// When a file or a tensor is missing or corrupt.
    pub fn open(&self) -> Result<LoraFolder, WeightError> {
        match &self.place {
            Place::Folder(path) => LoraFolder::open(path),
            Place::Stack(stack, index) => LoraFolder::of_task(stack, *index),
        }
    }

    /// Whether the model computes with one of them even where no task is named: those that come in folders of
    /// their own are parts of it, those beside the model's own matrices are not.
    pub fn is_always_one(&self) -> bool {
        matches!(self.place, Place::Folder(_))
    }
}

/// The adapters of the tasks that `config` names, in their order; none where it names no tasks. `tensors` are
/// the model's own.
///
/// # Errors
/// The names are no list of plain ones, a task's adapter is missing, or a field that says what the adapters
/// are has another type.
pub(crate) fn find(
    folder: &ModelFolder,
    config: &Value,
    tensors: &Arc<dyn TensorSource>,
) -> Result<Vec<TaskAdapter>, WeightError> {
    if tensors.names().iter().any(|name| name.contains(STACKED)) {
        return stacked(folder, config, tensors);
    }
    let mut found = Vec::new();
    for task in names(folder, config, TASKS)? {
        let inner = format!("{TASK_FOLDERS}/{task}");
        for file in [CONFIG, TENSORS].map(|file| format!("{inner}/{file}")) {
            if folder.open(&file)?.is_none() {
                let reason = format!("{file} is missing: config.json names the task {task:?}");
                return Err(WeightError::Incomplete { folder: folder.root().to_owned(), reason });
            }
        }
        found.push(TaskAdapter { task, place: Place::Folder(folder.path(&inner)) });
    }
    Ok(found)
}

/// The adapters that the model's own tensors have.
fn stacked(
    folder: &ModelFolder,
    config: &Value,
    tensors: &Arc<dyn TensorSource>,
) -> Result<Vec<TaskAdapter>, WeightError> {
    let tasks = names(folder, config, STACKED_TASKS)?;
    let path = folder.path("config.json");
    let corrupt = |field: &str, bound: &str| {
        let value = config.get(field).unwrap_or(&Value::Null);
        WeightError::corrupt(&path, format!("`{field}` is {value}, expected {bound}"))
    };
    let rank = config.get("lora_rank").and_then(Value::as_u64).filter(|rank| *rank > 0);
    let rank = rank.and_then(|rank| usize::try_from(rank).ok());
    let stack = AdapterStack {
        source: tensors.clone(),
        path: path.clone(),
        tasks: tasks.len(),
        rank: rank.ok_or_else(|| corrupt("lora_rank", "a number above 0"))?,
        alpha: config
            .get("lora_alpha")
            .and_then(Value::as_f64)
            .ok_or_else(|| corrupt("lora_alpha", "a number"))?,
    };
    let adapter = |(index, task)| TaskAdapter { task, place: Place::Stack(stack.clone(), index) };
    Ok(tasks.into_iter().enumerate().map(adapter).collect())
}

/// The tasks that a field of `config` lists.
fn names(folder: &ModelFolder, config: &Value, field: &str) -> Result<Vec<String>, WeightError> {
    let Some(listed) = config.get(field).filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let corrupt = || {
        let reason = format!(
            "`{field}` is {listed}, expected a list of at most {MOST} names of folders in \
             {TASK_FOLDERS}, no two alike"
        );
        WeightError::corrupt(&folder.path("config.json"), reason)
    };
    let names = listed.as_array().filter(|names| names.len() <= MOST).ok_or_else(corrupt)?;
    let mut found: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let task = name.as_str().filter(|name| is_plain(name)).ok_or_else(corrupt)?;
        if found.iter().any(|known| known == task) {
            return Err(corrupt());
        }
        found.push(task.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use candle_core::{DType, Device, Tensor};
    use serde_json::json;

    use super::*;
    use crate::tensors::MemoryTensors;

    fn folder(files: &[&str]) -> ModelFolder {
        let files = files.iter().map(|name| ((*name).to_owned(), &b"{}"[..]));
        ModelFolder::Embedded(files.collect())
    }

    #[test]
    fn each_named_task_has_a_folder() {
        let both = ["adapters/a/adapter_config.json", "adapters/a/adapter_model.safetensors"];
        let own: Arc<dyn TensorSource> = Arc::new(MemoryTensors::new(HashMap::new()));
        let find = |folder: &ModelFolder, config: Value| super::find(folder, &config, &own);
        let found = find(&folder(&both), json!({"task_names": ["a"]})).unwrap();
        assert_eq!(found.len(), 1);
        let Place::Folder(path) = &found[0].place else { panic!("it has a folder") };
        assert_eq!((&*found[0].task, path.ends_with("adapters/a")), ("a", true));
        assert!(find(&folder(&both), json!({})).unwrap().is_empty());
        assert!(find(&folder(&both), json!({"task_names": null})).unwrap().is_empty());
        for (names, expected) in [
            (json!(["a", "b"]), "adapters/b/adapter_config.json is missing"),
            (json!("a"), "`task_names` is \"a\""),
            (json!(["../a"]), "expected a list"),
            (json!([""]), "expected a list"),
            (json!(["a", "a"]), "no two alike"),
        ] {
            let error = find(&folder(&both), json!({"task_names": names})).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = find(&folder(&both[..1]), json!({"task_names": ["a"]})).unwrap_err();
        assert!(error.to_string().contains("adapter_model.safetensors is missing"), "{error}");
    }

    /// Two tasks of rank 2: a layer of 3 inputs and 4 outputs, an embedding of 5 rows and 3 columns.
    fn stack(of_layer: [usize; 3]) -> Arc<dyn TensorSource> {
        let tensors = [
            ("l.lora_A", of_layer),
            ("l.lora_B", [2, 4, 2]),
            ("e.lora_A", [2, 5, 2]),
            ("e.lora_B", [2, 2, 3]),
            ("pooler.dense.lora_A", [2, 2, 3]),
            ("pooler.dense.lora_B", [2, 3, 2]),
        ];
        let tensor = |(name, dims): (&str, [usize; 3])| {
            let (module, which) = name.rsplit_once('.').unwrap();
            let count = u32::try_from(dims.iter().product::<usize>()).unwrap();
            let numbers = Tensor::arange(0, count, &Device::Cpu).unwrap();
            let numbers = numbers.to_dtype(DType::F32).unwrap().reshape(&dims).unwrap();
            (format!("{module}{STACKED}{which}"), numbers)
        };
        Arc::new(MemoryTensors::new(tensors.into_iter().map(tensor).collect()))
    }

    #[test]
    fn each_task_has_its_part_of_a_stack() {
        let config = json!({"lora_adaptations": ["a", "b"], "lora_rank": 2, "lora_alpha": 1});
        let found = find(&folder(&[]), &config, &stack([2, 2, 3])).unwrap();
        assert_eq!((found.len(), &*found[1].task, found[1].is_always_one()), (2, "b", false));
        let adapter = found[1].open().unwrap();
        assert_eq!(
            (adapter.modules(), adapter.embeddings()),
            (&["l".into()][..], &["e".into()][..])
        );
        assert_eq!((adapter.config().rank("l"), adapter.config().scale("l")), (2, 0.5));
        let weights = adapter.weights("l", &Device::Cpu);
        let down = weights.dense("lora_A.weight", &[2, 3], DType::F32).unwrap();
        assert_eq!(down.to_vec2::<f32>().unwrap(), [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]);
        let [rows, up] = adapter.embedding("e").unwrap();
        assert_eq!((rows.dims(), up.dims()), (&[5, 2][..], &[2, 3][..]));
        assert_eq!(rows.to_tensor(DType::F32).unwrap().to_vec2::<f32>().unwrap()[0], [10.0, 11.0]);
        assert_ne!(adapter.digest().unwrap(), found[0].open().unwrap().digest().unwrap());
    }

    #[test]
    fn a_stack_of_other_tasks_or_ranks_is_refused() {
        let config = json!({"lora_adaptations": ["a", "b"], "lora_rank": 2, "lora_alpha": 1});
        let found = find(&folder(&[]), &config, &stack([3, 2, 3])).unwrap();
        let error = found[0].open().err().unwrap().to_string();
        assert!(error.contains("expected those of 2 tasks and rank 2"), "{error}");
        let refused = |config: Value| find(&folder(&[]), &config, &stack([2, 2, 3])).unwrap_err();
        let error = refused(json!({"lora_adaptations": ["a"], "lora_rank": 0, "lora_alpha": 1}));
        assert!(error.to_string().contains("`lora_rank` is 0"), "{error}");
        let error = refused(json!({"lora_adaptations": ["a"], "lora_rank": 1}));
        assert!(error.to_string().contains("`lora_alpha` is null"), "{error}");
    }
}
