//! GPT-J: attention parallel to an ungated feed-forward part, both behind one layer norm, an
//! interleaved rotary embedding of the first elements of each head, and a head with a bias.

use super::gpt2;
use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, Head, HfConfig, Names, Result, RopeDefaults, bad,
    base, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("GPTJForCausalLM", spec).completed_by(gpt2::complete)];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let head_dim = config.head_dim(None)?;
    let rotated = config.field_or("rotary_dim", head_dim)?;
    if rotated > head_dim || !rotated.is_multiple_of(2) || rotated == 0 {
        let bound = format!("must be an even number up to {head_dim}, the elements of a head");
        return Err(bad("rotary_dim", rotated, bound));
    }
    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
    let share = rotated as f64 / head_dim as f64;
    let defaults = Defaults {
        activation: "gelu_new",
        rope: RopeDefaults { share, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.names = Names {
        roots: &["transformer.", ""],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn",
        ..Names::COMMON
    };
    spec.block = Block { before_attention: Some("ln_1"), ..Block::PARALLEL };
    spec.head = Head::Biased;
    spec.mlp.bias = true;
    spec.mlp.tensors = MlpTensors::Plain(["fc_in", "fc_out"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Separate(["q_proj", "k_proj", "v_proj"]);
        layer.output = "out_proj";
        layer.interleaved_rope = Some(rotated);
    }
    Ok(spec)
}
