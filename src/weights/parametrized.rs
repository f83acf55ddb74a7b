//! Matrices with adapters for tasks beside them, under the names that `torch.nn.utils.parametrize` gives both:
//! `x.parametrizations.weight.original` is the matrix of `x`, and `x.parametrizations.weight.0.lora_A` and
//! `lora_B` have the adapters of all tasks. Jina's third embeddings come so.

use std::sync::Arc;

use super::error::WeightError;
use super::stored::StoredTensor;
use super::tensors::{Outline, TensorSource};

const ORIGINAL: &str = ".parametrizations.weight.original";
const WEIGHT: &str = ".weight";
/// What the adapters' names have in them.
const ADAPTER: &str = ".parametrizations.weight.0.lora_";

/// The matrices under the names that they have without adapters, which are left out.
pub(crate) struct Parametrized(Arc<dyn TensorSource>);

impl Parametrized {
    /// The same tensors, if none is parametrized.
    pub(crate) fn over(source: Arc<dyn TensorSource>) -> Arc<dyn TensorSource> {
        let names = source.names();
        if names.iter().any(|name| name.ends_with(ORIGINAL)) {
            Arc::new(Self(source))
        } else {
            source
        }
    }

    /// The name that a tensor has in the files.
    fn stored(&self, name: &str) -> String {
        let original = name.strip_suffix(WEIGHT).map(|module| format!("{module}{ORIGINAL}"));
        original.filter(|name| self.0.contains(name)).unwrap_or_else(|| name.to_owned())
    }
}

impl TensorSource for Parametrized {
    fn contains(&self, name: &str) -> bool {
        !name.contains(ADAPTER) && self.0.contains(&self.stored(name))
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        self.0.read(&self.stored(name))
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.0.whole_numbers(name)
    }

    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        Ok(Outline { name: name.to_owned(), ..self.0.outline(&self.stored(name))? })
    }

    fn origin(&self, name: &str) -> String {
        self.0.origin(&self.stored(name))
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.names().into_iter().filter(|name| !name.contains(ADAPTER));
        let plain = names.map(|name| match name.strip_suffix(ORIGINAL) {
            Some(module) => format!("{module}{WEIGHT}"),
            None => name,
        });
        plain.collect()
    }

    fn total_bytes(&self) -> u64 {
        self.0.total_bytes()
    }

    fn release_pages(&self) {
        self.0.release_pages();
    }

    fn for_each_stored(&self, look: &mut dyn FnMut(&str, &[u8])) -> Result<(), WeightError> {
        self.0.for_each_stored(look)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use candle_core::{DType, Device, Tensor};

    use super::*;
    use crate::tensors::MemoryTensors;

    fn source(names: &[&str]) -> Arc<dyn TensorSource> {
        let tensor = || Tensor::zeros((1, 2), DType::F32, &Device::Cpu).unwrap();
        let tensors: HashMap<_, _> =
            names.iter().map(|name| ((*name).to_owned(), tensor())).collect();
        Parametrized::over(Arc::new(MemoryTensors::new(tensors)))
    }

    #[test]
    fn matrices_have_their_plain_names_and_adapters_are_left_out() {
        let source = source(&[
            "a.bias",
            "a.parametrizations.weight.original",
            "a.parametrizations.weight.0.lora_A",
            "b.weight",
        ]);
        let mut names = source.names();
        names.sort_unstable();
        assert_eq!(names, ["a.bias", "a.weight", "b.weight"]);
        assert!(source.contains("a.weight") && source.contains("b.weight"));
        assert!(!source.contains("a.parametrizations.weight.0.lora_A"));
        assert!(!source.contains("b.bias"));
        assert_eq!(source.read("a.weight").unwrap().dims(), [1, 2]);
        assert_eq!(source.outline("a.weight").unwrap().name, "a.weight");
    }

    #[test]
    fn other_tensors_stay_as_they_are() {
        assert_eq!(source(&["a.weight"]).names(), ["a.weight"]);
    }
}
