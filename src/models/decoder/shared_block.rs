//! A block of attention and a feed-forward part that gives several layers more input. Its weights are
//! loaded once; each use may change them by matrices of low rank.
//!
//! Glorioso et al., "Zamba: A Compact 7B SSM Hybrid Model", 2024, section 2; Zyphra, "The Zamba2 Suite:
//! Technical Report", 2024, section 2.

use candle_core::{Result, Tensor, bail};

use super::spec::{BlockUse, DecoderSpec, SharedBlocks};
use super::step::LayerStep;
use crate::layers::attention::Attention;
use crate::layers::linear::{Linear, LowRank};
use crate::layers::mlp::Mlp;
use crate::layers::norm::Norm;
use crate::layers::normed::Normed;
use crate::weights::{Loaded, Weights};

/// A block, in the first layer that has it.
#[derive(Clone)]
struct Block {
    norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
}

/// The block of one layer.
pub(super) struct SharedBlock {
    block: Block,
    projection: Linear,
}

/// The blocks of all layers, in the order of layers.
pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Vec<Option<SharedBlock>>> {
    let Some(shared) = &spec.shared_blocks else {
        return Ok((0..spec.attention.len()).map(|_| None).collect());
    };
    let mut loaded: Vec<Option<SharedBlock>> = Vec::new();
    for (index, own) in shared.of_layers.iter().enumerate() {
        let Some(own) = own else {
            loaded.push(None);
            continue;
        };
        let of_owner = weights.scope(own.owner).scope(shared.name);
        let known = loaded.get(own.owner).and_then(Option::as_ref).map(|known| &known.block);
        let block = match known {
            Some(known) => known.clone(),
            None => Block::load(&of_owner, spec, shared, index)?,
        };
        let hidden = spec.mlp.hidden_size;
        let projection = weights.scope(index).scope(shared.projection);
        loaded.push(Some(SharedBlock {
            block: block.changed(&of_owner, spec, shared, *own)?,
            projection: Linear::load(&projection, hidden, hidden, false)?,
        }));
    }
    Ok(loaded)
}

impl Block {
    fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        shared: &SharedBlocks,
        index: usize,
    ) -> Loaded<Self> {
        let (attention, hidden) = (spec.attention[index], spec.mlp.hidden_size);
        let norm = |name: &str, width| Norm::load(&weights.scope(name), width, spec.norm);
        Ok(Self {
            norm: norm("input_layernorm", 2 * hidden)?,
            attention: Attention::load_from(&weights.scope("self_attn"), attention, 2 * hidden)?,
            mlp_norm: norm("pre_ff_layernorm", hidden)?,
            mlp: Mlp::load(&weights.scope("feed_forward"), shared.mlp)?,
        })
    }

    /// The block with the changes of one use.
    fn changed(
        self,
        weights: &Weights,
        spec: &DecoderSpec,
        shared: &SharedBlocks,
        own: BlockUse,
    ) -> Loaded<Self> {
        let Some(rank) = shared.rank else { return Ok(self) };
        let change = |list: String, inputs, outputs| {
            LowRank::load(&weights.scope(&*list).scope(own.index), inputs, rank, outputs)
        };
        let (hidden, inner) = (spec.mlp.hidden_size, shared.mlp.intermediate_size);
        let list = "feed_forward.gate_up_proj_adapter_list".to_owned();
        let mlp = self.mlp.with_low_rank(change(list, hidden, 2 * inner)?);
        let attention = if shared.changes_attention {
            let attention = spec.attention[own.owner];
            let of = |name: char, heads: usize| {
                let list = format!("self_attn.linear_{name}_adapter_list");
                change(list, 2 * hidden, heads * attention.head_dim)
            };
            let (queries, keys) = (attention.num_heads, attention.num_kv_heads);
            self.attention.with_low_rank([of('q', queries)?, of('k', keys)?, of('v', keys)?])
        } else {
            self.attention
        };
        Ok(Self { attention, mlp, ..self })
    }
}

impl SharedBlock {
    /// Hidden states `x [num_tokens, hidden]` plus what the block makes of them.
    pub(super) fn forward_add(&self, x: &Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        let Some(embeddings) = step.embeddings else { bail!("a shared block needs embeddings") };
        let Block { norm, attention, mlp_norm, mlp } = &self.block;
        let LayerStep { context, step, angles, memory, adapters: [adapters, _], .. } = *step;
        let both = norm.forward(&Tensor::cat(&[x, embeddings], 1)?)?;
        let attended = attention.attend(
            &Normed::plain(&both),
            angles,
            &context.kv[memory.cache],
            step,
            (adapters, true),
        )?;
        let y = mlp_norm.forward(&attention.project(&attended, adapters)?)?;
        self.projection.forward_add(&mlp.forward(&y)?, x)
    }
}
