//! GPT-BigCode (StarCoder, SantaCoder): GPT-2 with one key and value head for all queries, and matrices
//! in the common order.

use super::gpt2;
use crate::layers::attention::QkvTensors;
use crate::models::common::{Architecture, DecoderSpec, HfConfig, RawFields, Result};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("GPTBigCodeForCausalLM", spec).completed_by(complete)];

fn complete(fields: &mut RawFields<'_>) {
    gpt2::complete(fields);
    fields.default("hidden_act", "gelu_pytorch_tanh");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = gpt2::spec(config)?;
    spec.transposed_matrices = false;
    let shared = config.field_or("multi_query", true)?;
    for layer in &mut spec.attention {
        if shared {
            layer.num_kv_heads = 1;
        } else {
            layer.qkv = QkvTensors::Grouped("c_attn");
        }
    }
    Ok(spec)
}
