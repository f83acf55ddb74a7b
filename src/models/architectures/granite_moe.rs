//! Granite with experts: Granite's multipliers, experts in two stacked tensors, and softmax over
//! the chosen ones only (which is softmax over all, then divided by their sum). A second class has a
//! shared expert beside them, a third also has Granite's sliding windows.

use super::granite;
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{MoeSpec, SharedExpert, StackedTensors};
use crate::models::common::{
    self, Architecture, DecoderSpec, ExpertFields, HfConfig, MAX_SIZE, Result, are_separate,
    check_size, stacked,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("GraniteMoeForCausalLM", spec),
    Architecture::new("GraniteMoeSharedForCausalLM", shared),
    Architecture::new("GraniteMoeSWAForCausalLM", windowed),
];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = granite::spec(config)?;
    spec.moe = Some(experts(config, &spec)?);
    Ok(spec)
}

fn shared(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    set_shared_expert(config, &mut spec)?;
    Ok(spec)
}

fn windowed(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = shared(config)?;
    granite::set_windows(config, &mut spec)?;
    if let Some(moe) = &mut spec.moe {
        moe.router = "block_sparse_moe.router";
        let tensors = StackedTensors::new([
            "block_sparse_moe.experts.gate_up_proj",
            "block_sparse_moe.experts.down_proj",
        ]);
        moe.experts = stacked(config, tensors, "block_sparse_moe.experts")?;
    }
    Ok(spec)
}

/// The shared expert, of a size of its own; none if that is 0.
fn set_shared_expert(config: &HfConfig, spec: &mut DecoderSpec) -> Result<()> {
    let name = "shared_intermediate_size";
    let intermediate_size = check_size(name, config.field_or(name, 0)?, 0..=MAX_SIZE)?;
    let Some(moe) = spec.moe.as_mut().filter(|_| intermediate_size > 0) else { return Ok(()) };
    let mut mlp = MlpSpec { intermediate_size, ..moe.expert };
    if !are_separate(config)? {
        mlp.tensors = MlpTensors::GateAndUp(["input_linear", "output_linear"]);
    }
    moe.shared = Some(SharedExpert { name: "shared_mlp", mlp, gate: None, factor: 1.0 });
    Ok(())
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
