//! ZAYA: convolutional attention, of whose heads a half is rotated, some layers within a sliding window, and experts
//! of which each token has one or none. A router remembers what the router of the layer before it saw.

use crate::layers::attention::{ConvolutionSpec, NormSpan, QueryKeyNorm};
use crate::layers::moe::{CorrectionBias, ExpertTensors, Extra, RememberingRouter, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, Head, HfConfig, LearnedSums, RawFields,
    Result, RopeDefaults, base, experts, read_attention_bias, set_windows,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("ZayaForCausalLM", spec).completed_by(complete)];

const ROPE: RopeDefaults = RopeDefaults { theta: 5_000_000.0, share: 0.5, partial: true };
const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);
/// The least mean square of a head that is normalized.
const LEAST: f32 = 1e-14;
const MAX_ROUTER: usize = 1 << 14;

/// There is no dense part whose size files would have.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("intermediate_size", "moe_intermediate_size");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(2),
        context: 131_072,
        norm_eps: 1e-5,
        tied: true,
        rope: ROPE,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    for name in ["cca_time0", "cca_time1"] {
        config.only(name, 2usize)?;
    }
    config.only("num_experts_per_tok", 1usize)?;
    read_attention_bias(config, &mut spec);
    let head_dim = config.head_dim(None)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, ROPE, 10_000.0)?.to_vec();
    let words = [("hybrid", false), ("hybrid_sliding", true)];
    let windowed = config.layer_kinds(&words, "hybrid and hybrid_sliding")?;
    let windowed = windowed.unwrap_or_else(|| vec![false; config.num_hidden_layers]);
    set_windows(config, &mut spec, &windowed, None)?;
    // Of length one, times the root of their number of elements.
    let norm = NormSpec { scale: NormScale::One, ..NormSpec::rms(LEAST) };
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
        layer.query_key_norm = Some(QueryKeyNorm { norm, over: NormSpan::Head, tensors: [""; 2] });
        layer.convolution = Some(ConvolutionSpec {
            module: "qkv_proj",
            projections: ["q_proj", "k_proj", "v_proj_current", "v_proj_delayed"],
            convolutions: ["conv_qk_depthwise", "conv_qk_grouped"],
            key_factors: "qk_norm.temp",
        });
    }
    spec.learned_sums =
        Some(LearnedSums::Affine(["post_attention_residual_scale", "post_mlp_residual_scale"]));
    spec.embedding_sum = Some(["input_hidden_states_bias", "input_hidden_states_scale"]);
    if config.field_or("lm_head_bias", false)? {
        spec.head = Head::Biased;
    }
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    moe.extra = Extra::Nothing(1);
    moe.router = "mlp.gate";
    moe.remembering = Some(RememberingRouter {
        width: config.size_or("router_hidden_size", 256, 1..=MAX_ROUTER)?,
        norm: spec.norm,
    });
    let name = "mlp.gate.balancing_biases";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.routing.renormalize = false;
    spec.moe = Some(moe);
    Ok(spec)
}
