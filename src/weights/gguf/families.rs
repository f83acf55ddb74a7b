//! What the configurations of single architectures have beyond the common fields.

use serde_json::{Map, Value as Json, json};

use super::keys::ModelKeys;
use super::value::Value;

pub(super) type Config = Map<String, Json>;
pub(super) type Done = Result<(), String>;

/// Of all kinds of Granite.
pub(super) const GRANITE_NUMBERS: &[(&str, &str)] = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];

/// `expert_gating_func` of scores through a softmax, and each through a sigmoid.
pub(super) const SOFTMAX: u64 = 1;
pub(super) const SIGMOID: u64 = 2;
/// The gating function's number for a softmax over the chosen scores.
const SOFTMAX_OF_CHOSEN: u64 = 3;

pub(super) fn set(config: &mut Config, name: &str, value: impl Into<Json>) {
    config.insert(name.to_owned(), value.into());
}

pub(super) fn set_class(config: &mut Config, class: &str, model_type: &str) {
    set(config, "architectures", vec![class]);
    set(config, "model_type", model_type);
}

/// Counts of experts and the elements inside of one, in the most common words.
pub(super) fn set_experts(keys: &ModelKeys<'_>, config: &mut Config, score: u64) -> Done {
    let gating = keys.count("expert_gating_func")?.unwrap_or(0);
    if gating != 0 && gating != score {
        return Err(format!(
            "metadata `{}` is {gating}, expected {score} in this architecture",
            keys.key("expert_gating_func")
        ));
    }
    set(config, "num_experts", keys.required("expert_count")?);
    set(config, "num_experts_per_tok", keys.required("expert_used_count")?);
    if let Some(inner) = expert_inner(keys)? {
        set(config, "moe_intermediate_size", inner);
    }
    Ok(())
}

/// Elements inside of an expert.
fn expert_inner(keys: &ModelKeys<'_>) -> Result<Option<u64>, String> {
    if let Some(inner) = keys.count("expert_feed_forward_length")?.filter(|inner| *inner > 0) {
        return Ok(Some(inner));
    }
    // Files of the format's first years don't say it.
    let down = keys.tensors().iter().find(|tensor| tensor.name.ends_with(".ffn_down_exps.weight"));
    Ok(down.and_then(|down| down.shape.last()).map(|inner| *inner as u64))
}

/// A llama with a sliding window is a Mistral, one with experts a Mixtral.
pub(super) fn llama(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if keys.count("expert_count")?.unwrap_or(0) > 0 {
        set_class(config, "MixtralForCausalLM", "mixtral");
        set_experts(keys, config, SOFTMAX)
    } else if !config["sliding_window"].is_null() {
        set_class(config, "MistralForCausalLM", "mistral");
        Ok(())
    } else {
        if keys.has("blk.0.attn_q.bias") && !keys.has("blk.0.attn_output.bias") {
            set_class(config, "InternLM3ForCausalLM", "internlm3");
            set(config, "qkv_bias", true);
            set(config, "bias", false);
        }
        Ok(())
    }
}

/// Mistral Small 3, and Ministral 3 whose queries grow with their position.
pub(super) fn mistral3(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let growth = keys.float("attention.temperature_scale")?.filter(|beta| *beta != 0.0);
    let magnitude = keys.float("rope.scaling.yarn_log_multiplier")?.filter(|scale| *scale != 0.0);
    let Some(beta) = growth else {
        return match magnitude {
            Some(_) => Err("`rope.scaling.yarn_log_multiplier` without \
                            `attention.temperature_scale` is not supported"
                .to_owned()),
            None => Ok(()),
        };
    };
    set_class(config, "Ministral3ForCausalLM", "ministral3");
    let Some(scaling) = config.get_mut("rope_scaling").and_then(Json::as_object_mut) else {
        return Err("`attention.temperature_scale` without a rope scaling of type yarn".to_owned());
    };
    set(scaling, "llama_4_scaling_beta", beta);
    if let Some(magnitude) = magnitude {
        set(scaling, "mscale", 1.0);
        set(scaling, "mscale_all_dim", magnitude);
    }
    Ok(())
}

/// Qwen: a window is in use if there is one.
pub(super) fn qwen(config: &mut Config) {
    if !config["sliding_window"].is_null() {
        set(config, "use_sliding_window", true);
        set(config, "max_window_layers", 0);
    }
}

pub(super) fn qwen2_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    qwen(config);
    set_experts(keys, config, SOFTMAX)?;
    let shared = keys.count("expert_shared_feed_forward_length")?.filter(|inner| *inner > 0);
    let shared = match shared {
        Some(inner) => inner,
        None => keys.required("feed_forward_length")?,
    };
    set(config, "shared_expert_intermediate_size", shared);
    set(config, "qkv_bias", keys.has("blk.0.attn_q.bias"));
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(false));
    Ok(())
}

