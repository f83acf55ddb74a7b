//! Experts as most files describe them; each architecture's own file changes what it has otherwise.

use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{
    ExpertTensors, Groups, MoeSpec, Routing, Score, SharedExpert, StackedTensors,
};
use crate::models::ModelError;
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;

/// No layer has more experts.
const MAX_EXPERTS: usize = 1 << 12;

/// Names of the fields that count experts.
pub(crate) struct Fields {
    /// Elements inside of one.
    pub(crate) inner: &'static str,
    /// Experts that a token goes to.
    pub(crate) chosen: &'static str,
}

/// The most common ones.
pub(crate) const FIELDS: Fields =
    Fields { inner: "moe_intermediate_size", chosen: "num_experts_per_tok" };

/// Experts in every layer, chosen by softmax: `mlp.gate` and `mlp.experts`.
pub(crate) fn experts(
    config: &HfConfig,
    spec: &DecoderSpec,
    fields: &Fields,
) -> Result<MoeSpec, ModelError> {
    let num_experts = num_experts(config)?;
    let intermediate_size = count(config, fields.inner, 1 << 28)?;
    let experts_per_token = count(config, fields.chosen, num_experts)?;
    Ok(MoeSpec {
        layers: vec![true; config.num_hidden_layers],
        num_experts,
        expert: MlpSpec { intermediate_size, bias: false, ..spec.mlp },
        experts: ExpertTensors::List("mlp.experts"),
        router: "mlp.gate",
        router_bias: false,
        weighs_inputs: false,
        choice_bias: None,
        routing: Routing {
            score: Score::Softmax,
            experts_per_token,
            groups: None,
            renormalize: config.field("norm_topk_prob")?.unwrap_or(false),
            scale: 1.0,
        },
        shared: None,
        beside: None,
    })
}

/// Experts in these tensors; files of other formats may have those of every expert apart, in `list`.
pub(crate) fn stacked(
    config: &HfConfig,
    tensors: StackedTensors,
    list: &'static str,
) -> Result<ExpertTensors, ModelError> {
    let apart = config.field("experts_apart")?.unwrap_or(false);
    Ok(if apart { ExpertTensors::List(list) } else { ExpertTensors::Stacked(tensors) })
}

/// `mlp.shared_experts`: what all tokens go through, as wide as `count` of the experts.
pub(crate) fn shared_experts(moe: &MoeSpec, count: usize) -> Option<SharedExpert> {
    let intermediate_size = moe.expert.intermediate_size * count;
    (count > 0).then_some(SharedExpert {
        name: "mlp.shared_experts",
        mlp: MlpSpec { intermediate_size, ..moe.expert },
        gate: None,
    })
}

/// Experts of a layer, which different versions of the same class count under different names.
fn num_experts(config: &HfConfig) -> Result<usize, ModelError> {
    for name in ["num_local_experts", "n_routed_experts", "moe_num_experts"] {
        if config.field::<usize>(name)?.is_some() {
            return count(config, name, MAX_EXPERTS);
        }
    }
    count(config, "num_experts", MAX_EXPERTS)
}

/// A field that must be there, from 1 to `most`.
pub(crate) fn count(
    config: &HfConfig,
    name: &'static str,
    most: usize,
) -> Result<usize, ModelError> {
    match config.field::<usize>(name)? {
        Some(count) if (1..=most).contains(&count) => Ok(count),
        Some(count) => Err(bad(name, count, format!("must be 1 to {most}"))),
        None => Err(bad(name, "absent", format!("must be 1 to {most}"))),
    }
}

/// The groups of `n_group` and `topk_group`, if there are several.
pub(crate) fn groups(config: &HfConfig, num_experts: usize) -> Result<Option<Groups>, ModelError> {
    let count = config.field::<usize>("n_group")?.unwrap_or(1);
    let chosen = config.field::<usize>("topk_group")?.unwrap_or(1);
    if count == 0 || !num_experts.is_multiple_of(count) {
        return Err(bad("n_group", count, format!("must divide {num_experts} experts")));
    }
    if chosen == 0 || chosen > count {
        return Err(bad("topk_group", chosen, format!("must be 1 to `n_group` = {count}")));
    }
    Ok((chosen < count).then_some(Groups { count, chosen, best: 2 }))
}
