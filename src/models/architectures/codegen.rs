//! CodeGen: GPT-J whose queries, values and keys are in one tensor, in the four parts that it was
//! trained in.

use super::{gpt2, gptj};
use crate::layers::attention::QkvTensors;
use crate::models::common::{Architecture, DecoderSpec, HfConfig, Result, bad};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("CodeGenForCausalLM", spec).completed_by(gpt2::complete)];

/// Parts of the tensor, of which each was on a device of its own.
const PARTS: usize = 4;

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = gptj::spec(config)?;
    let heads = config.num_attention_heads;
    if !heads.is_multiple_of(PARTS) {
        return Err(bad("n_head", heads, format!("must be a multiple of {PARTS}")));
    }
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::InParts("qkv_proj", PARTS);
    }
    Ok(spec)
}
