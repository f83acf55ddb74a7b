//! The fields of each kind of projector: what its metadata and its tensors' shapes say, and what those of
//! published models are where they say nothing.

use serde_json::{Value as Json, json};

use super::super::value::Value;
use super::fields::{Added, Facts, set};

/// The layers of the tower whose features go to layers of the decoder.
pub(super) fn deepstack_layers(facts: &Facts<'_>) -> Result<Vec<u64>, String> {
    let marks = facts.list("is_deepstack_layers", Value::as_bool)?.unwrap_or_default();
    Ok((0..).zip(marks).filter(|(_, is)| *is).map(|(layer, _)| layer).collect())
}

/// Fewest and most tokens of a picture where the file doesn't say its pixels.
const QWEN_TOKENS: [u64; 2] = [8, 4096];

/// What Qwen's towers share.
fn qwen(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let (patch, merge) = (facts.required("patch_size")?, facts.count_or("spatial_merge_size", 2)?);
    let vision = &mut added.vision;
    set(vision, "depth", facts.required("block_count")?);
    set(vision, "num_heads", facts.required("attention.head_count")?);
    set(vision, "spatial_merge_size", merge);
    set(vision, "out_hidden_size", facts.width());
    let pixels = patch.saturating_mul(merge).saturating_pow(2);
    let [least, most] = QWEN_TOKENS.map(|tokens| pixels.saturating_mul(tokens));
    let processor = &mut added.processor;
    set(processor, "patch_size", patch);
    set(processor, "merge_size", merge);
    set(processor, "min_pixels", facts.count_or("image_min_pixels", least)?);
    set(processor, "max_pixels", facts.count_or("image_max_pixels", most)?);
    set(&mut added.config, "image_token_id", facts.token(&["<|image_pad|>"])?);
    Ok(())
}

pub(super) fn qwen2_vl(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    qwen(facts, added)?;
    let hidden = facts.required("embedding_length")?;
    let inner = added.vision.get("intermediate_size").and_then(Json::as_u64).unwrap_or(0);
    let vision = &mut added.vision;
    set(vision, "embed_dim", hidden);
    set(vision, "hidden_size", facts.width());
    set(vision, "mlp_ratio", inner / hidden);
    Ok(())
}

pub(super) fn qwen2_5_vl(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    qwen(facts, added)?;
    let (layers, period) = (facts.required("block_count")?, facts.required("n_wa_pattern")?);
    let whole: Vec<u64> = (0..layers).filter(|layer| (layer + 1) % period == 0).collect();
    set(&mut added.vision, "fullatt_block_indexes", whole);
    set(&mut added.vision, "window_size", facts.count_or("window_size", 112)?);
    Ok(())
}

pub(super) fn qwen3_vl(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    qwen(facts, added)?;
    let positions = facts.shape("v.position_embd.weight").and_then(|shape| shape.first());
    let positions = positions.ok_or("tensor `v.position_embd.weight` is missing")?;
    set(&mut added.vision, "num_position_embeddings", *positions);
    set(&mut added.vision, "deepstack_visual_indexes", deepstack_layers(facts)?);
    Ok(())
}

pub(super) fn gemma3(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let (size, patch) = (facts.required("image_size")?, facts.required("patch_size")?);
    let across = size / patch / facts.count_or("projector.scale_factor", 4)?;
    set(&mut added.config, "mm_tokens_per_image", across.saturating_mul(across));
    set(&mut added.processor, "size", json!({"height": size, "width": size}));
    // Files have no row for the token that stands for a picture's; any that no text has will do.
    let image = facts.token(&["<image_soft_token>", "<unused98>", "<unused0>"])?;
    set(&mut added.config, "image_token_index", image);
    set(&mut added.config, "boi_token_index", facts.token(&["<start_of_image>"])?);
    set(&mut added.config, "eoi_token_index", facts.token(&["<end_of_image>"])?);
    Ok(())
}

