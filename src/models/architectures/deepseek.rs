//! DeepSeek 2 and 3: multi-head latent attention, and experts beside a shared one from some layer
//! on. DeepSeek 2 chooses experts by softmax and groups by their best expert; DeepSeek 3 by
//! sigmoids with a correction bias and groups by their two best.
//!
//! A.X K2 is DeepSeek V3.2 with gates of its norms and of what heads give. Kimi K2.5 is DeepSeek 3 that sees; Sarvam 105B is DeepSeek 3 under other names of fields; A.X K1 has a
//! norm of the experts' output, and GLM-4.7-Flash is DeepSeek 3 whose file may list which layers have experts; Youtu-LLM is
//! DeepSeek 3 without experts. DeepSeek V3.2 and GLM-5 are DeepSeek 3 whose layers see what an indexer
//! chooses of a context; in GLM-5 some layers may see what the layer before them saw.

use crate::kernels::paged_attention::AttentionParams;
use crate::layers::attention::{
    AttentionSpec, IndexerSpec, LatentSpec, RotatedPart, SelectionSpec,
};
use crate::layers::moe::MoeSpec;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, Names, NormGatesSpec,
    RawFields, Result, bad, base, check_size, experts, groups, layers_with_experts, remove_rope,
    scale, set_sigmoid_routing, shared_experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("DeepseekV2ForCausalLM", spec_2),
    Architecture::new("DeepseekV3ForCausalLM", spec_3),
    Architecture::new("Glm4MoeLiteForCausalLM", spec_glm),
    Architecture::new("YoutuForCausalLM", spec_youtu),
    Architecture::new("SarvamMLAForCausalLM", spec_3).completed_by(complete_sarvam),
    Architecture::new("AXK1ForCausalLM", spec_axk1),
    Architecture::new("AXK2ForCausalLM", spec_axk2),
    Architecture::new("KimiVLForConditionalGeneration", spec_kimi),
    Architecture::new("Kimi_K25ForConditionalGeneration", spec_kimi),
    Architecture::new("DeepseekV32ForCausalLM", spec_3_2),
    Architecture::new("GlmMoeDsaForCausalLM", spec_glm_5),
];

/// The most heads of an indexer.
const MAX_INDEX_HEADS: usize = 1 << 10;
/// The most elements of a part of a head, or of a latent vector.
const MAX_PART: usize = 1 << 14;

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = latent(config, true, &Defaults::LLAMA)?;
    let Some(mut moe) = routed(config, &spec, 0)? else { return Ok(spec) };
    moe.routing.renormalize = false;
    moe.routing.groups = match config.field::<String>("topk_method")?.as_deref() {
        None | Some("greedy") => None,
        Some("group_limited_greedy") => groups(config, moe.num_experts)?,
        Some(other) => {
            return Err(bad("topk_method", other, "supported are greedy, group_limited_greedy"));
        }
    };
    if let Some(groups) = &mut moe.routing.groups {
        groups.best = 1;
    }
    spec.moe = Some(moe);
    Ok(spec)
}

fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let interleaved = config.field_or("rope_interleave", true)?;
    sigmoid_routed(config, interleaved, &Defaults { context: 4096, ..Defaults::LLAMA })
}

/// Latent attention, and experts that sigmoids choose. The `defaults` are not those of the size of heads.
fn sigmoid_routed(
    config: &HfConfig,
    interleaved: bool,
    defaults: &Defaults,
) -> Result<DecoderSpec> {
    let mut spec = latent(config, interleaved, defaults)?;
    let Some(mut moe) = routed(config, &spec, 3)? else { return Ok(spec) };
    set_sigmoid_routing(config, &mut moe, "mlp.gate.e_score_correction_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    spec.moe = Some(moe);
    Ok(spec)
}

fn spec_glm(config: &HfConfig) -> Result<DecoderSpec> {
    spec_listed(config, 1)
}

fn spec_listed(config: &HfConfig, first: usize) -> Result<DecoderSpec> {
    listed(config, first, spec_3(config)?)
}

/// Latent attention, and experts that sigmoids choose in all layers but the first unless the file says which.
pub(super) fn spec_listed_as(
    config: &HfConfig,
    interleaved: bool,
    defaults: &Defaults,
) -> Result<DecoderSpec> {
    listed(config, 1, sigmoid_routed(config, interleaved, defaults)?)
}

/// The decoder `spec` with experts in the layers that the file lists: else in those from `first_k_dense_replace` on,
/// which is `first` where it isn't said.
fn listed(config: &HfConfig, first: usize, mut spec: DecoderSpec) -> Result<DecoderSpec> {
    if let Some(moe) = &mut spec.moe {
        let listed = layers_with_experts(config)?;
        let first = config.field_or("first_k_dense_replace", first)?;
        let layers = config.num_hidden_layers;
        moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= first).collect());
    }
    Ok(spec)
}

