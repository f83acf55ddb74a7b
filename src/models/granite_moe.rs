//! Granite with experts: Granite's factors, experts in two stacked tensors, and softmax over the
//! chosen ones only (which is softmax over all, then divided by their sum).

use super::ModelError;
use super::config::HfConfig;
use super::decoder::DecoderSpec;
use super::experts::{FIELDS, Fields, experts, stacked};
use super::granite;
use crate::layers::moe::StackedTensors;

/// What `GraniteMoeForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = granite::spec(config)?;
    let fields = Fields { inner: "intermediate_size", ..FIELDS };
    let mut moe = experts(config, &spec, &fields)?;
    moe.router = "block_sparse_moe.router.layer";
    let tensors = StackedTensors::new([
        "block_sparse_moe.input_linear.weight",
        "block_sparse_moe.output_linear.weight",
    ]);
    moe.experts = stacked(config, tensors, "block_sparse_moe.experts")?;
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
