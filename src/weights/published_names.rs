//! Tensors that checkpoints of a model have under several names, all under one of them: those that were published,
//! and those that transformers gives them when it saves.

use std::sync::Arc;

use super::renamed::Renamed;
use super::tensors::TensorSource;

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

/// The same tensors under the names that are used here.
pub(crate) fn under_one_name(source: Arc<dyn TensorSource>) -> Arc<dyn TensorSource> {
    let names = source.names();
    let known = |mark: &str| names.iter().any(|name| name.contains(mark));
    let Some((_, replacements)) = MODELS.iter().find(|(mark, _)| known(mark)) else {
        return source;
    };
    let replaced = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
    Renamed::over(source, |name| Some(replacements.iter().fold(name.to_owned(), replaced)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::MemoryTensors;

    fn source(names: &[&str]) -> Arc<dyn TensorSource> {
        under_one_name(Arc::new(MemoryTensors::named(names)))
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
