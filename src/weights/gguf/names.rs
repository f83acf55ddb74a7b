//! GGUF tensor names to Hugging Face names, one table row per architecture.
//!
//! A new architecture is a new row: its class, the names of its block tensors, and whether its
//! attention heads were re-ordered for interleaved rotary embeddings.

/// An architecture that GGUF files of this program may have.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// `general.architecture`.
    pub(crate) gguf: &'static str,
    /// The class in `config.json`'s `architectures`.
    pub(crate) class: &'static str,
    /// `config.json`'s `model_type`.
    pub(crate) model_type: &'static str,
    /// Rows of the query and key projections are ordered for rotary embeddings of neighbouring
    /// pairs; Hugging Face checkpoints pair the halves of a head.
    pub(crate) interleaved_rope: bool,
    /// Name parts between `blk.N.` and `.weight`, and their Hugging Face counterparts.
    blocks: &'static [(&'static str, &'static str)],
}

/// The block tensors of a pre-norm decoder with a gated MLP.
macro_rules! gated_decoder {
    ($($more:expr),* $(,)?) => {
        &[
            ("attn_norm", "input_layernorm"),
            ("attn_q", "self_attn.q_proj"),
            ("attn_k", "self_attn.k_proj"),
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("ffn_norm", "post_attention_layernorm"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
            $($more),*
        ]
    };
}

const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        gguf: "llama",
        class: "LlamaForCausalLM",
        model_type: "llama",
        interleaved_rope: true,
        blocks: gated_decoder![],
    },
    Architecture {
        gguf: "qwen2",
        class: "Qwen2ForCausalLM",
        model_type: "qwen2",
        interleaved_rope: false,
        blocks: gated_decoder![],
    },
    Architecture {
        gguf: "qwen3",
        class: "Qwen3ForCausalLM",
        model_type: "qwen3",
        interleaved_rope: false,
        blocks: gated_decoder![
            ("attn_q_norm", "self_attn.q_norm"),
            ("attn_k_norm", "self_attn.k_norm"),
        ],
    },
];

/// The tensor that scales rotary frequencies: part of the configuration, not of the weights.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Whose heads a row re-ordering follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heads {
    Query,
    Key,
}

impl Architecture {
    /// The architecture that a file names.
    pub(crate) fn find(gguf: &str) -> Result<&'static Self, String> {
        ARCHITECTURES.iter().find(|known| known.gguf == gguf).ok_or_else(|| {
            let known: Vec<_> = ARCHITECTURES.iter().map(|known| known.gguf).collect();
            let hint = match gguf {
                "clip" => " (this is a vision projector, not a language model)",
                _ => "",
            };
            format!(
                "the architecture `{gguf}` is not supported in GGUF{hint}; supported are {}",
                known.join(", ")
            )
        })
    }

    /// The Hugging Face name of a tensor, `None` for one that this architecture doesn't have.
    pub(crate) fn hugging_face_name(&self, gguf: &str) -> Option<String> {
        match gguf {
            "token_embd.weight" => return Some("model.embed_tokens.weight".to_owned()),
            "output_norm.weight" => return Some("model.norm.weight".to_owned()),
            "output.weight" => return Some("lm_head.weight".to_owned()),
            _ => {}
        }
        let (layer, part, ending) = block_parts(gguf)?;
        let (_, name) = self.blocks.iter().find(|(known, _)| *known == part)?;
        Some(format!("model.layers.{layer}.{name}.{ending}"))
    }

    /// Whose heads a tensor's rows must be re-ordered by, `None` if they stay.
    pub(crate) fn reordered_heads(&self, gguf: &str) -> Option<Heads> {
        if !self.interleaved_rope {
            return None;
        }
        match block_parts(gguf)?.1 {
            "attn_q" => Some(Heads::Query),
            "attn_k" => Some(Heads::Key),
            _ => None,
        }
    }
}

/// `blk.7.attn_q.weight` is layer 7, `attn_q`, `weight`.
fn block_parts(gguf: &str) -> Option<(usize, &str, &str)> {
    let (layer, rest) = gguf.strip_prefix("blk.")?.split_once('.')?;
    let (part, ending) = rest.rsplit_once('.')?;
    let known_ending = matches!(ending, "weight" | "bias");
    let layer: usize = layer.parse().ok()?;
    known_ending.then_some((layer, part, ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_every_architecture_is_reached_once() {
        for architecture in ARCHITECTURES {
            let mut names: Vec<_> = architecture
                .blocks
                .iter()
                .map(|(gguf, _)| format!("blk.12.{gguf}.weight"))
                .chain(["token_embd", "output_norm", "output"].map(|n| format!("{n}.weight")))
                .map(|gguf| architecture.hugging_face_name(&gguf).unwrap())
                .collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{}", architecture.gguf);
        }
    }

    #[test]
    fn maps_names_layer_by_layer() {
        let qwen3 = Architecture::find("qwen3").unwrap();
        let name = |gguf| qwen3.hugging_face_name(gguf);
        let layer = |rest: &str| Some(format!("model.layers.27.{rest}"));
        assert_eq!(name("blk.27.attn_q.weight"), layer("self_attn.q_proj.weight"));
        assert_eq!(name("blk.27.attn_k.bias"), layer("self_attn.k_proj.bias"));
        assert_eq!(name("blk.27.attn_q_norm.weight"), layer("self_attn.q_norm.weight"));
        assert_eq!(name("blk.27.ffn_norm.weight"), layer("post_attention_layernorm.weight"));
        for unknown in ["blk.x.attn_q.weight", "blk.1.ffn_gate_exps.weight", "blk.1.attn_q.scale"] {
            assert_eq!(name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn only_interleaved_architectures_reorder_heads() {
        let llama = Architecture::find("llama").unwrap();
        assert_eq!(llama.reordered_heads("blk.0.attn_q.weight"), Some(Heads::Query));
        assert_eq!(llama.reordered_heads("blk.0.attn_k.bias"), Some(Heads::Key));
        assert_eq!(llama.reordered_heads("blk.0.attn_v.weight"), None);
        assert_eq!(llama.reordered_heads("output.weight"), None);
        let qwen2 = Architecture::find("qwen2").unwrap();
        assert_eq!(qwen2.reordered_heads("blk.0.attn_q.weight"), None);
    }

    #[test]
    fn unknown_architectures_are_named() {
        let error = Architecture::find("mamba").unwrap_err();
        assert!(error.contains("`mamba`") && error.contains("llama, qwen2, qwen3"), "{error}");
        assert!(Architecture::find("clip").unwrap_err().contains("vision"));
    }
}