pub(super) fn qwen3_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    qwen(config);
    set_experts(keys, config, SOFTMAX)?;
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(true));
    Ok(())
}

/// What scores are divided by the root of: of the largest model, whose layers are so many, the
/// elements of a hidden state for each head, else those of a head.
fn set_query_scale(keys: &ModelKeys<'_>, config: &mut Config, largest: usize) -> Done {
    let heads = keys.heads()?;
    let scalar = if keys.layers()? == largest {
        keys.required("embedding_length")? / heads.query as u64
    } else {
        heads.dim as u64
    };
    set(config, "query_pre_attn_scalar", scalar);
    Ok(())
}

pub(super) fn set_softcap(keys: &ModelKeys<'_>, config: &mut Config, name: &'static str) -> Done {
    if let Some(cap) = keys.float(name)? {
        set(config, name, if cap > 0.0 { cap.into() } else { Json::Null });
    }
    Ok(())
}

pub(super) fn gemma2(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if config["sliding_window"].is_null() {
        // The only one there has been.
        set(config, "sliding_window", 4096);
    }
    set_query_scale(keys, config, 46)?;
    set_softcap(keys, config, "attn_logit_softcapping")?;
    set_softcap(keys, config, "final_logit_softcapping")
}

pub(super) fn gemma3(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if config["sliding_window"].is_null() {
        let full = vec!["full_attention"; keys.layers()?];
        set(config, "layer_types", full);
    }
    set_query_scale(keys, config, 62)?;
    set_softcap(keys, config, "final_logit_softcapping")
}

/// `use_bias`: one switch for all biases.
pub(super) fn one_bias(keys: &ModelKeys<'_>, config: &mut Config) {
    set(config, "use_bias", keys.has("blk.0.attn_q.bias"));
}

pub(super) fn stablelm(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    // Conversion takes another default than the model for this key; the tensors tell.
    keys.bool("use_parallel_residual")?;
    set(config, "use_parallel_residual", !keys.has("blk.0.ffn_norm.weight"));
    set(config, "use_qkv_bias", keys.has("blk.0.attn_q.bias"));
    set(config, "qk_layernorm", keys.has("blk.0.attn_q_norm.weight"));
    Ok(())
}

pub(super) fn gpt_neox(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let parallel = keys.bool("use_parallel_residual")?.unwrap_or(true);
    set(config, "use_parallel_residual", parallel);
    set(config, "attention_bias", keys.has("blk.0.attn_qkv.bias"));
    Ok(())
}

pub(super) fn command_r(keys: &ModelKeys<'_>, config: &mut Config) {
    set(config, "use_qk_norm", keys.has("blk.0.attn_q_norm.weight"));
}

/// OLMo's norms have one epsilon that no configuration changes.
pub(super) fn olmo(keys: &ModelKeys<'_>, _: &mut Config) -> Done {
    let end = "attention.layer_norm_epsilon";
    match keys.required_float(end)? {
        eps if (eps - 1e-5).abs() < 1e-9 => Ok(()),
        eps => Err(format!("metadata `{}` is {eps}, expected 1e-5", keys.key(end))),
    }
}

/// OLMo 2, and OLMo 3 which has windows.
pub(super) fn olmo2(config: &mut Config) {
    if !config["sliding_window"].is_null() {
        set_class(config, "Olmo3ForCausalLM", "olmo3");
    }
}

pub(super) fn olmoe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_experts(keys, config, SOFTMAX)?;
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(false));
    Ok(())
}

/// GLM: biases of queries, keys and values, which old files have in one tensor.
pub(super) fn glm(keys: &ModelKeys<'_>, config: &mut Config) {
    let joined = keys.has("blk.0.attn_qkv.bias");
    set(config, "attention_bias", joined || keys.has("blk.0.attn_q.bias"));
}

/// Experts that each get the sigmoid of a score, behind dense layers.
pub(super) fn sigmoid_experts(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    experts_behind_dense(keys, config, SIGMOID)
}

/// Experts behind dense layers, perhaps in groups and beside one that all tokens go through.
pub(super) fn experts_behind_dense(keys: &ModelKeys<'_>, config: &mut Config, score: u64) -> Done {
    set_experts(keys, config, score)?;
    set(config, "n_group", keys.count("expert_group_count")?.unwrap_or(1).max(1));
    set(config, "topk_group", keys.count("expert_group_used_count")?.unwrap_or(1).max(1));
    set(config, "first_k_dense_replace", keys.count("leading_dense_block_count")?.unwrap_or(0));
    set(config, "n_shared_experts", keys.count("expert_shared_count")?.unwrap_or(0));
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(false));
    let scale = keys.float("expert_weights_scale")?.filter(|scale| *scale != 0.0);
    set(config, "routed_scaling_factor", scale.unwrap_or(1.0));
    Ok(())
}

