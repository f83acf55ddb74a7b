//! OLMoE: Llama with norms of all query heads and all key heads at once, whose results may be
//! bounded, and experts in every layer.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::common::experts::{FIELDS, Fields, experts};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `OlmoeForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults { context: 4096, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    let clip = config.positive("clip_qkv")?;
    for layer in &mut spec.attention {
        layer.clip = clip;
        layer.query_key_norm =
            Some(QueryKeyNorm { over: NormSpan::AllHeads, ..QueryKeyNorm::of_heads(spec.norm) });
    }
    let fields = Fields { inner: "intermediate_size", ..FIELDS };
    spec.moe = Some(experts(config, &spec, &fields)?);
    Ok(spec)
}
