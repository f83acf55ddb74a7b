//! GGUF tensor names to Hugging Face names.
//!
//! What an architecture's tensors are called is in its row of the table; here is how a row is read.

use super::architecture::{Architecture, DraftHead, Outer, Part};
use super::architectures::ARCHITECTURES;
use super::by_layer::BY_LAYER;
use super::drafters::DRAFTERS;
use super::encoders::ENCODERS;
use super::gemma3n::GEMMA3N;
use super::header::TensorInfo;
use super::linear_attention::LINEAR_ATTENTION;
use super::other_layers::OTHER_LAYERS;
use super::recurrent::RECURRENT;
use super::refused;
use super::state_spaces::STATE_SPACES;
use super::with_experts::WITH_EXPERTS;

/// Where a tensor belongs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The layer, of tensors of layers.
    pub(crate) layer: Option<usize>,
    /// What stands before `.weight` or `.bias` in the file, without the layer.
    pub(crate) part: String,
    /// Names of what shares the tensor's rows, each with `*` if it has one for each index of the
    /// first dimension.
    pub(crate) names: Vec<String>,
}

impl Architecture {
    /// Every row of the table.
    fn all() -> impl Iterator<Item = &'static Self> {
        let rows = ARCHITECTURES.iter().chain(OTHER_LAYERS).chain(WITH_EXPERTS);
        let rows = rows.chain(BY_LAYER).chain(GEMMA3N).chain(RECURRENT).chain(STATE_SPACES);
        rows.chain(LINEAR_ATTENTION).chain(DRAFTERS).chain(ENCODERS)
    }

    /// The architectures that files of a checkpoint of this class may have.
    pub(super) fn of_class(class: &str) -> impl Iterator<Item = &'static Self> {
        Self::all().filter(move |row| row.class == class || row.also.contains(&class))
    }

    /// The architecture that a file with these tensors has.
    pub(crate) fn find(gguf: &str, tensors: &[TensorInfo]) -> Result<&'static Self, String> {
        let marked = |mark| tensors.iter().any(|tensor| tensor.name == format!("blk.0.{mark}"));
        let is = |known: &&Self| known.gguf == gguf && known.mark.is_none_or(marked);
        Self::all().find(is).ok_or_else(|| {
            let known = Self::all().filter(|known| known.mark.is_none());
            let known: Vec<_> = known.map(|known| known.gguf).collect();
            let hint = refused::reason(gguf).map_or_else(String::new, |why| format!(" ({why})"));
            format!(
                "the architecture `{gguf}` is not supported in GGUF{hint}; supported are {}",
                known.join(", ")
            )
        })
    }

    /// Where a tensor belongs, `None` if this architecture doesn't have it.
    pub(crate) fn place(&self, gguf: &str) -> Option<Place> {
        let (part, ending) = ended(gguf);
        let Outer { embedding, layers, norm, head } = self.outer;
        let Some(rest) = part.strip_prefix("blk.") else {
            let name = match part {
                "token_embd" => embedding,
                "output_norm" => norm,
                "output" => head,
                _ => self.around.iter().find(|(known, _)| *known == part)?.1,
            };
            let names = match (name.strip_suffix('!'), ending) {
                (Some(name), _) => vec![name.to_owned()],
                // A factor of a whole matrix, or a name without an ending.
                (None, "scale" | "") => return None,
                (None, ending) => vec![format!("{name}.{ending}")],
            };
            return Some(Place { layer: None, part: part.to_owned(), names });
        };
        let (layer, part) = rest.split_once('.')?;
        let layer: usize = layer.parse().ok()?;
        let names = self.names_in_layer(part, ending, &format!("{layers}.{layer}"), &[])?;
        Some(Place { layer: Some(layer), part: part.to_owned(), names })
    }

    /// Where a tensor of the `head` that drafts belongs, whose layer is the one behind the last; `None`
    /// if it has no such tensor.
    pub(crate) fn place_in_head(&self, gguf: &str, head: &DraftHead) -> Option<Place> {
        let (part, ending) = ended(gguf);
        let (index, part) = part.strip_prefix("blk.")?.split_once('.')?;
        let layer: usize = index.parse().ok()?;
        let behind = || format!("{}.{layer}", self.outer.layers);
        let root = head.layer.map_or_else(behind, str::to_owned);
        let names = self.names_in_layer(part, ending, &root, head.parts)?;
        Some(Place { layer: Some(layer), part: part.to_owned(), names })
    }

    /// The names of a layer's part, below `root` but for those of `more` parts that are whole.
    fn names_in_layer(
        &self,
        part: &str,
        ending: &str,
        root: &str,
        more: &[Part],
    ) -> Option<Vec<String>> {
        let (pattern, number) = match ending {
            "scale" => (format!("{part}.scale"), None),
            _ => numbered(part),
        };
        let known = |(known, name): &Part| (*known == pattern).then_some(*name);
        let parts = self.blocks.iter().flat_map(|parts| parts.iter());
        // What a head has besides may be called as in layers of the model.
        let name = more.iter().chain(parts).find_map(known)?;
        let name = number.map_or_else(|| name.to_owned(), |number| name.replace('#', number));
        // Numbers that no matrix is multiplied with may have no ending.
        if ending.is_empty() && !name.ends_with('!') {
            return None;
        }
        let below = |name: &str| {
            name.strip_prefix('.').map_or_else(|| format!("{root}.{name}"), str::to_owned)
        };
        let whole = |name: &str| match name.strip_suffix('!') {
            Some(name) => below(name),
            None => format!("{}.{ending}", below(name)),
        };
        Some(name.split('|').map(whole).collect())
    }
}

