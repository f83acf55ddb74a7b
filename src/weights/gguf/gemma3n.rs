//! Gemma 3n's files: streams of hidden states, a path of low rank beside attention, and layers whose gates
//! are mostly zero.

use super::architecture::{Architecture, Part};
use super::families::{Config, Done, set, set_softcap};
use super::keys::ModelKeys;
use super::parts::{ATTENTION, GATED_MLP, HEAD_NORMS, LLAMA, SANDWICH_NORMS};
use super::value::Value;

/// What a layer has beside attention and its feed-forward part.
const STREAMS: &[Part] = &[
    ("altup_correct_coef", "altup.correction_coefs"),
    ("altup_correct_scale", "altup.correct_output_scale!"),
    ("altup_predict_coef", "altup.prediction_coefs"),
    ("altup_router", "altup.modality_router"),
    ("altup_router_norm", "altup.router_norm"),
    ("laurel_l", "laurel.linear_left"),
    ("laurel_r", "laurel.linear_right"),
    ("laurel_post_norm", "laurel.post_laurel_norm"),
    ("inp_gate", "per_layer_input_gate"),
    ("proj", "per_layer_projection"),
    ("post_norm", "post_per_layer_input_norm"),
];

/// The row.
pub(super) const GEMMA3N: &[Architecture] = &[Architecture {
    gguf: "gemma3n",
    class: "Gemma3nForCausalLM",
    also: &["Gemma3nForConditionalGeneration"],
    model_type: "gemma3n_text",
    around: &[
        ("altup_proj", "model.altup_projections.*"),
        ("altup_unembd_proj", "model.altup_unembed_projections.*"),
        ("per_layer_token_embd", "model.embed_tokens_per_layer"),
        ("per_layer_model_proj", "model.per_layer_model_projection"),
        ("per_layer_proj_norm", "model.per_layer_projection_norm"),
    ],
    blocks: &[ATTENTION, HEAD_NORMS, SANDWICH_NORMS, GATED_MLP, STREAMS],
    activation: "gelu_pytorch_tanh",
    more: config,
    ..LLAMA
}];

fn config(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    // What the file doesn't say is the class's default.
    set_softcap(keys, config, "final_logit_softcapping")?;
    set(config, "num_kv_shared_layers", keys.count("attention.shared_kv_layers")?.unwrap_or(0));
    set(config, "hidden_size_per_layer_input", keys.required("embedding_length_per_layer_input")?);
    if let Some(table) = keys.tensor("per_layer_token_embd.weight") {
        set(config, "vocab_size_per_layer_input", table.shape[0]);
    }
    set(config, "altup_num_inputs", keys.required("altup.num_inputs")?);
    set(config, "altup_active_idx", keys.count("altup.active_idx")?.unwrap_or(0));
    set(config, "altup_correct_scale", keys.has("blk.0.altup_correct_scale.weight"));
    let rank = keys.tensor("blk.0.laurel_l.weight").and_then(|down| down.shape.first());
    set(config, "laurel_rank", *rank.ok_or("tensor `blk.0.laurel_l.weight` is missing")?);
    let end = "feed_forward_length";
    if let Some(widths) = keys.per_layer(end, Value::as_u64)? {
        set(config, "intermediate_size", widths);
    }
    // Files have the thresholds, where configurations have the shares of gates that are below them.
    let end = "activation_sparsity_scale";
    let Some(thresholds) = keys.per_layer(end, Value::as_f64)? else {
        return Err(format!("metadata `{}` is missing or no array", keys.key(end)));
    };
    if let Some(bad) = thresholds.iter().find(|number| number.is_nan() || **number == f64::INFINITY)
    {
        return Err(format!("metadata `{}` has {bad}, expected numbers", keys.key(end)));
    }
    // Without a threshold: next to nothing is below minus infinity.
    let thresholds = thresholds.into_iter().map(|number| number.is_finite().then_some(number));
    set(config, "gate_thresholds", thresholds.collect::<Vec<_>>());
    Ok(())
}
