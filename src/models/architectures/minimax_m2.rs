//! MiniMax-M2: norms of all query and key heads at once, half of each head rotated, and experts in
//! every layer that are chosen by sigmoids with a bias for the choice. Published files call gate,
//! up and down of an expert `w1`, `w3` and `w2`.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::{ChoiceBias, ExpertTensors, Score};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::common::experts::{FIELDS, Fields, experts};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;

/// What `MiniMaxM2ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    config.only("use_qk_norm", true)?;
    let head_dim = config.head_dim(Some(128))?;
    // As the first files say which share of a head is rotated.
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
    let over_all = QueryKeyNorm { over: NormSpan::AllHeads, ..QueryKeyNorm::of_heads(spec.norm) };
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(over_all);
    }
    let fields = Fields { inner: "intermediate_size", ..FIELDS };
    let mut moe = experts(config, &spec, &fields)?;
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    let name = "block_sparse_moe.e_score_correction_bias";
    moe.choice_bias = Some(ChoiceBias { name, one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
