//! Zamba2: state spaces in all layers, some of which get more input from one of a few blocks of attention
//! and a feed-forward part. Those see hidden states beside the embeddings; layers share their weights but
//! for changes of low rank.

use crate::kernels::paged_attention::AttentionParams;
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::recurrent::CellSpec;
use crate::models::common::{
    Architecture, BlockUse, DecoderSpec, Defaults, HfConfig, MAX_SIZE, Names, RawFields, Result,
    SharedBlocks, StateSpaceFields, base, recurrent, remove_rope, scale,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("Zamba2ForCausalLM", spec).completed_by(complete)];

/// Fields of the state spaces.
const SPACE: StateSpaceFields = StateSpaceFields {
    heads: "n_mamba_heads",
    head_dim: "mamba_headdim",
    state_size: ("mamba_d_state", 64),
    groups: ("mamba_ngroups", 1),
    taps: "mamba_d_conv",
    expand: Some("mamba_expand"),
    conv_bias: "mamba_conv_bias",
    bias: "add_bias_linear",
    activation: "mamba_hidden_act",
};

/// The layers with a block in files that don't list them.
const HYBRID: [usize; 9] = [6, 12, 18, 24, 30, 36, 42, 47, 51];

/// Zamba2's names of common fields; heads of attention have elements of hidden states and embeddings.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("layer_types", "layers_block_type");
    fields.multiple("intermediate_size", "hidden_size", 4);
    fields.multiple("attention_hidden_size", "hidden_size", 2);
    fields.alias("head_dim", "attention_head_dim");
    fields.quotient("head_dim", "attention_hidden_size", "num_attention_heads");
    fields.multiple("mamba_inner", "hidden_size", 2);
    fields.quotient("mamba_headdim", "mamba_inner", "n_mamba_heads");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_long_context", false)?;
    let defaults = Defaults {
        context: 4096,
        norm_eps: 1e-5,
        tied: true,
        activation: "gelu",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_attention(&mut spec);
    if !config.field_or("use_mem_rope", false)? {
        remove_rope(&mut spec);
    }
    let layers = vec![true; config.num_hidden_layers];
    spec.recurrent = recurrent(config, &SPACE, 1e-5, layers, "mamba")?;
    if let Some(CellSpec::StateSpace(space)) = spec.recurrent.as_mut().map(|own| &mut own.cell) {
        space.step_limits[0] = config.number_or("time_step_min", 0.001)?;
    }
    let hybrid = hybrid_layers(config, |layer| HYBRID.contains(&layer))?;
    let count = config.size_or("num_mem_blocks", 1, 1..=MAX_SIZE)?;
    spec.shared_blocks = Some(SharedBlocks {
        of_layers: blocks(hybrid, spec.tied_embeddings, count),
        name: "shared_transformer",
        projection: "linear",
        rest: "mamba_decoder",
        mlp: MlpSpec {
            bias: config.field_or("add_bias_linear", false)?,
            tensors: MlpTensors::GateAndUp(["gate_up_proj", "down_proj"]),
            ..spec.mlp
        },
        rank: Some(config.size_or("adapter_rank", 128, 1..=MAX_SIZE)?),
        changes_attention: config.field_or("use_shared_attention_adapter", false)?,
    });
    Ok(spec)
}

/// Leaves attention and feed-forward parts to the blocks; heads see embeddings too, and are scaled by half their size.
pub(super) fn set_attention(spec: &mut DecoderSpec) {
    spec.names = Names { norm: "final_layernorm", ..Names::COMMON };
    for layer in &mut spec.attention {
        layer.params = AttentionParams::full(scale(layer.head_dim / 2));
    }
    spec.block.before_mlp = None;
    spec.intermediate_sizes = Some(vec![0; spec.attention.len()]);
}

/// Whether each layer has a block: by `layer_types`, else by `default` of its index.
pub(super) fn hybrid_layers(
    config: &HfConfig,
    default: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    let kinds = [("mamba", false), ("linear_attention", false), ("hybrid", true)];
    let hybrid = config.layer_kinds(&kinds, "mamba, linear_attention and hybrid")?;
    Ok(hybrid.unwrap_or_else(|| (0..config.num_hidden_layers).map(default).collect()))
}

/// The block of each layer: those that have one take turns with `count` of them, unless weights are not
/// `tied`, embeddings among them; each has its own then.
pub(super) fn blocks(hybrid: Vec<bool>, tied: bool, count: usize) -> Vec<Option<BlockUse>> {
    let mut owners: Vec<usize> = Vec::new();
    let block = |(layer, hybrid): (usize, bool)| {
        hybrid.then(|| {
            owners.push(layer);
            let index = owners.len() - 1;
            BlockUse { owner: if tied { owners[index % count] } else { layer }, index }
        })
    };
    hybrid.into_iter().enumerate().map(block).collect()
}
