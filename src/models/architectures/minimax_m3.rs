//! MiniMax M3: norms of heads and of hidden states around one, half of each head rotated, clamped gates, and from some
//! layer on experts with sigmoid scores and a correction bias, beside a shared one. In some layers an indexer chooses
//! the blocks of the context that each key head sees. Of the model that sees its language model alone.
//!
//! Published files, those of the model that sees, have experts in lists and gates and ups apart.

use serde_json::Value;

use crate::kernels::indexer::BlockChoice;
use crate::kernels::pointwise::Gating;
use crate::layers::attention::{BlockIndexerSpec, NormSpan};
use crate::layers::forward::BLOCK_SIZE;
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{
    CorrectionBias, ExpertTensors, MoeSpec, Score, SharedExpert, StackedTensors,
};
use crate::layers::norm::NormScale;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, Names, Result,
    RopeDefaults, bad, base, check_size, experts, layers_with_experts, set_query_key_norm,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("MiniMaxM3VLForCausalLM", of_text),
    Architecture::new("MiniMaxM3SparseForCausalLM", published),
    Architecture::new("MiniMaxM3SparseForConditionalGeneration", published),
];

/// Names of experts' and of feed-forward parts' tensors as transformers has them.
const STACKED: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);
const FUSED: MlpTensors = MlpTensors::GateAndUp(["gate_up_proj", "down_proj"]);
/// The most heads of an indexer.
const MAX_HEADS: usize = 1 << 10;

fn of_text(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.mlp.tensors = FUSED;
    if let Some(moe) = &mut spec.moe {
        moe.experts = ExpertTensors::Stacked(STACKED);
        moe.shared.iter_mut().for_each(|shared| shared.mlp.tensors = FUSED);
    }
    Ok(spec)
}

fn published(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    for blocks in spec.attention.iter_mut().filter_map(|layer| layer.blocks.as_mut()) {
        blocks.tensors = [["index_q_proj", "index_k_proj"], ["index_q_norm", "index_k_norm"]];
    }
    let Some(moe) = &mut spec.moe else { return Ok(spec) };
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    let name = "block_sparse_moe.e_score_correction_bias";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.shared.iter_mut().for_each(|shared| shared.name = "block_sparse_moe.shared_experts");
    Ok(spec)
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let head_dim = config.head_dim(Some(128))?;
    let rotated = config.size_or("rotary_dim", 64, 2..=head_dim)?;
    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
    let share = rotated as f64 / head_dim as f64;
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(128),
        context: 524_288,
        rope: RopeDefaults { theta: 5_000_000.0, share, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.norm.scale = NormScale::OnePlusStored;
    set_query_key_norm(&mut spec, NormSpan::Head);
    let alpha = config.positive("swiglu_alpha")?.unwrap_or(1.702);
    let limit = config.positive("swiglu_limit")?.unwrap_or(7.0);
    spec.mlp.gating = Some(Gating::Clamped { alpha, limit });
    spec.mlp.intermediate_size = config.size_or("dense_intermediate_size", 12_288, 1..=MAX_SIZE)?;
    spec.moe = Some(with_experts(config, &spec)?);
    set_blocks(config, &mut spec, rotated)?;
    Ok(spec)
}

fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let mut moe = experts(config, spec, &ExpertFields::ALL_SPARSE)?;
    moe.layers = match layers_with_experts(config)? {
        Some(layers) => layers,
        None => match config.field::<Vec<u8>>("moe_layer_freq")? {
            Some(words) if words.len() != config.num_hidden_layers => {
                let bound = format!("must have {} numbers", config.num_hidden_layers);
                return Err(bad("moe_layer_freq", words.len(), bound));
            }
            Some(words) => words.into_iter().map(|word| word != 0).collect(),
            None => moe.layers,
        },
    };
    let name = "mlp.gate.e_score_correction_bias";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.renormalize = true;
    moe.routing.scale = config.number_or("routed_scaling_factor", 2.0)?;
    let size = config.size_or("shared_intermediate_size", 3072, 1..=MAX_SIZE)?;
    moe.shared = Some(SharedExpert {
        name: "mlp.shared_experts",
        mlp: MlpSpec { intermediate_size: size, ..moe.expert },
        gate: None,
        factor: 1.0,
    });
    Ok(moe)
}

/// Has the layers that choose blocks of longer contexts do so, if there are any.
fn set_blocks(config: &HfConfig, spec: &mut DecoderSpec, rotated: usize) -> Result<()> {
    let published = config.field::<Value>("sparse_attention_config")?;
    let sparse = sparse_layers(config, published.as_ref())?;
    if !sparse.contains(&true) {
        return Ok(());
    }
    let number = |name: &'static str, of_published: &str, default: usize, most: usize| {
        let own = published.as_ref().and_then(|fields| fields.get(of_published)?.as_u64());
        let own = own.and_then(|own| usize::try_from(own).ok()).unwrap_or(default);
        check_size(name, config.field(name)?.unwrap_or(own), 1..=most)
    };
    let choice = BlockChoice {
        size: number("index_block_size", "sparse_block_size", 128, MAX_SIZE)?,
        count: number("index_topk_blocks", "sparse_topk_blocks", 16, MAX_SIZE)?,
        local: number("index_local_blocks", "sparse_local_block", 1, MAX_SIZE)?,
    };
    let declared = spec.max_position_embeddings;
    if choice.size.saturating_mul(choice.count) >= declared {
        return Ok(());
    }
    let indexer = BlockIndexerSpec {
        heads: number("index_n_heads", "sparse_num_index_heads", 4, MAX_HEADS)?,
        dim: number("index_head_dim", "sparse_index_dim", 128, MAX_SIZE)?,
        choice,
        norm: spec.norm,
        tensors: [["indexer.q_proj", "indexer.k_proj"], ["indexer.q_norm", "indexer.k_norm"]],
    };
    if !choice.size.is_multiple_of(BLOCK_SIZE) {
        let bound = format!("must be a multiple of {BLOCK_SIZE}");
        return Err(bad("index_block_size", choice.size, bound));
    }
    if indexer.dim < rotated {
        let bound = format!("must be at least the {rotated} rotated elements");
        return Err(bad("index_head_dim", indexer.dim, bound));
    }
    for (layer, _) in spec.attention.iter_mut().zip(sparse).filter(|(_, sparse)| *sparse) {
        if !layer.num_kv_heads.is_multiple_of(indexer.heads) {
            let bound = format!("must divide {} key heads", layer.num_kv_heads);
            return Err(bad("index_n_heads", indexer.heads, bound));
        }
        layer.blocks = Some(indexer);
    }
    Ok(())
}

/// Which layers choose blocks: by name, or by the numbers of published files.
fn sparse_layers(config: &HfConfig, published: Option<&Value>) -> Result<Vec<bool>> {
    let words = [("full_attention", false), ("minimax_m3_sparse", true)];
    if let Some(layers) = config.layer_kinds(&words, "full_attention and minimax_m3_sparse")? {
        return Ok(layers);
    }
    let count = config.num_hidden_layers;
    let name = "sparse_attention_freq";
    let Some(listed) = published.and_then(|fields| fields.get(name)) else {
        return Ok(vec![false; count]);
    };
    let numbers = listed.as_array().map_or(&[][..], Vec::as_slice);
    if numbers.len() != count {
        return Err(bad(name, listed, format!("must have a number for each of {count} layers")));
    }
    Ok(numbers.iter().map(|number| number.as_u64() != Some(0)).collect())
}
