//! Zamba: selective scans in all layers, whose channels are heads with a selection of their own each; some
//! layers get more input from one block of attention, which is not rotated, and a feed-forward part. It
//! sees hidden states beside the embeddings, and all its uses have the same weights.

use super::jamba;
use super::zamba2::{blocks, hybrid_layers, set_attention};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, RawFields, Result, SelectiveScanFields,
    SharedBlocks, base, remove_rope, scans,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("ZambaForCausalLM", spec).completed_by(complete)];

const FIELDS: SelectiveScanFields = SelectiveScanFields {
    activation: "hidden_mamba_act",
    heads: Some("n_mamba_heads"),
    ..jamba::FIELDS
};

/// Zamba's names of common fields; heads of attention have elements of hidden states and embeddings.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("layer_types", "layers_block_type");
    fields.multiple("intermediate_size", "hidden_size", 4);
    fields.multiple("attention_hidden_size", "hidden_size", 2);
    fields.alias("head_dim", "attention_head_dim");
    fields.quotient("head_dim", "attention_hidden_size", "num_attention_heads");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("attention_hidden_size", 2 * config.hidden_size)?;
    let defaults = Defaults {
        kv_heads: Some(16),
        context: 4096,
        norm_eps: 1e-5,
        tied: true,
        activation: "gelu",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_attention(&mut spec);
    remove_rope(&mut spec);
    let layers = vec![true; config.num_hidden_layers];
    spec.recurrent = scans(config, &FIELDS, None, layers, "mamba")?;
    // The third layer has a block, and from the fourth on one of each period.
    let period = config.size_or("attn_layer_period", 6, 1..=1 << 12)?;
    let offset = config.field_or("attn_layer_offset", 4usize)?;
    let hybrid = hybrid_layers(config, |layer| match layer.checked_sub(3) {
        None => layer == 2,
        Some(behind) => behind % period == offset,
    })?;
    spec.shared_blocks = Some(SharedBlocks {
        of_layers: blocks(hybrid, spec.tied_embeddings, 1),
        name: "shared_transf",
        projection: "linear",
        rest: "mamba_decoder",
        mlp: spec.mlp,
        rank: None,
        changes_attention: false,
    });
    Ok(spec)
}