fn spec_3_2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_listed(config, 3)?;
    let layers = vec![Some(true); config.num_hidden_layers];
    let indexer = IndexerSpec {
        heads: 64,
        dim: 128,
        rotated: RotatedPart::FirstHalves,
        eps: 1e-6,
        pool: None,
    };
    set_selection(config, &mut spec, &layers, indexer)?;
    Ok(spec)
}

fn spec_glm_5(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_listed(config, 3)?;
    let layers: Vec<_> = layers_with_indexer(config)?.into_iter().map(Some).collect();
    let indexer = IndexerSpec {
        heads: 32,
        dim: 128,
        rotated: RotatedPart::FirstPairs,
        eps: 1e-6,
        pool: None,
    };
    set_selection(config, &mut spec, &layers, indexer)?;
    Ok(spec)
}

/// Which layers choose by themselves, and don't see what the layer before them saw: by name, by letter, or some at
/// equal distances.
pub(super) fn layers_with_indexer(config: &HfConfig) -> Result<Vec<bool>> {
    if let Some(listed) = listed_indexers(config)? {
        return Ok(listed);
    }
    let every = config.size_or("index_topk_freq", 1, 0..=MAX_SIZE)?.max(1);
    let offset = config.size_or("index_skip_topk_offset", 2, 0..=MAX_SIZE)?;
    let layers = 0..config.num_hidden_layers;
    Ok(layers.map(|layer| (layer + 1).saturating_sub(offset).is_multiple_of(every)).collect())
}

/// The same by name or by letter, if the file has a list.
pub(super) fn listed_indexers(config: &HfConfig) -> Result<Option<Vec<bool>>> {
    let count = config.num_hidden_layers;
    let listed = config.field::<Vec<String>>("indexer_types")?;
    let pattern: Option<Vec<String>> = match config.field::<String>("index_topk_pattern") {
        Ok(letters) => letters.map(|letters| letters.chars().map(String::from).collect()),
        // Not a word, but a list.
        Err(_) => config.field("index_topk_pattern")?,
    };
    let named = listed.map(|kinds| ("indexer_types", kinds));
    let named = named.or(pattern.map(|kinds| ("index_topk_pattern", kinds)));
    if let Some((field, kinds)) = named {
        let own = |kind: &String| match kind.as_str() {
            "full" | "F" => Ok(true),
            "shared" | "S" => Ok(false),
            other => Err(bad(field, other, "must be full or shared")),
        };
        let layers = kinds.iter().map(own).collect::<Result<Vec<_>>>()?;
        if layers.len() < count || layers.first() != Some(&true) {
            let bound = format!("must be one for each of {count} layers, the first one full");
            return Err(bad(field, kinds, bound));
        }
        return Ok(Some(layers));
    }
    Ok(None)
}

/// Sets what queries see of contexts longer than what is chosen, if the model has any: in layers that choose by
/// themselves, and in those that see what the layer before them saw. Heads of the indexer and their elements are as
/// many as those of `defaults` where it isn't said.
pub(super) fn set_selection(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    layers: &[Option<bool>],
    defaults: IndexerSpec,
) -> Result<()> {
    let count = config.size_or("index_topk", 2048, 1..=MAX_SIZE)?;
    let heads = config.size_or("index_n_heads", defaults.heads, 1..=MAX_INDEX_HEADS)?;
    let dim = config.size_or("index_head_dim", defaults.dim, 1..=MAX_PART)?;
    if count >= spec.max_position_embeddings {
        return Ok(());
    }
    if layers.iter().flatten().next() == Some(&false) {
        return Err(bad("indexer_types", "shared", "must be full for the first layer"));
    }
    for (layer, chooses) in spec.attention.iter_mut().zip(layers) {
        let (Some(latent), Some(chooses)) = (&mut layer.latent, chooses) else { continue };
        if latent.query_rank.is_none() {
            return Err(bad("q_lora_rank", "null", "must be a number"));
        }
        if dim < latent.rope_dim {
            let bound = format!("must be at least the {} rotated elements", latent.rope_dim);
            return Err(bad("index_head_dim", dim, bound));
        }
        let indexer = chooses.then_some(IndexerSpec { heads, dim, ..defaults });
        latent.selection = Some(SelectionSpec { count, indexer });
    }
    Ok(())
}

fn spec_kimi(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_3(config)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}

