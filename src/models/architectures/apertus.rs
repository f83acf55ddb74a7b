//! Apertus 1 and the language model of 1.5: Llama with norms of query and key heads, and an ungated feed-forward part with xIELU,
//! an activation with learned parameters (Huang and Schlag, "Deriving Activation Functions Using
//! Integration", 2024). The output head of 1.5 may have rows of the first tokens alone.

use crate::layers::attention::NormSpan;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, bad, base,
    read_attention_bias, set_query_key_norm,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("ApertusForCausalLM", spec),
    Architecture::new("Apertus1p5TextForCausalLM", spec_1_5),
];

fn spec_1_5(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    let rows = spec.vocab_size;
    spec.vocab_size = config.size_or("output_vocab_size", rows, 1..=rows)?;
    spec.embedding_rows = (spec.vocab_size < rows).then_some(rows);
    if spec.tied_embeddings && spec.embedding_rows.is_some() {
        let bound = format!("must be false for a head of fewer than {rows} rows");
        return Err(bad("tie_word_embeddings", true, bound));
    }
    Ok(spec)
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let activation = config.hidden_act.as_deref().unwrap_or("xielu");
    if activation != "xielu" {
        return Err(bad("hidden_act", activation, "supported is xielu"));
    }
    config.only("post_norm", false)?;
    config.only("qk_norm", true)?;
    let rope = RopeDefaults { theta: 12_000_000.0, ..Defaults::LLAMA.rope };
    let defaults = Defaults { context: 65536, norm_eps: 1e-5, rope, ..Defaults::LLAMA };
    let mut plain = config.clone();
    plain.hidden_act = None;
    let mut spec = base(&plain, &defaults)?;
    read_attention_bias(config, &mut spec);
    spec.block = Block::pre_norm("attention_layernorm", "feedforward_layernorm");
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    spec.mlp.learned_activation = Some("act_fn");
    set_query_key_norm(&mut spec, NormSpan::Head);
    Ok(spec)
}
