//! The tensors of a source under other names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::error::WeightError;
use super::stored::StoredTensor;
use super::tensors::{Outline, TensorSource};

/// The tensors of another source under other names, perhaps without some of them.
pub(crate) struct Renamed {
    source: Arc<dyn TensorSource>,
    names: Vec<String>,
    /// The names in the source of those that have another one here.
    stored: HashMap<String, String>,
    /// The names in the source of those that are not here.
    left_out: HashSet<String>,
}

impl Renamed {
    /// The tensors of `source` under the names that `renamed` gives them; `None` leaves one out.
    pub(crate) fn over(
        source: Arc<dyn TensorSource>,
        renamed: impl Fn(&str) -> Option<String>,
    ) -> Arc<dyn TensorSource> {
        let (mut names, mut stored, mut left_out) = (Vec::new(), HashMap::new(), HashSet::new());
        for name in source.names() {
            let Some(own) = renamed(&name) else {
                left_out.insert(name);
                continue;
            };
            names.push(own.clone());
            if own != name {
                stored.insert(own, name);
            }
        }
        Arc::new(Self { source, names, stored, left_out })
    }

    /// The name that a tensor has in the source.
    fn stored<'a>(&'a self, name: &'a str) -> &'a str {
        self.stored.get(name).map_or(name, String::as_str)
    }
}

impl TensorSource for Renamed {
    fn contains(&self, name: &str) -> bool {
        !self.left_out.contains(name) && self.source.contains(self.stored(name))
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        self.source.read(self.stored(name))
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.source.whole_numbers(self.stored(name))
    }

    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        Ok(Outline { name: name.to_owned(), ..self.source.outline(self.stored(name))? })
    }

    fn origin(&self, name: &str) -> String {
        self.source.origin(self.stored(name))
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn total_bytes(&self) -> u64 {
        self.source.total_bytes()
    }

    fn release_pages(&self) {
        self.source.release_pages();
    }

    fn for_each_stored(&self, look: &mut dyn FnMut(&str, &[u8])) -> Result<(), WeightError> {
        self.source.for_each_stored(look)
    }
}
