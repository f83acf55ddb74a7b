//! Doge: norms of query and key heads, scores that each key has a bias of by its token's values, and hidden
//! states with learned factors in sums. Of contexts longer than a number that files name, only that many of
//! the keys with the largest biases would be seen.

use crate::layers::attention::{NormSpan, ValueBias};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, LearnedSums, LongerContexts, MAX_SIZE, Result,
    base, read_biases, set_query_key_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("DogeForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    // The experts' router mixes up the tokens of a step, so that they would depend on how a text is cut.
    config.only("is_moe", false)?;
    let mut spec = base(config, &Defaults::LLAMA)?;
    read_biases(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    let window = config.sliding_window.flatten();
    for layer in &mut spec.attention {
        layer.value_bias = Some(ValueBias { projection: "dt_proj", rate: "A" });
        layer.params.window = window;
    }
    spec.learned_sums = Some(LearnedSums::Factors(["input_residual", "post_attention_residual"]));
    let seen = config.size_or("keep_window_size", 2048, 1..=MAX_SIZE)?;
    let declared = spec.max_position_embeddings;
    if seen < declared {
        spec.max_position_embeddings = seen;
        let reason = "in longer ones each token would see only some of those before it";
        spec.longer_contexts = Some(LongerContexts { declared, reason });
    }
    Ok(spec)
}
