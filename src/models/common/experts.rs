//! The mixture of experts that an architecture's own file starts from.

use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{
    CorrectionBias, ExpertTensors, Extra, Groups, MoeSpec, Routing, Score, SharedExpert,
    StackedTensors,
};
use crate::models::config::{HfConfig, MAX_SIZE};
use crate::models::decoder::DecoderSpec;
use crate::models::error::{Result, bad};

/// The most experts of a layer.
const MAX_EXPERTS: usize = 1 << 12;

/// Names of the fields that size experts.
pub(crate) struct ExpertFields {
    /// Elements between the projections of an expert.
    pub(crate) inner: &'static str,
    /// Number of experts that a token is routed to.
    pub(crate) chosen: &'static str,
}

impl ExpertFields {
    /// The most common names.
    pub(crate) const COMMON: Self =
        Self { inner: "moe_intermediate_size", chosen: "num_experts_per_tok" };
    /// The names in models without dense layers, where experts have the size of a feed-forward
    /// part.
    pub(crate) const ALL_SPARSE: Self = Self { inner: "intermediate_size", ..Self::COMMON };
}

/// Experts in every layer, chosen by softmax: `mlp.gate` and `mlp.experts`.
pub(crate) fn experts(
    config: &HfConfig,
    spec: &DecoderSpec,
    fields: &ExpertFields,
) -> Result<MoeSpec> {
    let num_experts = num_experts(config)?;
    let intermediate_size = config.size(fields.inner, MAX_SIZE)?;
    Ok(MoeSpec {
        layers: vec![true; config.num_hidden_layers],
        num_experts,
        extra: Extra::Identities(0),
        expert: MlpSpec { intermediate_size, bias: false, ..spec.mlp },
        experts: ExpertTensors::List("mlp.experts"),
        router: "mlp.gate",
        remembering: None,
        router_bias: false,
        router_weight_on_input: false,
        correction_bias: None,
        routing: Routing {
            score: Score::Softmax,
            experts_per_token: config.size(fields.chosen, num_experts)?,
            groups: None,
            renormalize: config.field_or("norm_topk_prob", false)?,
            scale: 1.0,
        },
        shared: None,
        output_bias: None,
        parallel_dense: None,
    })
}

/// Scores experts by sigmoids with a correction bias, stored as `bias`; weights are renormalized
/// unless `norm_topk_prob` says otherwise, and scaled.
pub(crate) fn set_sigmoid_routing(
    config: &HfConfig,
    moe: &mut MoeSpec,
    bias: &'static str,
    renormalize: bool,
) -> Result<()> {
    moe.correction_bias = Some(CorrectionBias { name: bias, one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.renormalize = config.field_or("norm_topk_prob", renormalize)?;
    moe.routing.scale = config.number_or("routed_scaling_factor", 1.0)?;
    Ok(())
}

/// Whether the checkpoint is a GGUF file whose experts our reader has separated.
pub(crate) fn are_separate(config: &HfConfig) -> Result<bool> {
    config.field_or("experts_apart", false)
}

/// Experts in stacked `tensors`, or in `list` where [`are_separate`].
pub(crate) fn stacked(
    config: &HfConfig,
    tensors: StackedTensors,
    list: &'static str,
) -> Result<ExpertTensors> {
    let separate = are_separate(config)?;
    Ok(if separate { ExpertTensors::List(list) } else { ExpertTensors::Stacked(tensors) })
}

/// Whether each layer has experts, by `mlp_layer_types`; `None` if the file has no such list.
pub(crate) fn layers_with_experts(config: &HfConfig) -> Result<Option<Vec<bool>>> {
    let name = "mlp_layer_types";
    let Some(words) = config.field::<Vec<String>>(name)? else { return Ok(None) };
    if words.len() != config.num_hidden_layers {
        let bound = format!("must name {} layers", config.num_hidden_layers);
        return Err(bad(name, words.len(), bound));
    }
    let kind = |word: &String| match word.as_str() {
        "dense" => Ok(false),
        "sparse" => Ok(true),
        _ => Err(bad(name, word, "supported are dense and sparse")),
    };
    words.iter().map(kind).collect::<Result<_>>().map(Some)
}

/// A shared expert in `mlp.shared_experts`, as wide as `count` routed ones.
pub(crate) fn shared_experts(moe: &MoeSpec, count: usize) -> Option<SharedExpert> {
    let intermediate_size = moe.expert.intermediate_size * count;
    (count > 0).then_some(SharedExpert {
        name: "mlp.shared_experts",
        mlp: MlpSpec { intermediate_size, ..moe.expert },
        gate: None,
        factor: 1.0,
    })
}

/// Number of experts of a layer, which versions of the same class call differently.
fn num_experts(config: &HfConfig) -> Result<usize> {
    for name in ["num_local_experts", "n_routed_experts", "moe_num_experts"] {
        if config.field::<usize>(name)?.is_some() {
            return config.size(name, MAX_EXPERTS);
        }
    }
    config.size("num_experts", MAX_EXPERTS)
}

/// Group-limited routing by `n_group` and `topk_group`, if it limits anything.
pub(crate) fn groups(config: &HfConfig, num_experts: usize) -> Result<Option<Groups>> {
    let count = config.field_or("n_group", 1)?;
    let chosen = config.field_or("topk_group", 1)?;
    if count == 0 || !num_experts.is_multiple_of(count) {
        return Err(bad("n_group", count, format!("must divide {num_experts} experts")));
    }
    if chosen == 0 || chosen > count {
        return Err(bad("topk_group", chosen, format!("must be 1 to `n_group` = {count}")));
    }
    Ok((chosen < count).then_some(Groups { count, chosen, best: 2 }))
}