pub(super) fn glm4_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    sigmoid_experts(keys, config)?;
    set(config, "use_qk_norm", keys.has("blk.0.attn_q_norm.weight"));
    Ok(())
}

pub(super) fn granite(keys: &ModelKeys<'_>, _: &mut Config) -> Done {
    let end = "rope.scaling.finetuned";
    match keys.bool(end)? {
        Some(false) => Err(format!(
            "metadata `{}` is off: a Granite without a rotary embedding is not supported",
            keys.key(end)
        )),
        _ => Ok(()),
    }
}

pub(super) fn granite_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    granite(keys, config)?;
    set_experts(keys, config, SOFTMAX)?;
    if let Some(shared) = keys.count("expert_shared_feed_forward_length")?.filter(|n| *n > 0) {
        set_class(config, "GraniteMoeSharedForCausalLM", "granitemoeshared");
        set(config, "shared_intermediate_size", shared);
    }
    // Checkpoints have all experts of a layer in two tensors, files in three.
    set(config, "experts_apart", true);
    Ok(())
}

/// MiniCPM, whose first files leave out multipliers that all models had alike.
pub(super) fn minicpm(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    let [layers, hidden] = [keys.layers()? as f64, keys.required("embedding_length")? as f64];
    let given = |end| Ok::<_, String>(keys.float(end)?.filter(|scale| *scale != 0.0));
    set(config, "scale_emb", given("embedding_scale")?.unwrap_or(12.0));
    let depth = given("residual_scale")?.map(|scale| scale * layers.sqrt());
    set(config, "scale_depth", depth.unwrap_or(1.4));
    let width = given("logit_scale")?.map(|scale| hidden / scale);
    set(config, "dim_model_base", width.unwrap_or(256.0));
    Ok(())
}

pub(super) fn seed_oss(keys: &ModelKeys<'_>, config: &mut Config) {
    set(config, "attention_out_bias", keys.has("blk.0.attn_output.bias"));
}

pub(super) fn ernie_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    one_bias(keys, config);
    set_experts(keys, config, SOFTMAX)?;
    set(config, "moe_k", keys.required("expert_used_count")?);
    set(config, "moe_layer_interval", keys.count("interleave_moe_layer_step")?.unwrap_or(1));
    set(config, "moe_layer_start_index", keys.count("leading_dense_block_count")?.unwrap_or(0));
    set(config, "moe_num_shared_experts", keys.count("expert_shared_count")?.unwrap_or(0));
    Ok(())
}

/// Falcon: heads are always in groups, of which the first models have one.
pub(super) fn falcon(keys: &ModelKeys<'_>, config: &mut Config) {
    set(config, "new_decoder_architecture", true);
    let norms = if keys.has("blk.0.attn_norm_2.weight") { 2 } else { 1 };
    set(config, "num_ln_in_parallel_attn", norms);
    set(config, "bias", keys.has("blk.0.attn_qkv.bias"));
}

/// GPT-2, whose matrices conversion transposes.
pub(super) fn gpt2(config: &mut Config) {
    set(config, "transposed_matrices", false);
}

pub(super) fn mpt(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if keys.has("blk.0.attn_qkv.bias") || keys.has("position_embd.weight") {
        return Err("an MPT with biases or learned positions is not supported".to_owned());
    }
    let slope = keys.required_float("attention.max_alibi_bias")?;
    if slope <= 0.0 {
        let key = keys.key("attention.max_alibi_bias");
        return Err(format!("metadata `{key}` is {slope}, expected more than 0"));
    }
    let clip = keys.float("attention.clamp_kqv")?.filter(|bound| *bound != 0.0);
    set(config, "attn_config", json!({"alibi": true, "alibi_bias_max": slope, "clip_qkv": clip}));
    Ok(())
}

/// Experts that checkpoints have in two tensors and files in three, all as wide as this.
pub(super) fn set_experts_apart(keys: &ModelKeys<'_>, config: &mut Config, score: u64) -> Done {
    set_experts(keys, config, score)?;
    if let Some(inner) = config.get("moe_intermediate_size").cloned() {
        set(config, "intermediate_size", inner);
    }
    set(config, "experts_apart", true);
    Ok(())
}

