//! Step 3.5 and 3.7 Flash: norms whose scale is `1 + weight`, also of query and key heads, a gate of each
//! head, and sliding windows on most layers, which have more query heads and a rotary embedding of their
//! own. From some layer on there are experts with sigmoid scores and a correction bias, beside a shared
//! one; in some layers gates and ups are bounded.

use serde_json::{Map, Value, json};

use crate::layers::attention::{GateTensor, HeadGate, NormSpan};
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{MoeSpec, SharedExpert, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, GateLimits, HfConfig, MAX_SIZE, Names,
    RawFields, Result, RopeDefaults, bad, base, experts, layers_with_experts, set_biases,
    set_query_key_norm, set_sigmoid_routing, set_windows, shared_experts, stacked, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Step3p5ForCausalLM", spec).completed_by(complete),
    Architecture::new("Step3p7ForConditionalGeneration", spec).completed_by(complete),
];

const EXPERTS: StackedTensors = StackedTensors {
    ups: Some("moe.up_proj.weight"),
    ..StackedTensors::new(["moe.gate_proj.weight", "moe.down_proj.weight"])
};

/// Its names of common fields. Lists may have entries of the layers that draft, behind the others.
fn complete(fields: &mut RawFields<'_>) {
    for (name, alias) in [
        ("num_key_value_heads", "num_attention_groups"),
        ("n_routed_experts", "moe_num_experts"),
        ("num_experts_per_tok", "moe_top_k"),
        ("share_expert_dim", "share_expert_dims"),
        ("routed_scaling_factor", "moe_router_scaling_factor"),
    ] {
        fields.alias(name, alias);
    }
    let kinds = fields.get("layer_types").and_then(Value::as_array);
    let layers = fields.get("num_hidden_layers").and_then(Value::as_u64);
    if let (Some(kinds), Some(Ok(layers))) = (kinds, layers.map(usize::try_from))
        && let Some(behind @ [_, ..]) = kinds.get(layers..)
    {
        let behind = behind.to_vec();
        fields.default("mtp_layer_types", behind);
    }
    let lists = ["layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared"];
    for name in lists {
        fields.truncate(name, "num_hidden_layers");
    }
    if fields.get("rope_theta").is_some_and(Value::is_array) {
        set_ropes(fields);
    }
    let other = fields.get("attention_other_setting");
    if let Some(heads) = other.and_then(|other| other.get("num_attention_heads")).cloned() {
        fields.default("num_sliding_attention_heads", heads);
    }
}

/// Makes rotary embeddings by kind of layer of lists with a number for each layer.
fn set_ropes(fields: &mut RawFields<'_>) {
    let mut ropes = Map::new();
    let kinds: Vec<Value> = match fields.get("layer_types").and_then(Value::as_array) {
        Some(kinds) => kinds.clone(),
        None => vec!["full_attention".into()],
    };
    for kind in ["full_attention", "sliding_attention"] {
        let Some(layer) = kinds.iter().position(|other| *other == kind) else { continue };
        let of_layer = |name| fields.get(name).and_then(|list| list.get(layer)).cloned();
        let mut rope = Map::new();
        rope.insert("rope_type".to_owned(), json!("default"));
        rope.extend(of_layer("rope_theta").map(|theta| ("rope_theta".to_owned(), theta)));
        let share = of_layer("partial_rotary_factors");
        rope.extend(share.map(|share| ("partial_rotary_factor".to_owned(), share)));
        let scaling = fields.get("rope_scaling").and_then(Value::as_object);
        if let Some(scaling) = scaling.filter(|_| kind == "full_attention") {
            rope.extend(scaling.clone());
        }
        ropes.insert(kind.to_owned(), rope.into());
    }
    fields.remove("rope_theta");
    fields.remove("rope_scaling");
    fields.set("rope_parameters", ropes);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { partial: true, ..Defaults::LLAMA.rope };
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 128_000,
        norm_eps: 1e-5,
        rope,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let [attention, mlp] = [config.attention_bias, config.mlp_bias];
    set_biases(&mut spec, attention.unwrap_or(false), mlp.unwrap_or(false));
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    set_query_key_norm(&mut spec, NormSpan::Head);
    let windowed = windowed_layers(config, |_| false)?;
    set_windows(config, &mut spec, &windowed, None)?;
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, rope, 10_000.0)?.to_vec();
    let heads = config.num_attention_heads;
    let local = config.size_or("num_sliding_attention_heads", heads, 1..=MAX_SIZE)?;
    let scale = config.positive("query_pre_attn_scalar")?;
    for (layer, windowed) in spec.attention.iter_mut().zip(&windowed) {
        let windowed = *windowed;
        layer.rope = Some(usize::from(windowed));
        layer.gate = Some(HeadGate::sigmoid(GateTensor::Heads("g_proj")));
        layer.params.scale = scale.map_or(layer.params.scale, |scalar| 1.0 / scalar.sqrt());
        if windowed {
            layer.num_heads = local;
        }
    }
    let kv_heads = config.num_kv_heads(defaults.kv_heads)?;
    if !local.is_multiple_of(kv_heads) {
        let bound = format!("must be a multiple of `num_key_value_heads` = {kv_heads}");
        return Err(bad("num_sliding_attention_heads", local, bound));
    }
    if let Some(kinds) = config.field::<Vec<String>>("mtp_layer_types")? {
        let slides = kinds.first().is_some_and(|kind| kind == "sliding_attention");
        let alike = windowed.iter().position(|windowed| *windowed == slides);
        spec.draft_attention = alike.map(|layer| spec.attention[layer]);
    }
    spec.moe = Some(with_experts(config, &spec)?);
    spec.gate_limits = gate_limits(config)?;
    Ok(spec)
}

fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    moe.layers = match layers_with_experts(config)? {
        Some(layers) => layers,
        None => listed_layers(config)?,
    };
    moe.router = "moe.gate";
    moe.experts = stacked(config, EXPERTS, "moe.experts")?;
    set_sigmoid_routing(config, &mut moe, "moe.router_bias", true)?;
    moe.routing.renormalize = true;
    let inner = config.size_or("share_expert_dim", 1280, 1..=MAX_SIZE)?;
    let mlp = MlpSpec { intermediate_size: inner, ..spec.mlp };
    let name = "share_expert";
    moe.shared = shared_experts(&moe, 1).map(|shared| SharedExpert { name, mlp, ..shared });
    Ok(moe)
}

/// The layers that `moe_layers_enum` lists, else all but the first three.
fn listed_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let (name, layers) = ("moe_layers_enum", config.num_hidden_layers);
    let Some(list) = config.field::<String>(name)? else {
        return Ok((0..layers).map(|layer| layer >= 3).collect());
    };
    let mut sparse = vec![false; layers];
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let Ok(layer) = item.parse::<usize>() else {
            return Err(bad(name, item, "must be numbers with commas between them"));
        };
        // Those behind the last layer draft.
        if let Some(layer) = sparse.get_mut(layer) {
            *layer = true;
        }
    }
    Ok(sparse)
}

/// The bounds of each layer, of which 0 is none.
fn gate_limits(config: &HfConfig) -> Result<Option<Vec<GateLimits>>> {
    let layers = config.num_hidden_layers;
    let list = |name| {
        let Some(limits) = config.field::<Vec<Option<f32>>>(name)? else {
            return Ok(vec![None; layers]);
        };
        if limits.len() != layers {
            let bound = format!("must have a number for each of {layers} layers");
            return Err(bad(name, limits.len(), bound));
        }
        match limits.iter().flatten().find(|limit| !limit.is_finite() || **limit < 0.0) {
            Some(limit) => Err(bad(name, limit, "must be a positive number, or 0 for none")),
            None => {
                Ok(limits.into_iter().map(|limit| limit.filter(|limit| *limit > 0.0)).collect())
            }
        }
    };
    let (of_experts, of_others) = (list("swiglu_limits")?, list("swiglu_limits_shared")?);
    if of_experts.iter().chain(&of_others).all(Option::is_none) {
        return Ok(None);
    }
    let both = of_experts.into_iter().zip(of_others);
    Ok(Some(both.map(|(experts, mlp)| GateLimits { experts, mlp }).collect()))
}
