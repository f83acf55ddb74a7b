//! Granite with experts: Granite's multipliers, experts in two stacked tensors, and softmax over
//! the chosen ones only (which is softmax over all, then divided by their sum).

use super::granite;
use crate::layers::moe::{MoeSpec, StackedTensors};
use crate::models::common::{
    self, Architecture, DecoderSpec, ExpertFields, HfConfig, Result, stacked,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("GraniteMoeForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = granite::spec(config)?;
    spec.moe = Some(experts(config, &spec)?);
    Ok(spec)
}

/// Granite's experts.
pub(super) fn experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let mut moe = common::experts(config, spec, &ExpertFields::ALL_SPARSE)?;
    moe.router = "block_sparse_moe.router.layer";
    let tensors = StackedTensors::new([
        "block_sparse_moe.input_linear.weight",
        "block_sparse_moe.output_linear.weight",
    ]);
    moe.experts = stacked(config, tensors, "block_sparse_moe.experts")?;
    moe.routing.renormalize = true;
    Ok(moe)
}