pub(super) fn gpt_oss(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    match keys.count("expert_gating_func")? {
        None | Some(0 | SOFTMAX_OF_CHOSEN) => {}
        // Softmax over all of them, divided by the sum of the chosen ones, is the same.
        Some(SOFTMAX) if keys.bool("expert_weights_norm")? == Some(true) => {}
        Some(other) => {
            let key = keys.key("expert_gating_func");
            return Err(format!("metadata `{key}` is {other}, expected {SOFTMAX_OF_CHOSEN}"));
        }
    }
    set(config, "num_experts", keys.required("expert_count")?);
    set(config, "num_experts_per_tok", keys.required("expert_used_count")?);
    if let Some(inner) = expert_inner(keys)? {
        set(config, "intermediate_size", inner);
    }
    set(config, "experts_apart", true);
    // What files don't say: frequencies between those that are stretched and those that are not
    // are not rounded.
    if let Some(scaling) = config.get_mut("rope_scaling").and_then(Json::as_object_mut) {
        set(scaling, "truncate", false);
    }
    Ok(())
}

/// Llama 4, whose files leave out what all published models have alike.
pub(super) fn llama4(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let end = "attention.sliding_window";
    if keys.count(end)?.is_some() {
        let key = keys.key(end);
        return Err(format!("metadata `{key}` is set: chunks of other sizes are not supported"));
    }
    let dense = keys.required("feed_forward_length")?;
    set_experts_apart(keys, config, SIGMOID)?;
    set(config, "intermediate_size_mlp", dense);
    let step = keys.count("interleave_moe_layer_step")?.unwrap_or(1);
    set(config, "interleave_moe_layer_step", step);
    // The large one alone doesn't normalize heads.
    set(config, "use_qk_norm", keys.required("expert_count")? != 128);
    Ok(())
}

pub(super) fn minimax_m2(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_experts_apart(keys, config, SIGMOID)
}

/// Baichuan, whose larger models have biases by distance instead of a rotary embedding; their number of
/// layers tells.
pub(super) fn baichuan(keys: &ModelKeys<'_>, _: &mut Config) -> Done {
    match keys.layers()? {
        40 => Err("a Baichuan of 40 layers has ALiBi instead of a rotary embedding, which is not \
                   supported"
            .to_owned()),
        _ => Ok(()),
    }
}

/// Nanbeige, whose later models go through their layers several times.
pub(super) fn nanbeige(keys: &ModelKeys<'_>, _: &mut Config) -> Done {
    match keys.count("num_loops")?.unwrap_or(1) {
        0 | 1 => Ok(()),
        loops => Err(format!(
            "metadata `{}` is {loops}: layers that are gone through again are not supported",
            keys.key("num_loops")
        )),
    }
}

/// Pangu Embedded, whose projections of attention have biases all or none.
pub(super) fn pangu(keys: &ModelKeys<'_>, _: &mut Config) -> Done {
    let has = ["q", "output"].map(|part| keys.has(&format!("blk.0.attn_{part}.bias")));
    if has[0] != has[1] {
        return Err("biases of queries without those of outputs are not supported".to_owned());
    }
    Ok(())
}

/// Hunyuan-VL, of which text is read, where all positions of a token are the same.
pub(super) fn hunyuan_vl(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    keys.key("rope.dimension_sections");
    let Some(alpha) = keys.float("rope.scaling.alpha")?.filter(|alpha| *alpha > 0.0) else {
        return Ok(());
    };
    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^52")]
    let dim = keys.heads()?.rotary as f64;
    let theta = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
    set(config, "rope_theta", theta * alpha.powf(dim / (dim - 2.0)));
    Ok(())
}

/// A tensor of one number for each layer.
pub(super) struct LayerNumbers {
    /// Its name below a layer.
    pub(super) name: &'static str,
    pub(super) shape: &'static [usize],
    pub(super) values: Vec<f32>,
}

/// The numbers of a learned activation, which are tensors of checkpoints and metadata of files.
pub(super) fn activation_numbers(keys: &ModelKeys<'_>) -> Result<Vec<LayerNumbers>, String> {
    let numbers: [(&str, &str, &[usize]); 3] = [
        ("xielu.alpha_p", "mlp.act_fn.alpha_p", &[1]),
        ("xielu.alpha_n", "mlp.act_fn.alpha_n", &[1]),
        ("xielu.beta", "mlp.act_fn.beta", &[]),
    ];
    let layers = keys.layers()?;
    let read = |(key, name, shape)| {
        let values = match keys.metadata().get(key) {
            Some(Value::Array(array)) => array.collect(number).filter(|all| all.len() >= layers),
            Some(value) => number(value).map(|value| vec![value; layers]),
            None => None,
        };
        let values = values.ok_or_else(|| {
            format!("metadata `{key}` is missing or no {layers} finite numbers, one for each layer")
        })?;
        Ok(LayerNumbers { name, shape, values })
    };
    numbers.into_iter().map(read).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "numbers are stored as f32")]
fn number(value: &Value<'_>) -> Option<f32> {
    value.as_f64().filter(|value| value.is_finite()).map(|value| value as f32)
}