/// What both kinds of Gemma 4 share.
pub(super) fn gemma4(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let merge = facts.count_or("projector.scale_factor", 3)?;
    let (hidden, heads) =
        (facts.required("embedding_length")?, facts.count_or("attention.head_count", 1)?);
    let vision = &mut added.vision;
    set(vision, "num_key_value_heads", heads);
    set(vision, "head_dim", hidden / heads);
    set(vision, "pooling_kernel_size", merge);
    set(vision, "standardize", facts.has("v.std_bias"));
    if let Some(eps) = vision.get("layer_norm_eps").cloned() {
        set(vision, "rms_norm_eps", eps);
    }
    if let Some(&[_, side, _]) = facts.shape("v.position_embd.weight") {
        set(vision, "position_embedding_size", side);
    }
    let processor = &mut added.processor;
    set(processor, "patch_size", facts.required("patch_size")?);
    set(processor, "pooling_kernel_size", merge);
    // The small models, which have per-layer embeddings, see pictures one way.
    if facts.decoder["hidden_size_per_layer_input"].as_u64().unwrap_or(0) == 0 {
        set(&mut added.text, "use_bidirectional_attention", "vision");
    }
    set(&mut added.config, "image_token_id", facts.token(&["<|image|>"])?);
    set(&mut added.config, "boi_token_id", facts.token(&["<|image>"])?);
    set(&mut added.config, "eoi_token_id", facts.token(&["<image|>"])?);
    Ok(())
}

pub(super) fn gemma4_unified(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    gemma4(facts, added)?;
    let vision = &mut added.vision;
    set(vision, "mm_embed_dim", facts.required("embedding_length")?);
    if let Some(&[_, side, _]) = facts.shape("v.position_embd.weight") {
        set(vision, "mm_posemb_size", side);
    }
    Ok(())
}

pub(super) fn idefics3(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let scale = facts.count_or("projector.scale_factor", 2)?;
    // A tower takes tiles of other sizes than it was made for, by whole tokens.
    let token = scale.saturating_mul(facts.required("patch_size")?);
    let size = facts.required("image_size")?;
    let size = size.checked_next_multiple_of(token).unwrap_or(size);
    let longest = facts.count_or("preproc_image_size", 4 * size)?;
    set(&mut added.config, "scale_factor", scale);
    set(&mut added.config, "image_token_id", facts.token(&["<image>"])?);
    set(&mut added.processor, "size", json!({"longest_edge": longest}));
    set(&mut added.processor, "max_image_size", json!({"longest_edge": size}));
    Ok(())
}

pub(super) fn pixtral(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    if !facts.has("mm.patch_merger.weight") {
        // Pixtral 12B, in LLaVA's frame.
        (added.class, added.model_type) = ("LlavaForConditionalGeneration", "llava");
        set(&mut added.config, "vision_feature_select_strategy", "full");
        set(&mut added.config, "vision_feature_layer", -1);
    }
    set(&mut added.config, "spatial_merge_size", facts.count_or("spatial_merge_size", 1)?);
    set(&mut added.config, "multimodal_projector_bias", facts.has("mm.1.bias"));
    set(&mut added.config, "image_token_index", facts.token(&["[IMG]"])?);
    let activation = if facts.is_on("use_silu")? { "silu" } else { "gelu" };
    set(&mut added.vision, "model_type", "pixtral");
    set(&mut added.vision, "hidden_act", activation);
    let longest = facts.required("image_size")?;
    set(&mut added.processor, "size", json!({"longest_edge": longest}));
    Ok(())
}

pub(super) fn lfm2(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let positions = facts.shape("v.position_embd.weight").and_then(|shape| shape.first());
    let positions = positions.ok_or("tensor `v.position_embd.weight` is missing")?;
    set(&mut added.vision, "num_patches", *positions);
    let inner = facts.shape("mm.1.weight").and_then(|shape| shape.first());
    set(&mut added.config, "projector_hidden_size", inner.copied());
    set(&mut added.config, "projector_bias", facts.has("mm.1.bias"));
    set(&mut added.config, "projector_use_layernorm", facts.has("mm.input_norm.weight"));
    set(&mut added.config, "downsample_factor", facts.count_or("projector.scale_factor", 2)?);
    set(&mut added.config, "image_token_id", facts.token(&["<image>"])?);
    Ok(())
}

