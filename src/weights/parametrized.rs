//! Matrices with adapters for tasks beside them, under the names that `torch.nn.utils.parametrize` gives both:
//! `x.parametrizations.weight.original` is the matrix of `x`, and `x.parametrizations.weight.0.lora_A` and
//! `lora_B` have the adapters of all tasks. Jina's third embeddings come so.

use std::sync::Arc;

use super::renamed::Renamed;
use super::tensors::TensorSource;

const ORIGINAL: &str = ".parametrizations.weight.original";
const WEIGHT: &str = ".weight";
/// What the adapters' names have in them.
const ADAPTER: &str = ".parametrizations.weight.0.lora_";

/// The matrices under the names that they have without adapters, which are left out; the same tensors, if none is
/// parametrized.
pub(crate) fn without_adapters(source: Arc<dyn TensorSource>) -> Arc<dyn TensorSource> {
    if !source.names().iter().any(|name| name.ends_with(ORIGINAL)) {
        return source;
    }
    Renamed::over(source, |name| match name.strip_suffix(ORIGINAL) {
        _ if name.contains(ADAPTER) => None,
        Some(module) => Some(format!("{module}{WEIGHT}")),
        None => Some(name.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::MemoryTensors;

    fn source(names: &[&str]) -> Arc<dyn TensorSource> {
        without_adapters(Arc::new(MemoryTensors::named(names)))
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
