//! Falcon-H1: attention and a state space side by side in every layer, and multipliers of nearly
//! everything. Most files have no norm behind the state space.

use crate::layers::recurrent::{CellSpec, SpaceNorm};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults,
    StateSpaceFields, bad, base, read_biases, recurrent,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("FalconH1ForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 8192,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 100_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    spec.names = Names { norm: "final_layernorm", mlp: "feed_forward", ..Names::COMMON };
    spec.block = Block::pre_norm("input_layernorm", "pre_ff_layernorm");
    spec.embedding_scale = config.number_or("embedding_multiplier", 1.0)?;
    spec.logit_scale = config.number_or("lm_head_multiplier", 1.0)?;
    let [gate, down] = numbers(config, "mlp_multipliers", [1.0; 2])?;
    spec.mlp.gate_factor = gate;
    spec.block.mlp_scale = down;
    let input = config.number_or("attention_in_multiplier", 1.0)?;
    if input.to_bits() != 1.0f32.to_bits() && config.attention_bias == Some(true) {
        let bound = "must be 1 where attention has biases";
        return Err(bad("attention_in_multiplier", input, bound));
    }
    // Queries and keys are products of the input, values are another: its factor is that of scores
    // twice and of the output once.
    let keys = config.number_or("key_multiplier", 1.0)?;
    for layer in &mut spec.attention {
        layer.params.scale *= input * input * keys;
    }
    let outputs = [
        input * config.number_or("attention_out_multiplier", 1.0)?,
        config.number_or("ssm_out_multiplier", 1.0)?,
    ];
    set_state_space(config, &mut spec, outputs)?;
    Ok(spec)
}

/// State spaces beside the attention of all layers.
fn set_state_space(config: &HfConfig, spec: &mut DecoderSpec, outputs: [f32; 2]) -> Result<()> {
    let size = config.field::<usize>("mamba_d_ssm")?;
    let expand = size.is_none().then_some("mamba_expand");
    let fields = StateSpaceFields { expand, ..StateSpaceFields::HYBRID };
    let layers = vec![true; config.num_hidden_layers];
    let Some(mut own) = recurrent(config, &fields, spec.norm.eps, layers, "mamba")? else {
        return Ok(());
    };
    own.output_bias = config.field_or("projectors_bias", false)?;
    own.beside_attention = Some(outputs);
    let CellSpec::StateSpace(space) = &mut own.cell else { return Ok(()) };
    if let Some(size) = size.filter(|size| *size != space.heads * space.head_dim) {
        let bound = format!("must be {} heads of {} elements", space.heads, space.head_dim);
        return Err(bad("mamba_d_ssm", size, bound));
    }
    let normalizes = config.field_or("mamba_rms_norm", false)?;
    let before_gate = config.field_or("mamba_norm_before_gate", true)?;
    space.norm = normalizes.then_some(SpaceNorm { eps: spec.norm.eps, before_gate });
    let input = config.number_or("ssm_in_multiplier", 1.0)?;
    let factors = numbers(config, "ssm_multipliers", [1.0; 5])?;
    space.factors = Some(factors.map(|factor| factor * input));
    if space.bias && input.to_bits() != 1.0f32.to_bits() {
        return Err(bad("ssm_in_multiplier", input, "must be 1 where the input has biases"));
    }
    spec.recurrent = Some(own);
    Ok(())
}

/// So many finite numbers.
fn numbers<const N: usize>(
    config: &HfConfig,
    name: &'static str,
    default: [f32; N],
) -> Result<[f32; N]> {
    let Some(given) = config.field::<Vec<f64>>(name)? else { return Ok(default) };
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    let narrow: Vec<f32> = given.iter().map(|number| *number as f32).collect();
    match <[f32; N]>::try_from(narrow) {
        Ok(numbers) if numbers.iter().all(|number| number.is_finite()) => Ok(numbers),
        _ => Err(bad(name, format!("{given:?}"), format!("must be {N} finite numbers"))),
    }
}
