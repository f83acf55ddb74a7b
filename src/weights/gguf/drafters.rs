//! Rows of the table of architectures that draft for another model: EAGLE-3, DFlash, and DSpark, which files
//! call DFlash too.

use super::architecture::{Architecture, Outer, Part};
use super::families::{Config, Done, set, set_class};
use super::keys::ModelKeys;
use super::parts::{ATTENTION, GATED_MLP, HEAD_NORMS, LLAMA, PRE_NORMS};
use super::value::Value;

const OUTER: Outer =
    Outer { embedding: "embed_tokens", layers: "layers", norm: "norm", head: "lm_head" };

/// The norms of a layer of EAGLE-3.
const EAGLE_NORMS: &[Part] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_norm_2", "hidden_norm"),
    ("ffn_norm", "post_attention_layernorm"),
];

/// Which of the model's tokens each of a drafter's own is. Files have the ids themselves, checkpoints how
/// much higher they are.
pub(super) const KNOWN_TOKENS: &str = "d2t";

/// The rows.
pub(super) const DRAFTERS: &[Architecture] = &[
    Architecture {
        gguf: "eagle3",
        class: "LlamaForCausalLMEagle3",
        outer: OUTER,
        around: &[("fc", "fc"), ("enc.output_norm", "input_norm"), (KNOWN_TOKENS, "d2t!")],
        blocks: &[ATTENTION, EAGLE_NORMS, GATED_MLP],
        interleaved_rope: true,
        more: eagle,
        ..LLAMA
    },
    Architecture {
        gguf: "dflash",
        class: "DFlashDraftModel",
        also: &["Qwen3DSparkModel"],
        model_type: "qwen3",
        outer: OUTER,
        around: &[
            ("fc", "fc"),
            ("enc.output_norm", "hidden_norm"),
            (KNOWN_TOKENS, "d2t!"),
            ("markov_w1", "markov_head.markov_w1"),
            ("markov_w2", "markov_head.markov_w2"),
            ("conf_proj", "confidence_head.proj"),
        ],
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, GATED_MLP],
        more: blocks,
        ..LLAMA
    },
];

/// Whether files of this architecture may lack what their model has.
pub(super) fn shares_tokens(gguf: &str) -> bool {
    DRAFTERS.iter().any(|row| row.gguf == gguf)
}

/// The layers of the model whose inputs it sees, and how many of its tokens it knows.
fn set_model(keys: &ModelKeys<'_>, config: &mut Config, layers: &str) -> Done {
    let key = keys.key("target_layers");
    let ids = keys.metadata().array(&key, "an array of layers", Value::as_u64)?;
    set(config, layers, ids.ok_or_else(|| format!("metadata `{key}` is missing"))?);
    if let Some(known) = keys.tensor(KNOWN_TOKENS).and_then(|known| known.shape.first()) {
        set(config, "draft_vocab_size", *known);
    }
    Ok(())
}

fn eagle(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_model(keys, config, "eagle_aux_hidden_state_layer_ids")?;
    set(config, "target_hidden_size", keys.required("target_hidden_size")?);
    for end in ["norm_before_residual", "norm_before_fc"] {
        set(config, end, keys.bool(end)?.unwrap_or(false));
    }
    Ok(())
}

fn blocks(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_model(keys, config, "aux_hidden_state_layer_ids")?;
    let seen = keys.tensor("fc.weight").and_then(|projection| projection.shape.last().copied());
    let layers = config["aux_hidden_state_layer_ids"].as_array().map_or(0, Vec::len);
    if let Some(each) = seen.and_then(|seen| seen.checked_div(layers)) {
        set(config, "target_hidden_size", each);
    }
    set(config, "block_size", keys.required("block_size")?);
    let mask = keys.metadata().u64("tokenizer.ggml.mask_token_id")?;
    set(config, "mask_token_id", mask.ok_or("metadata `tokenizer.ggml.mask_token_id` is missing")?);
    if let Some(causal) = keys.bool("attention.causal")? {
        set(config, "is_causal", causal);
    }
    // Of models whose tokens have positions along several axes the drafter sees the first one.
    let key = keys.key("rope.dimension_sections");
    let sections = keys.metadata().array(&key, "an array of counts", Value::as_u64)?;
    if sections.is_some_and(|all| all.iter().skip(1).any(|count| *count != 0)) {
        return Err(format!("metadata `{key}` has more than one axis, which is not supported"));
    }
    let Some(before) = keys.tensor("markov_w1.weight") else { return Ok(()) };
    set_class(config, "Qwen3DSparkModel", "qwen3");
    set(config, "markov_rank", before.shape.last().copied().unwrap_or(0));
    set(config, "sample_from_anchor", keys.bool("sample_from_anchor")?.unwrap_or(true));
    Ok(())
}
