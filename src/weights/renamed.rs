//! Tensors that checkpoints of a model have under several names, all under one of them: those that were published,
//! and those that transformers gives them when it saves.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::WeightError;
use super::stored::StoredTensor;
use super::tensors::{Outline, TensorSource};

/// Parts of names, and what stands for them here, in the order in which they are replaced.
type Replacements = &'static [(&'static str, &'static str)];

/// What the names of some models' tensors have in them, and what is replaced then.
const MODELS: &[(&str, Replacements)] = &[(
    // Hunyuan 4. Saved by transformers, modules of hyper-connections stand one in the other the other way around, and
    // gates of feed-forward parts have the name of those of attention.
    ".hc_attn_layer.",
    &[
        (".hc_pre.hc_", ".hc_"),
        (".learnable_sink_param", ".sinks"),
        (".linear_gate.", ".gate_proj."),
        (".hc_attn_layer.hc_", ".attn_hc."),
        (".hc_mlp_layer.hc_", ".ffn_hc."),
        (".hc_head_", ".hc_"),
    ],
)];

/// The tensors of another source under other names.
pub(crate) struct Renamed {
    source: Arc<dyn TensorSource>,
    /// The names in the source of those that have another one here.
    stored: HashMap<String, String>,
}

impl Renamed {
    /// The same tensors, if their names are those that are used here.
    pub(crate) fn over(source: Arc<dyn TensorSource>) -> Arc<dyn TensorSource> {
        let names = source.names();
        let known = |mark: &str| names.iter().any(|name| name.contains(mark));
        let Some((_, replacements)) = MODELS.iter().find(|(mark, _)| known(mark)) else {
            return source;
        };
        let renamed = |name: String| {
            let replaced = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
            let own = replacements.iter().fold(name.clone(), replaced);
            (own != name).then_some((own, name))
        };
        Arc::new(Self { source, stored: names.into_iter().filter_map(renamed).collect() })
    }

    /// The name that a tensor has in the source.
    fn stored<'a>(&'a self, name: &'a str) -> &'a str {
        self.stored.get(name).map_or(name, String::as_str)
    }
}

impl TensorSource for Renamed {
    fn contains(&self, name: &str) -> bool {
        self.source.contains(self.stored(name))
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
        let own: HashMap<_, _> = self.stored.iter().map(|(own, stored)| (stored, own)).collect();
        let name = |stored: String| own.get(&stored).map_or(stored, |own| (*own).clone());
        self.source.names().into_iter().map(name).collect()
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

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor};

    use super::*;
    use crate::tensors::MemoryTensors;

    fn source(names: &[&str]) -> Arc<dyn TensorSource> {
        let tensor = || Tensor::zeros((1, 2), DType::F32, &Device::Cpu).unwrap();
        let tensors: HashMap<_, _> =
            names.iter().map(|name| ((*name).to_owned(), tensor())).collect();
        Renamed::over(Arc::new(MemoryTensors::new(tensors)))
    }

    #[test]
    fn published_and_saved_names_are_the_same() {
        let published = source(&[
            "model.embed_tokens.weight",
            "model.hc_head.hc_head_scale",
            "model.layers.0.hc_attn_layer.hc_pre.hc_fn",
            "model.layers.0.hc_mlp_layer.hc_pre.hc_base",
            "model.layers.0.mlp.gate_proj.weight",
            "model.layers.0.self_attn.learnable_sink_param",
            "model.layers.0.self_attn.linear_gate.weight",
        ]);
        let saved = source(&[
            "model.embed_tokens.weight",
            "model.hc_pre.hc_head.hc_head_scale",
            "model.layers.0.hc_pre.hc_attn_layer.hc_fn",
            "model.layers.0.hc_pre.hc_mlp_layer.hc_base",
            "model.layers.0.mlp.linear_gate.weight",
            "model.layers.0.self_attn.learnable_sink_param",
            "model.layers.0.self_attn.linear_gate.weight",
        ]);
        for source in [published, saved] {
            let mut names = source.names();
            names.sort_unstable();
            let expected = [
                "model.embed_tokens.weight",
                "model.hc_head.hc_scale",
                "model.layers.0.attn_hc.fn",
                "model.layers.0.ffn_hc.base",
                "model.layers.0.mlp.gate_proj.weight",
                "model.layers.0.self_attn.gate_proj.weight",
                "model.layers.0.self_attn.sinks",
            ];
            assert_eq!(names, expected);
            for name in expected {
                assert!(source.contains(name), "{name}");
                assert_eq!(source.read(name).unwrap().dims(), [1, 2]);
                assert_eq!(source.outline(name).unwrap().name, name);
            }
        }
    }

    #[test]
    fn names_of_other_models_stay_as_they_are() {
        assert_eq!(source(&["a.linear_gate.weight"]).names(), ["a.linear_gate.weight"]);
    }
}