/// What stands before `.weight`, `.bias` or `.scale`, and which of them; nothing of other names.
fn ended(gguf: &str) -> (&str, &str) {
    match gguf.rsplit_once('.') {
        Some((part, ending @ ("weight" | "bias" | "scale"))) => (part, ending),
        _ => (gguf, ""),
    }
}

/// `ffn_up.7` is `ffn_up.#` and `7`.
fn numbered(part: &str) -> (String, Option<&str>) {
    match part.rsplit_once('.') {
        Some((name, number)) if number.parse::<u16>().is_ok() => {
            (format!("{name}.#"), Some(number))
        }
        _ => (part.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_of_every_architecture_is_reached() {
        for architecture in Architecture::all() {
            let parts = architecture.blocks.iter().flat_map(|parts| parts.iter());
            let parts: Vec<_> = parts.map(|(gguf, _)| gguf.replace('#', "3")).collect();
            let distinct: BTreeSet<_> = parts.iter().collect();
            assert_eq!(distinct.len(), parts.len(), "{}", architecture.gguf);
            let outer = ["token_embd", "output_norm", "output"].map(|part| format!("{part}.bias"));
            let outer = outer.into_iter();
            let around = architecture.around.iter().map(|(part, _)| format!("{part}.weight"));
            let inner = parts.iter().map(|part| match part.rsplit_once('.') {
                Some((_, "scale")) => format!("blk.12.{part}"),
                _ => format!("blk.12.{part}.weight"),
            });
            for gguf in inner.chain(outer).chain(around) {
                let place = architecture.place(&gguf).unwrap();
                assert!(!place.names.is_empty());
                assert!(
                    place.names.iter().all(|name| !name.contains(['#', '|', '!'])),
                    "{place:?}"
                );
            }
        }
    }

    #[test]
    fn maps_names_layer_by_layer() {
        let qwen3 = Architecture::find("qwen3", &[]).unwrap();
        let names = |gguf| qwen3.place(gguf).map(|place| place.names);
        let layer = |rest: &str| Some(vec![format!("model.layers.27.{rest}")]);
        assert_eq!(names("blk.27.attn_q.weight"), layer("self_attn.q_proj.weight"));
        assert_eq!(names("blk.27.attn_k.bias"), layer("self_attn.k_proj.bias"));
        assert_eq!(names("blk.27.attn_q_norm.weight"), layer("self_attn.q_norm.weight"));
        assert_eq!(names("blk.27.ffn_norm.weight"), layer("post_attention_layernorm.weight"));
        for unknown in ["blk.x.attn_q.weight", "blk.1.ffn_gate_exps.weight", "blk.1.attn_q.scale"] {
            assert_eq!(names(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn names_of_experts_and_of_joined_tensors_are_spelled_out() {
        let names = |architecture, gguf| {
            Architecture::find(architecture, &[]).unwrap().place(gguf).unwrap().names.join(" ")
        };
        assert_eq!(
            names("llama", "blk.3.ffn_up.5.weight"),
            "model.layers.3.block_sparse_moe.experts.5.w3.weight"
        );
        assert_eq!(
            names("qwen3moe", "blk.3.ffn_gate_up_exps.weight"),
            "model.layers.3.mlp.experts.*.gate_proj.weight \
             model.layers.3.mlp.experts.*.up_proj.weight"
        );
        assert_eq!(
            names("phi2", "blk.0.attn_qkv.bias"),
            "model.layers.0.self_attn.q_proj.bias model.layers.0.self_attn.k_proj.bias \
             model.layers.0.self_attn.v_proj.bias"
        );
        assert_eq!(
            names("dots1", "blk.1.exp_probs_b.bias"),
            "model.layers.1.mlp.gate.e_score_correction_bias"
        );
        assert_eq!(names("gptneox", "token_embd.weight"), "gpt_neox.embed_in.weight");
    }

    #[test]
    fn names_of_heads_are_those_of_their_checkpoints() {
        let names = |architecture, gguf| {
            let architecture = Architecture::find(architecture, &[]).unwrap();
            let head = architecture.draft_head.unwrap();
            architecture.place_in_head(gguf, &head).map(|place| place.names.join(" "))
        };
        let is = |name: &str| Some(name.to_owned());
        let [fc, q] = ["blk.46.nextn.eh_proj.weight", "blk.46.attn_q.weight"];
        assert_eq!(names("glm4moe", fc), is("model.layers.46.eh_proj.weight"));
        assert_eq!(names("glm4moe", q), is("model.layers.46.self_attn.q_proj.weight"));
        assert_eq!(names("qwen35", fc), is("mtp.fc.weight"));
        assert_eq!(names("qwen35", q), is("mtp.layers.0.self_attn.q_proj.weight"));
        assert_eq!(names("deepseek2", "blk.61.nextn.other.weight"), None);
    }

    #[test]
    fn unknown_architectures_are_named() {
        let error = Architecture::find("rwkv7", &[]).unwrap_err();
        assert!(error.contains("`rwkv7`") && error.contains("llama, mistral3, qwen2"), "{error}");
        assert!(Architecture::find("clip", &[]).unwrap_err().contains("vision"));
    }
}
