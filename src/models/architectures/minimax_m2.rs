//! MiniMax-M2: norms over all query and over all key heads, half of each head rotated, and experts
//! in every layer with sigmoid scores and a correction bias. Published files call an expert's gate,
//! up and down `w1`, `w3` and `w2`.

use crate::layers::attention::NormSpan;
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::{CorrectionBias, ExpertTensors, Score};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, RopeDefaults, bad, base,
    experts, set_query_key_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("MiniMaxM2ForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_qk_norm", true)?;
    let head_dim = config.head_dim(Some(128))?;
    // The first files have the rotated share of a head as a number of elements.
    let share = match config.field::<usize>("rotary_dim")? {
        None => 1.0,
        #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
        Some(rotated) if rotated <= head_dim => rotated as f64 / head_dim as f64,
        Some(rotated) => return Err(bad("rotary_dim", rotated, format!("is above {head_dim}"))),
    };
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 196_608,
        rope: RopeDefaults { theta: 5_000_000.0, share, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_query_key_norm(&mut spec, NormSpan::AllHeads);
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    let name = "block_sparse_moe.e_score_correction_bias";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
