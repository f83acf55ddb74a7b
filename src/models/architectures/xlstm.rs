//! xLSTM: every layer is a matrix memory with exponential gates, and a gated feed-forward part.

use super::mamba2::CONTEXT;
use crate::layers::mlp::MlpTensors;
use crate::layers::recurrent::{CellSpec, MatrixMemorySpec, RecurrentSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, MAX_SIZE, Names, RawFields, Result, bad,
    base, check_size, remove_rope,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("xLSTMForCausalLM", spec).completed_by(complete)];

/// The largest size of a head in any direction; products of three stay far from overflow.
const MAX_DIM: usize = 1 << 15;

/// Its names of common fields, and sizes of parts that it doesn't have.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "embedding_dim");
    fields.alias("num_hidden_layers", "num_blocks");
    fields.alias("rms_norm_eps", "norm_eps");
    fields.default("num_attention_heads", 1);
    fields.default("intermediate_size", 1);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_bias", false)?;
    config.only("add_out_norm", true)?;
    match config.field::<String>("weight_mode")?.as_deref() {
        None | Some("single") => {}
        Some(other) => return Err(bad("weight_mode", other, "supported is single")),
    }
    let mut spec = base(config, &Defaults { context: CONTEXT, ..Defaults::LLAMA })?;
    spec.names = Names {
        roots: &["backbone.", "model."],
        embedding: "embeddings",
        layers: "blocks",
        norm: "out_norm",
        mlp: "ffn",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("norm_mlstm", "norm_ffn");
    spec.mlp.tensors = MlpTensors::Gated(["proj_up_gate", "proj_up", "proj_down"]);
    spec.mlp.intermediate_size = inner(config)?;
    spec.logit_softcap = Some(config.positive("output_logit_soft_cap")?.unwrap_or(30.0));
    remove_rope(&mut spec);
    let cell = CellSpec::MatrixMemory(memory(config, spec.norm.eps)?);
    spec.recurrent = Some(RecurrentSpec {
        layers: vec![true; config.num_hidden_layers],
        name: "mlstm_layer",
        output: "out_proj",
        output_bias: false,
        cell,
        beside_attention: None,
    });
    Ok(spec)
}

fn memory(config: &HfConfig, norm_eps: f32) -> Result<MatrixMemorySpec> {
    let heads = config.size_or("num_heads", 8, 1..=1 << 10)?;
    let dim = |name, default| {
        let all = share(config, name, default)?.floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let all = all as usize;
        if !all.is_multiple_of(heads) {
            let bound = format!("must make a multiple of `num_heads` = {heads}, not {all}");
            return Err(bad(name, all, bound));
        }
        check_size(name, all / heads, 1..=MAX_DIM)
    };
    let gate_cap = config.positive("gate_soft_cap")?.unwrap_or(MatrixMemorySpec::MAX_CAP);
    if gate_cap > MatrixMemorySpec::MAX_CAP {
        let bound = format!("must be at most {}", MatrixMemorySpec::MAX_CAP);
        return Err(bad("gate_soft_cap", gate_cap, bound));
    }
    Ok(MatrixMemorySpec {
        heads,
        key_dim: dim("qk_dim_factor", 0.5)?,
        value_dim: dim("v_dim_factor", 1.0)?,
        gate_cap,
        norm_eps,
    })
}

/// Elements between the feed-forward projections: a share of a hidden state's, rounded up to a multiple.
fn inner(config: &HfConfig) -> Result<usize> {
    let multiple = config.size_or("ffn_round_up_to_multiple_of", 64, 1..=MAX_SIZE)?;
    let size = share(config, "ffn_proj_factor", 2.667)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    let size = size.ceil() as usize;
    check_size("ffn_proj_factor", size.next_multiple_of(multiple), 1..=MAX_SIZE)
}

/// So many times the elements of a hidden state.
#[expect(clippy::cast_precision_loss, reason = "hidden sizes are far below 2^52")]
fn share(config: &HfConfig, name: &'static str, default: f64) -> Result<f64> {
    let factor = config.field_or(name, default)?;
    let share = config.hidden_size as f64 * factor;
    if (1.0..=MAX_SIZE as f64).contains(&share) {
        return Ok(share);
    }
    Err(bad(name, factor, format!("must leave 1 to {MAX_SIZE} elements")))
}
