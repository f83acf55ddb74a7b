//! GLM-5.3-Flash: Kimi Delta Attention, and in some layers latent attention without a rotary embedding, whose queries
//! see pools of tokens that an indexer chooses; experts as in GLM-5. The parts of layers read and write several
//! streams of hidden states, which go over into each other.

use super::deepseek::{latent, layers_with_indexer, set_selection};
use super::hunyuan_4::{EXPERTS, MAX_STREAMS};
use super::kimi_linear::{delta_rule, take_linear_sizes, with_experts};
use crate::kernels::pointwise::Gating;
use crate::layers::attention::{IndexerSpec, RotatedPart};
use crate::layers::moe::ExpertTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, HyperConnectionsSpec, MAX_SIZE, Names,
    RawFields, Result, bad,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("Glm5NextForConditionalGeneration", spec).completed_by(complete)];

/// The most rounds that make matrices of streams.
const MAX_ROUNDS: usize = 1 << 10;

/// Names of the published files' own fields, and what they may lack.
fn complete(fields: &mut RawFields<'_>) {
    // That of a rotated part, which there isn't.
    fields.remove("head_dim");
    fields.default("qk_rope_head_dim", 0);
    fields.default("first_k_dense_replace", 3);
    fields.default("routed_scaling_factor", 2.5);
    let Some(linear) = take_linear_sizes(fields) else { return };
    if let Some(bound) = linear.get("gate_lower_bound").cloned() {
        fields.set("linear_lower_bound", bound);
    }
    let unsafe_gate = linear.get("safe_gate").and_then(serde_json::Value::as_bool) == Some(false);
    if !unsafe_gate && fields.get("linear_lower_bound").is_none_or(serde_json::Value::is_null) {
        fields.set("linear_lower_bound", -5.0);
    }
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("qk_rope_head_dim", 0usize)?;
    let defaults = Defaults { context: 1 << 20, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = latent(config, false, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    let limit = config.number_or("swiglu_limit", 10.0)?;
    spec.mlp.gating = Some(Gating::Bounded { limit });
    let linear = linear_layers(config)?;
    for latent in spec.attention.iter_mut().filter_map(|layer| layer.latent.as_mut()) {
        latent.norm = spec.norm;
    }
    choose_pools(config, &mut spec, &linear)?;
    let bound = if config.is_null("linear_lower_bound") {
        None
    } else {
        Some(config.number_or("linear_lower_bound", -5.0)?)
    };
    spec.recurrent = delta_rule(config, &spec, linear, bound)?;
    let mut moe = with_experts(config, &spec)?;
    moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    spec.moe = Some(moe);
    let eps = config.number_or("hc_eps", 1e-6)?;
    spec.hyper_connections = Some(HyperConnectionsSpec {
        count: config.size_or("hc_mult", 4, 1..=MAX_STREAMS)?,
        magnitude: 2.0,
        eps: [eps, 0.0],
        mixing: Some(config.size_or("hc_sinkhorn_iters", 20, 1..=MAX_ROUNDS)?),
        tensors: [
            ["hc_attn_fn", "hc_attn_base", "hc_attn_scale"],
            ["hc_ffn_fn", "hc_ffn_base", "hc_ffn_scale"],
        ],
        weighted_head: false,
    });
    Ok(spec)
}

/// Whether each layer has linear attention: as listed, else all but every fourth.
fn linear_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let words =
        [("linear_attention", true), ("indexed_attention", false), ("full_attention", false)];
    let supported = "linear_attention, indexed_attention and full_attention";
    let listed = config.layer_kinds(&words, supported)?;
    Ok(listed.unwrap_or_else(|| (0..config.num_hidden_layers).map(|i| i % 4 != 3).collect()))
}

/// Sets which pools of tokens the layers with attention see.
fn choose_pools(config: &HfConfig, spec: &mut DecoderSpec, linear: &[bool]) -> Result<()> {
    config.only("index_kpool_always_select_tail", true)?;
    let count = config.size_or("index_topk", 2048, 1..=MAX_SIZE)?;
    let pool = config.size_or("index_kpool", 16, 1..=MAX_SIZE)?;
    if !count.is_multiple_of(pool) {
        let bound = format!("must divide the {count} tokens of index_topk");
        return Err(bad("index_kpool", pool, bound));
    }
    let choose = layers_with_indexer(config)?;
    let layers: Vec<_> =
        choose.into_iter().zip(linear).map(|(own, linear)| (!linear).then_some(own)).collect();
    let rotated = RotatedPart::FirstHalves;
    // A pool of one token has the key of that token.
    let pool = Some(pool).filter(|pool| *pool > 1);
    let indexer = IndexerSpec { heads: 32, dim: 128, rotated, eps: 1e-6, pool };
    set_selection(config, spec, &layers, indexer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::layers::recurrent::CellSpec;
    use crate::models::tests::{fields_of_fixture, spec_of_fields};

    fn changed(change: &serde_json::Value) -> DecoderSpec {
        let mut fields = fields_of_fixture("glm5_next_sparse");
        let text = fields["text_config"].as_object_mut().unwrap();
        text.extend(change.as_object().unwrap().clone());
        spec_of_fields(&fields)
    }

    fn bound(spec: &DecoderSpec) -> Option<f32> {
        match spec.recurrent.as_ref().map(|recurrent| &recurrent.cell) {
            Some(CellSpec::ChannelDeltaRule(rule)) => rule.bound,
            _ => panic!("no linear attention"),
        }
    }

    #[test]
    fn published_fields_of_linear_attention_are_read() {
        assert_eq!(bound(&changed(&json!({}))), Some(-5.0));
        assert_eq!(bound(&changed(&json!({"linear_lower_bound": null}))), None);
        let own = json!({"linear_attn_config": {"head_dim": 8, "gate_lower_bound": -3.0}});
        assert_eq!(bound(&changed(&own)), Some(-3.0));
        let plain = json!({"linear_lower_bound": null, "linear_attn_config": {"safe_gate": false}});
        assert_eq!(bound(&changed(&plain)), None);
    }

    #[test]
    fn a_pool_of_one_token_is_that_token() {
        let pool = |spec: &DecoderSpec| {
            let latents =
                spec.attention.iter().filter_map(|layer| layer.latent?.selection?.indexer);
            latents.map(|indexer| indexer.pool).next().unwrap()
        };
        assert_eq!(pool(&changed(&json!({"index_kpool": 1}))), None);
        assert_eq!(pool(&changed(&json!({"index_kpool": 4}))), Some(4));
    }
}
