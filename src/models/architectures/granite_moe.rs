//! Granite with experts: Granite's factors, experts in two stacked tensors, and softmax over the
//! chosen ones only (which is softmax over all, then divided by their sum).

use super::granite;
use crate::layers::moe::StackedTensors;
use crate::models::ModelError;
use crate::models::common::experts::{FIELDS, Fields, experts, stacked};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `GraniteMoeForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