pub(super) fn internvl(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let scale = facts.count_or("projector.scale_factor", 2)?;
    #[expect(clippy::cast_precision_loss, reason = "a few patches")]
    set(&mut added.config, "downsample_ratio", 1.0 / scale as f64);
    set(&mut added.config, "image_token_id", facts.token(&["<IMG_CONTEXT>"])?);
    let rms = !facts.has("v.blk.0.ln1.bias");
    let vision = &mut added.vision;
    set(vision, "norm_type", if rms { "rms_norm" } else { "layer_norm" });
    set(vision, "attention_bias", facts.has("v.blk.0.attn_q.bias"));
    set(vision, "use_mean_pooling", !facts.has("v.post_ln.weight"));
    set(vision, "hidden_act", if facts.is_on("use_silu")? { "silu" } else { "gelu" });
    let size = facts.required("image_size")?;
    let processor = &mut added.processor;
    set(processor, "size", json!({"height": size, "width": size}));
    set(processor, "min_patches", facts.count_or("preproc_min_tiles", 1)?);
    set(processor, "max_patches", facts.count_or("preproc_max_tiles", 12)?);
    Ok(())
}

pub(super) fn llama4(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    for (name, field) in [
        ("mm.model.mlp.1.weight", "projector_input_dim"),
        ("mm.model.mlp.2.weight", "projector_output_dim"),
    ] {
        set(&mut added.vision, field, facts.shape(name).and_then(|shape| shape.first()).copied());
    }
    let scale = facts.count_or("projector.scale_factor", 2)?;
    #[expect(clippy::cast_precision_loss, reason = "a few patches")]
    set(&mut added.vision, "pixel_shuffle_ratio", 1.0 / scale as f64);
    set(&mut added.config, "image_token_index", facts.token(&["<|patch|>"])?);
    let size = facts.required("image_size")?;
    set(&mut added.processor, "size", json!({"height": size, "width": size}));
    Ok(())
}

pub(super) fn llava(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let class = facts.has("v.class_embd");
    let kind = if class { "clip_vision_model" } else { "siglip_vision_model" };
    let strategy = if class { "default" } else { "full" };
    set(&mut added.vision, "model_type", kind);
    let activation = if facts.is_on("use_gelu")? {
        "gelu_pytorch_tanh"
    } else if facts.is_on("use_silu")? {
        "silu"
    } else {
        "quick_gelu"
    };
    set(&mut added.vision, "hidden_act", activation);
    set(&mut added.config, "vision_feature_select_strategy", strategy);
    // Layers that nobody looks at are not in the file.
    set(&mut added.config, "vision_feature_layer", -1);
    set(&mut added.config, "multimodal_projector_bias", facts.has("mm.0.bias"));
    set(&mut added.config, "image_token_index", facts.token(&["<image>", "<unk>"])?);
    let size = facts.required("image_size")?;
    let processor = &mut added.processor;
    if class {
        set(processor, "size", json!({"shortest_edge": size}));
        set(processor, "crop_size", json!({"height": size, "width": size}));
    } else {
        set(processor, "size", json!({"height": size, "width": size}));
    }
    Ok(())
}

/// Pixels of a side of the square of positions that the tower has.
fn positions(facts: &Facts<'_>) -> Result<u64, String> {
    let rows = facts.shape("v.position_embd.weight").and_then(|shape| shape.iter().rev().nth(1));
    let rows = rows.ok_or("tensor `v.position_embd.weight` is missing")?;
    let side = u64::try_from(rows.isqrt()).map_err(|error| error.to_string())?;
    Ok(side.saturating_mul(facts.required("patch_size")?))
}

