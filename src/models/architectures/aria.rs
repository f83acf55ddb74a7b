//! The language model of Aria: Llama with experts in every layer, chosen by the softmax of the best
//! scores alone, beside shared ones.

use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Names, RawFields, Result, base,
    experts, read_biases, shared_experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("AriaTextForCausalLM", spec).completed_by(complete),
    Architecture::new("AriaForConditionalGeneration", spec).completed_by(complete),
];

const EXPERTS: StackedTensors = StackedTensors {
    transposed: true,
    ..StackedTensors::new(["mlp.experts.fc1.weight", "mlp.experts.fc2.weight"])
};

fn complete(fields: &mut RawFields<'_>) {
    fields.alias("num_experts_per_tok", "moe_topk");
    fields.default("num_experts_per_tok", 2);
    fields.default("moe_num_experts", 8);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    read_biases(config, &mut spec);
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.experts = ExpertTensors::Stacked(EXPERTS);
    moe.router = "mlp.router";
    // Softmax over the chosen experts is softmax over all, divided by the sum of the chosen.
    moe.routing.renormalize = true;
    moe.shared = shared_experts(&moe, config.field_or("moe_num_shared_experts", 2)?);
    spec.moe = Some(moe);
    Ok(spec)
}
