//! A model with the head that drafts for it from another file.

use std::sync::Arc;

use super::error::WeightError;
use super::stored::StoredTensor;
use super::tensors::{Outline, TensorSource};

/// The tensors of a model, and those of its head that it has not itself.
pub(crate) struct WithHead {
    pub(crate) model: Arc<dyn TensorSource>,
    pub(crate) head: Arc<dyn TensorSource>,
}

impl WithHead {
    fn of(&self, name: &str) -> &dyn TensorSource {
        let others = self.head.contains(name) && !self.model.contains(name);
        if others { self.head.as_ref() } else { self.model.as_ref() }
    }
}

impl TensorSource for WithHead {
    fn contains(&self, name: &str) -> bool {
        self.of(name).contains(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        self.of(name).read(name)
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.of(name).whole_numbers(name)
    }

    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        self.of(name).outline(name)
    }

    fn origin(&self, name: &str) -> String {
        self.of(name).origin(name)
    }

    fn names(&self) -> Vec<String> {
        let others = self.head.names().into_iter().filter(|name| !self.model.contains(name));
        self.model.names().into_iter().chain(others).collect()
    }

    fn total_bytes(&self) -> u64 {
        self.model.total_bytes() + self.head.total_bytes()
    }

    fn release_pages(&self) {
        self.model.release_pages();
        self.head.release_pages();
    }
}