/// What both kinds of MiniCPM-V share: `image_size` is that of tiles.
fn minicpmv(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    set(&mut added.vision, "image_size", positions(facts)?);
    set(&mut added.processor, "patch_size", facts.required("patch_size")?);
    set(&mut added.processor, "scale_resolution", facts.count_or("image_size", 448)?);
    Ok(())
}

pub(super) fn minicpmv4_6(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    minicpmv(facts, added)?;
    let mode = match facts.count_or("projector.scale_factor", 4)? {
        4 => "16x",
        2 => "4x",
        other => return Err(format!("`projector.scale_factor` is {other}, expected 2 or 4")),
    };
    let layers = facts.list("wa_layer_indexes", Value::as_u64)?.unwrap_or_default();
    set(&mut added.config, "insert_layer_id", layers.first().copied().unwrap_or(6));
    set(&mut added.config, "downsample_mode", mode);
    set(&mut added.processor, "downsample_mode", mode);
    set(&mut added.config, "image_token_id", facts.token(&["<|image_pad|>"])?);
    Ok(())
}

/// MiniCPM-V 2.6 to 4.5; which it is the decoder says.
pub(super) fn resampler(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    minicpmv(facts, added)?;
    let version = facts.metadata.u64("clip.minicpmv_version")?.unwrap_or(0);
    if version < 3 {
        return Err(format!(
            "metadata `clip.minicpmv_version` is {version}: MiniCPM-V is read from 2.6 on, which is 3"
        ));
    }
    // Without a head's norm it is Qwen2 or Llama, of which the one has biases.
    let version = match facts.decoder["architectures"][0].as_str() {
        Some("Qwen2ForCausalLM") => 2.6,
        Some("LlamaForCausalLM") => 4.0,
        _ => 4.5,
    };
    let queries = facts.metadata.u64("clip.minicpmv_query_num")?.filter(|queries| *queries > 0);
    set(&mut added.config, "version", version);
    set(&mut added.config, "query_num", queries.unwrap_or(64));
    set(&mut added.config, "hidden_size", facts.width());
    set(&mut added.processor, "use_image_id", true);
    for (field, name) in [("image_mean", "norm_mean"), ("image_std", "norm_std")] {
        if let Some(numbers) = added.processor.remove(field) {
            set(&mut added.processor, name, numbers);
        }
    }
    Ok(())
}

pub(super) fn lighton(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    set(&mut added.config, "spatial_merge_size", facts.count_or("spatial_merge_size", 2)?);
    set(&mut added.config, "image_token_id", facts.token(&["<|image_pad|>"])?);
    let activation = if facts.is_on("use_silu")? { "silu" } else { "gelu" };
    set(&mut added.vision, "hidden_act", activation);
    let longest = facts.required("image_size")?;
    set(&mut added.processor, "size", json!({"longest_edge": longest}));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub(super) fn janus(facts: &Facts<'_>, added: &mut Added) -> Result<(), String> {
    let hidden = facts.required("embedding_length")?;
    let inner = added.vision.get("intermediate_size").and_then(Json::as_u64).unwrap_or(0);
    let depth = (0..u8::MAX).take_while(|index| facts.has(&format!("mm.{index}.weight"))).count();
    let vision = &mut added.vision;
    set(vision, "mlp_ratio", inner as f64 / hidden as f64);
    set(vision, "projection_dim", facts.width());
    set(vision, "depth", depth);
    set(vision, "attention_bias", facts.has("v.blk.0.attn_q.bias"));
    set(vision, "hidden_act", if facts.is_on("use_silu")? { "silu" } else { "gelu" });
    set(&mut added.config, "image_token_id", facts.token(&["<image_placeholder>"])?);
    let size = facts.required("image_size")?;
    set(&mut added.processor, "size", json!({"height": size, "width": size}));
    Ok(())
}
