//! Hunyuan 4: DeepSeek V3.2 whose parts read and write several streams of hidden states, with sinks and gates of
//! what heads give and bounds of the gates of its experts. Some layers see what the layer before them saw.

use super::deepseek::{listed_indexers, set_selection, spec_listed_as};
use crate::kernels::pointwise::Gating;
use crate::layers::attention::{GateTensor, HeadGate, IndexerSpec, RotatedPart};
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, HyperConnectionsSpec, RawFields, Result, bad,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("HYV4ForCausalLM", spec).completed_by(complete)];

pub(super) const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);
/// The most streams of hidden states.
pub(super) const MAX_STREAMS: usize = 64;

/// Fields that differ from DeepSeek's where a file lacks them.
fn complete(fields: &mut RawFields<'_>) {
    fields.default("n_shared_experts", 1);
    fields.default("routed_scaling_factor", 2.827);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 262_144, norm_eps: 1e-5, ..Defaults::LLAMA };
    // The reference rotates neighbouring pairs. transformers rotates halves; its files lack the reference's fields.
    let gated = config.field::<bool>("gated_mla")?;
    let interleaved = config.field_or("rope_interleave", gated.is_some())?;
    let mut spec = spec_listed_as(config, interleaved, &defaults)?;
    if let Some(moe) = &mut spec.moe {
        moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
        // Of routed experts alone.
        let limit = config.number_or("swiglu_limit", 10.0)?;
        moe.expert.gating = (limit > 0.0).then_some(Gating::Bounded { limit });
    }
    let eps = spec.norm.eps;
    let gate = Some(gate(config)?).filter(|_| gated.unwrap_or(true));
    let sinks = config.field_or("learnable_sink", true)?.then_some("sinks");
    for layer in &mut spec.attention {
        layer.gate = gate;
        layer.sinks = sinks;
    }
    let rotated = if interleaved { RotatedPart::LastPairs } else { RotatedPart::LastHalves };
    let indexer = IndexerSpec { heads: 16, dim: 128, rotated, eps, pool: None };
    set_selection(config, &mut spec, &layers_that_choose(config)?, indexer)?;
    if config.field_or("enable_ihc", true)? {
        let eps = config.number_or("hc_eps", 1e-6)?;
        spec.hyper_connections = Some(HyperConnectionsSpec {
            count: config.size_or("hc_mult", 4, 1..=MAX_STREAMS)?,
            magnitude: config.number_or("hc_magnitude", 2.0)?,
            eps: [eps, eps],
            mixing: None,
            tensors: [
                ["attn_hc.fn", "attn_hc.base", "attn_hc.scale"],
                ["ffn_hc.fn", "ffn_hc.base", "ffn_hc.scale"],
            ],
            weighted_head: true,
        });
    }
    Ok(spec)
}

/// The gate of what heads give.
fn gate(config: &HfConfig) -> Result<HeadGate> {
    let name = "gating_type";
    let tensor = match config.field::<String>(name)?.as_deref() {
        None | Some("elementwise") => GateTensor::Elements("gate_proj"),
        Some("headwise") => GateTensor::Heads("gate_proj"),
        Some(other) => return Err(bad(name, other, "supported are elementwise and headwise")),
    };
    Ok(HeadGate::sigmoid(tensor))
}

/// Which layers choose what they see by themselves, and don't see what the layer before them saw; `None`: a layer that
/// sees all. A file that doesn't say it has kinds of layers, or what transformers takes: the first layer, the second
/// one and each fourth from there on choose.
fn layers_that_choose(config: &HfConfig) -> Result<Vec<Option<bool>>> {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Full,
        Chooses,
        Default,
    }
    if let Some(listed) = listed_indexers(config)? {
        return Ok(listed.into_iter().map(Some).collect());
    }
    let words = [
        ("full_attention", Kind::Full),
        ("sparse_attention", Kind::Chooses),
        ("deepseek_sparse_attention", Kind::Chooses),
        ("indexed_attention", Kind::Default),
    ];
    let supported = "full_attention, indexed_attention and deepseek_sparse_attention";
    let kinds = config.layer_kinds(&words, supported)?;
    let kinds = kinds.unwrap_or_else(|| vec![Kind::Default; config.num_hidden_layers]);
    let chooses = |(layer, kind): (usize, &Kind)| match kind {
        Kind::Full => None,
        Kind::Chooses => Some(true),
        Kind::Default => Some(layer == 0 || (layer - 1).is_multiple_of(4)),
    };
    Ok(kinds.iter().enumerate().map(chooses).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::models::tests::{fields_of_fixture, spec_of_fields};

    fn changed(change: &serde_json::Value) -> DecoderSpec {
        let mut fields = fields_of_fixture("hy_v4");
        fields.extend(change.as_object().unwrap().clone());
        spec_of_fields(&fields)
    }

    #[test]
    fn the_references_files_rotate_pairs_and_say_what_there_is() {
        let own = changed(&json!({}));
        let published = changed(&json!({"gated_mla": true, "enable_ihc": true}));
        assert_eq!(
            [&own, &published].map(|spec| spec.attention[0].interleaved_rope),
            [None, Some(4)]
        );
        let rotated = |spec: &DecoderSpec| {
            let selection = spec.attention[0].latent.and_then(|latent| latent.selection);
            selection.and_then(|selection| selection.indexer).map(|indexer| indexer.rotated)
        };
        assert_eq!(rotated(&own), Some(RotatedPart::LastHalves));
        assert_eq!(rotated(&published), Some(RotatedPart::LastPairs));
        assert!(published.hyper_connections.is_some() && published.attention[0].gate.is_some());
        let plain = changed(&json!({
            "gated_mla": false, "enable_ihc": false, "learnable_sink": false, "swiglu_limit": 0.0,
            "indexer_types": null, "layer_types": vec!["full_attention"; 3],
        }));
        assert!(plain.hyper_connections.is_none() && plain.attention[0].gate.is_none());
        assert!(plain.attention[0].sinks.is_none());
        assert_eq!(plain.moe.unwrap().expert.gating, None);
        assert!(plain.attention.iter().all(|layer| layer.latent.unwrap().selection.is_none()));
    }
}
