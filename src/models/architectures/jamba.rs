//! Jamba: most layers have a selective scan instead of attention, which is not rotated; every second
//! one has experts.

use crate::layers::moe::ExpertTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, Names, Result,
    SelectiveScanFields, base, experts, layers_with_experts, remove_rope, scans,
    state_space_layers,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("JambaForCausalLM", spec)];

/// Fields of the scans.
pub(super) const FIELDS: SelectiveScanFields = SelectiveScanFields {
    expand: "mamba_expand",
    state_size: "mamba_d_state",
    rank: "mamba_dt_rank",
    taps: "mamba_d_conv",
    conv_bias: "mamba_conv_bias",
    bias: "mamba_proj_bias",
    activation: "hidden_act",
    heads: None,
};

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { kv_heads: Some(8), context: 262_144, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names { norm: "final_layernorm", mlp: "feed_forward", ..Names::COMMON };
    spec.block = Block::pre_norm("input_layernorm", "pre_ff_layernorm");
    remove_rope(&mut spec);
    let scanned = if config.layer_types.is_some() {
        state_space_layers(config)?
    } else {
        let attends = every(config, ["attn_layer_period", "attn_layer_offset"], [8, 4])?;
        attends.into_iter().map(|attends| !attends).collect()
    };
    spec.recurrent = scans(config, &FIELDS, Some(spec.norm), scanned, "mamba")?;
    if config.field_or("num_experts", 16usize)? > 1 {
        let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
        moe.layers = match layers_with_experts(config)? {
            Some(listed) => listed,
            None => every(config, ["expert_layer_period", "expert_layer_offset"], [2, 1])?,
        };
        moe.router = "feed_forward.router";
        moe.experts = ExpertTensors::List("feed_forward.experts");
        spec.moe = Some(moe);
    }
    Ok(spec)
}

/// Whether the remainder of each layer's index by a period is an offset.
fn every(config: &HfConfig, names: [&'static str; 2], defaults: [usize; 2]) -> Result<Vec<bool>> {
    let period = config.size_or(names[0], defaults[0], 1..=1 << 12)?;
    let offset = config.field_or(names[1], defaults[1])?;
    Ok((0..config.num_hidden_layers).map(|layer| layer % period == offset).collect())
}
