//! LoRA adapters as models of their own: which names there are.
//!
//! A request that runs keeps its adapter, so unloading takes away a name and no answer.

use std::sync::{PoisonError, RwLock};

use super::clock::unix_seconds;
use crate::engine::adapter::Adapter;
use crate::engine::startup::adapters::AdapterLoader;

/// An adapter that requests can name.
#[derive(Clone, Debug)]
pub struct ServedAdapter {
    /// Its name and its matrices.
    pub adapter: Adapter,
    /// Where it was loaded from, as it was given.
    pub path: String,
    /// The name of the model that it belongs to, where it is not the first one.
    pub base_model_name: Option<String>,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
}

impl ServedAdapter {
    /// An adapter that was loaded now.
    pub fn new(adapter: Adapter, path: String, base_model_name: Option<String>) -> Self {
        Self { adapter, path, base_model_name, created: unix_seconds() }
    }
}

/// What a server needs to serve adapters.
#[derive(Debug)]
pub struct AdapterParts {
    /// Loads them.
    pub loader: AdapterLoader,
    /// Those that are there from the start, in the order of the list.
    pub served: Vec<ServedAdapter>,
    /// Those that the model's own folder has for tasks, under the tasks' names.
    pub tasks: Vec<Adapter>,
    /// Whether one of these is used where a request names none.
    pub always_one: bool,
}

impl AdapterParts {
    /// Bytes that all of them take in memory.
    pub fn size_in_bytes(&self) -> usize {
        let tasks: usize = self.tasks.iter().map(Adapter::size_in_bytes).sum();
        self.served_bytes() + tasks
    }

    /// Bytes that those take which requests can name as models.
    pub(crate) fn served_bytes(&self) -> usize {
        bytes_of(&self.served)
    }
}

/// The adapters by their names.
#[derive(Debug)]
pub(crate) struct AdapterRegistry {
    pub(crate) loader: AdapterLoader,
    served: RwLock<Vec<ServedAdapter>>,
    tasks: Vec<Adapter>,
    always_one: bool,
    /// Held while one is loaded: the bound counts those that are under way, too.
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) most: usize,
}

impl AdapterRegistry {
    pub(crate) fn new(parts: AdapterParts, most: usize) -> Self {
        let AdapterParts { loader, served, tasks, always_one } = parts;
        let (served, changing) = (RwLock::new(served), tokio::sync::Mutex::default());
        Self { loader, served, tasks, always_one, changing, most }
    }

    /// Those that the model's own folder has for tasks, under the tasks' names.
    pub(crate) fn of_tasks(&self) -> &[Adapter] {
        &self.tasks
    }

    /// The one of this task, if the model has it.
    pub(crate) fn of_task(&self, task: &str) -> Option<&Adapter> {
        self.tasks.iter().find(|own| own.name() == task)
    }

    /// The adapter of requests that name neither an adapter nor a task, as the code of such models
    /// has it: that for retrieval, else the first, unless the model computes without any then.
    pub(crate) fn of_no_task(&self) -> Option<&Adapter> {
        self.of_task("retrieval").or(self.tasks.first()).filter(|_| self.always_one)
    }

    /// All of them, in the order in which they were loaded.
    pub(crate) fn all(&self) -> Vec<ServedAdapter> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn find(&self, name: &str) -> Option<ServedAdapter> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.iter().find(|served| served.adapter.name() == name).cloned()
    }

    /// Changes the list; the bytes of what is on it then.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<ServedAdapter>)) -> usize {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut served);
        bytes_of(&served)
    }
}

/// Bytes that these take in memory.
fn bytes_of(served: &[ServedAdapter]) -> usize {
    served.iter().map(|served| served.adapter.size_in_bytes()).sum()
}
