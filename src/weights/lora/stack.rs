//! Adapters for tasks that are stacked in a model's own tensors: beside the matrix of a layer `x` there are
//! `x.parametrizations.weight.0.lora_A`, of tasks, ranks and inputs, and `lora_B`, of tasks, outputs and ranks;
//! beside an embedding `lora_A`, of tasks, rows and ranks, and `lora_B`, of tasks, ranks and columns. Jina's third
//! embeddings come so.

use std::path::PathBuf;
use std::sync::Arc;

use super::files::{DOWN, UP, WRAPPER};
use crate::error::WeightError;
use crate::stored::StoredTensor;
use crate::tensors::TensorSource;

/// What stands between the name of a layer and that of one of its matrices.
pub(crate) const STACKED: &str = ".parametrizations.weight.0.";
const MATRICES: [(&str, &str); 2] = [("lora_A", DOWN), ("lora_B", UP)];

/// The adapters of all tasks, and what is said of them.
#[derive(Clone)]
pub struct AdapterStack {
    /// The model's tensors as they are stored.
    pub(crate) source: Arc<dyn TensorSource>,
    /// The file or folder that says the rest, for messages.
    pub(crate) path: PathBuf,
    /// Number of tasks.
    pub(crate) tasks: usize,
    /// Rank of all adapters.
    pub(crate) rank: usize,
    /// What a product of an adapter is multiplied with, times the rank.
    pub(crate) alpha: f64,
}

impl std::fmt::Debug for AdapterStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdapterStack").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// Modules that have an adapter: layers, and embeddings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stacked {
    pub(super) layers: Vec<String>,
    pub(super) embeddings: Vec<String>,
}

impl AdapterStack {
    /// The modules, each ascending. What pools a class's token is left out: no task is embedded by it.
    pub(super) fn modules(&self) -> Result<Stacked, WeightError> {
        let end = format!("{STACKED}{}", MATRICES[0].0);
        let names = self.source.names();
        let mut modules: Vec<&str> =
            names.iter().filter_map(|name| name.strip_suffix(end.as_str())).collect();
        modules.retain(|module| !module.ends_with("pooler.dense"));
        modules.sort_unstable();
        let mut found = Stacked::default();
        for module in modules {
            let [down, up] = MATRICES.map(|(which, _)| self.source.outline(&stored(module, which)));
            let [down, up] = [down?.dims, up?.dims];
            match (&down[..], &up[..]) {
                ([tasks, rank, _], [others, _, other])
                    if [tasks, others] == [&self.tasks; 2] && [rank, other] == [&self.rank; 2] =>
                {
                    found.layers.push(module.to_owned());
                }
                ([tasks, _, rank], [others, other, _])
                    if [tasks, others] == [&self.tasks; 2] && [rank, other] == [&self.rank; 2] =>
                {
                    found.embeddings.push(module.to_owned());
                }
                _ => {
                    let name = stored(module, MATRICES[0].0);
                    let reason = format!(
                        "its dimensions are {down:?} and those of lora_B {up:?}, expected those of \
                         {} tasks and rank {}",
                        self.tasks, self.rank
                    );
                    let origin = self.source.origin(&name);
                    return Err(WeightError::BadTensor { origin, name, reason });
                }
            }
        }
        Ok(found)
    }

    /// The two matrices of an embedding for a task: `[rows, rank]` and `[rank, columns]`.
    pub(super) fn embedding(
        &self,
        module: &str,
        task: usize,
    ) -> Result<[StoredTensor; 2], WeightError> {
        let [down, up] = MATRICES.map(|(which, _)| self.part(&stored(module, which), task));
        Ok([down?, up?])
    }

    /// A task's part of a stacked tensor.
    fn part(&self, name: &str, task: usize) -> Result<StoredTensor, WeightError> {
        let whole = self.source.read(name)?;
        let bytes = whole.bytes();
        let size = bytes.len() / self.tasks.max(1);
        let own = bytes[task * size..(task + 1) * size].to_vec();
        Ok(StoredTensor::owned(whole.kind(), whole.dims()[1..].to_vec(), own))
    }
}

fn stored(module: &str, which: &str) -> String {
    format!("{module}{STACKED}{which}")
}

/// The adapter of one task under the names that PEFT gives the tensors of layers.
pub(super) struct OfTask {
    pub(super) stack: AdapterStack,
    pub(super) task: usize,
    pub(super) modules: Stacked,
}

impl OfTask {
    /// The name that a tensor has in the stack.
    fn stored(&self, name: &str) -> Option<String> {
        let inner = name.strip_prefix(WRAPPER)?;
        let found =
            MATRICES.iter().find_map(|(which, end)| Some((inner.strip_suffix(end)?, which)));
        let (module, which) = found?;
        let known =
            self.modules.layers.binary_search_by(|layer| layer.as_str().cmp(module)).is_ok();
        known.then(|| stored(module, which))
    }
}

impl TensorSource for OfTask {
    fn contains(&self, name: &str) -> bool {
        self.stored(name).is_some()
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        match self.stored(name) {
            Some(stored) => self.stack.part(&stored, self.task),
            None => self.stack.source.read(name),
        }
    }

    fn origin(&self, name: &str) -> String {
        self.stack.source.origin(name)
    }

    fn names(&self) -> Vec<String> {
        let of = |module: &String| MATRICES.map(|(_, end)| format!("{WRAPPER}{module}{end}"));
        self.modules.layers.iter().flat_map(of).collect()
    }

    fn total_bytes(&self) -> u64 {
        self.stack.source.total_bytes()
    }

    fn for_each_stored(&self, look: &mut dyn FnMut(&str, &[u8])) -> Result<(), WeightError> {
        for name in self.names() {
            look(&name, self.read(&name)?.bytes());
        }
        for module in &self.modules.embeddings {
            for tensor in self.stack.embedding(module, self.task)? {
                look(module, tensor.bytes());
            }
        }
        Ok(())
    }
}