/// Sarvam's first names of fields; its size of heads is that of a cache's.
fn complete_sarvam(fields: &mut RawFields<'_>) {
    fields.alias("n_routed_experts", "num_experts");
    fields.alias("n_shared_experts", "num_shared_experts");
    fields.default("first_k_dense_replace", 1);
    fields.remove("head_dim");
}

fn spec_axk1(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_glm(config)?;
    spec.block.after_experts = Some("post_mlp_layernorm");
    Ok(spec)
}

fn spec_axk2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_listed(config, 1)?;
    let layers = vec![Some(true); config.num_hidden_layers];
    let indexer = IndexerSpec {
        heads: 16,
        dim: 128,
        rotated: RotatedPart::FirstHalves,
        eps: 1e-6,
        pool: None,
    };
    set_selection(config, &mut spec, &layers, indexer)?;
    for latent in spec.attention.iter_mut().filter_map(|layer| layer.latent.as_mut()) {
        if latent.query_rank.is_none() {
            return Err(bad("q_lora_rank", "null", "must be a number"));
        }
        latent.query_gates = true;
    }
    // Norms with a gate have one more name.
    let [mixer, mlp] = ["input_layernorm", "post_attention_layernorm"];
    spec.block.before_attention = Some("input_layernorm.norm");
    spec.names.other_norm = Some([mlp, "post_attention_layernorm.norm"]);
    let rank = config.size_or("gated_norm_rank", 16, 1..=MAX_PART)?;
    spec.norm_gates = Some(NormGatesSpec { rank, norms: [mixer, mlp] });
    Ok(spec)
}

fn spec_youtu(config: &HfConfig) -> Result<DecoderSpec> {
    let interleaved = config.field_or("rope_interleave", true)?;
    latent(config, interleaved, &Defaults { context: 131_072, tied: true, ..Defaults::LLAMA })
}

/// The decoder without its experts. The `defaults` are not those of the size of heads.
pub(super) fn latent(
    config: &HfConfig,
    interleaved: bool,
    defaults: &Defaults,
) -> Result<DecoderSpec> {
    let name = "qk_rope_head_dim";
    let rope_dim = match config.field(name)? {
        Some(0) => 0,
        _ => config.size(name, MAX_PART)?,
    };
    let mut spec = base(config, &Defaults { head_dim: Some(rope_dim.max(2)), ..*defaults })?;
    if rope_dim > 0 {
        spec.ropes = vec![config.rope(rope_dim, defaults.rope)?];
    } else {
        remove_rope(&mut spec);
    }
    let bias = config.attention_bias.unwrap_or(false);
    let query_rank = match config.field::<usize>("q_lora_rank")? {
        None => None,
        Some(rank) => Some(check_size("q_lora_rank", rank, 1..=MAX_PART)?),
    };
    let latent = LatentSpec {
        query_rank,
        kv_rank: config.size("kv_lora_rank", MAX_PART)?,
        nope_dim: config.size("qk_nope_head_dim", MAX_PART)?,
        rope_dim,
        value_dim: config.size("v_head_dim", MAX_PART)?,
        norm: NormSpec::rms(1e-6),
        factor: 1.0,
        query_factor: 1.0,
        query_gates: false,
        rotated_key_norm: None,
        bias,
        selection: None,
    };
    let attention_scale = scale(latent.nope_dim + rope_dim) * config.yarn_attention_scale();
    for layer in &mut spec.attention {
        let params = AttentionParams { scale: attention_scale, ..layer.params };
        *layer = AttentionSpec {
            num_kv_heads: 1,
            head_dim: latent.key_dim(),
            output_bias: bias,
            interleaved_rope: interleaved.then_some(rope_dim),
            params,
            latent: Some(latent),
            ..*layer
        };
    }
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    Ok(spec)
}

/// Experts from layer `first_k_dense_replace` on; `None` if the model is dense.
pub(super) fn routed(
    config: &HfConfig,
    spec: &DecoderSpec,
    first: usize,
) -> Result<Option<MoeSpec>> {
    if config.field::<usize>("n_routed_experts")?.is_none() {
        return Ok(None);
    }
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    let first = config.field_or("first_k_dense_replace", first)?;
    let every = config.field_or("moe_layer_freq", 1usize)?.max(1);
    let sparse = |layer: usize| layer >= first && layer.is_multiple_of(every);
    moe.layers = (0..config.num_hidden_layers).map(sparse).collect();
    moe.routing.scale = config.number_or("routed_scaling_factor", 1.0)?;
    let shared = config.field_or("n_shared_experts", 0)?;
    moe.shared = shared_experts(&moe, shared);
    Ok(Some(moe))
}
