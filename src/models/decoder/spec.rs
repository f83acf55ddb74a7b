//! The shape and the variant of a decoder-only transformer, as plain data.

use std::borrow::Cow;

pub use super::order::{Join, Place, Schedule};
pub use super::variants::{
    BlockUse, GateLimits, HyperConnectionsSpec, LayerInputs, LearnedSums, ResidualScales,
    SharedBlocks, StreamsSpec,
};
use crate::kernels::pointwise::{Activation, Gating};
use crate::layers::attention::AttentionSpec;
use crate::layers::forward::{KvHeads, KvShape};
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::MoeSpec;
use crate::layers::norm::NormSpec;
use crate::layers::recurrent::RecurrentSpec;
use crate::layers::rope::RopeSpec;

/// The shape and the variant of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct DecoderSpec {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Longest sequence that is computed: what the checkpoint declares, unless longer ones would need what
    /// isn't computed.
    pub max_position_embeddings: usize,
    /// What the checkpoint declares, where that is more.
    pub longer_contexts: Option<LongerContexts>,
    /// Names of tensors outside of layers, and of the modules of a layer.
    pub names: Names,
    /// The variant of norms of hidden states.
    pub norm: NormSpec,
    /// The variants of norms that differ from it.
    pub other_norms: OtherNorms,
    /// Gates of what norms of inputs give, in layers that have them.
    pub norm_gates: Option<NormGatesSpec>,
    /// Where the norms of a layer are, and how its parts are connected.
    pub block: Block,
    /// Whether the output head shares the embedding's weights.
    pub tied_embeddings: bool,
    /// The output head.
    pub head: Head,
    /// What hidden states go through between the final norm and the output head.
    pub before_head: Option<BeforeHead>,
    /// Rows of the embedding, where the output head has fewer.
    pub embedding_rows: Option<usize>,
    /// The embedding of positions, where it is learned and added to that of tokens.
    pub learned_positions: Option<LearnedPositions>,
    /// The embedding of positions, where it is computed and added to that of tokens.
    pub sinusoids: Option<Sinusoids>,
    /// Name and rows of the embedding of token types, of which all tokens have the first.
    pub token_types: Option<(&'static str, usize)>,
    /// Name of the norm of the embeddings.
    pub embedding_norm: Option<&'static str>,
    /// Whether matrices of layers are stored transposed, as `[inputs, outputs]`.
    pub transposed_matrices: bool,
    /// Names of a vector that is added to the embeddings, and of one that they are multiplied by then.
    pub embedding_sum: Option<[&'static str; 2]>,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Full name of learned scales of logits, one for each token, and their factor.
    pub logit_scales: Option<(&'static str, f32)>,
    /// The `cap` of `cap * tanh(logit / cap)`, of scaled logits.
    pub logit_softcap: Option<f32>,
    /// Of each layer the factors of sums, where what is added to is the normalized hidden states.
    pub residuals_from_norms: Option<Vec<ResidualScales>>,
    /// Of each layer the factors of sums with hidden states as they are.
    pub residuals_scaled: Option<Vec<ResidualScales>>,
    /// How hidden states and the outputs of parts are summed, where that is learned.
    pub learned_sums: Option<LearnedSums>,
    /// What `block` is in layers with a recurrence, where they differ.
    pub recurrent_block: Option<Block>,
    /// Whether layers are stored in pairs: names of their modules end in the layer's index within its
    /// pair. A pair's experts are beside its first dense part, whose input they have too, and what they
    /// give is added behind its second layer.
    pub pairs: bool,
    /// The order in which layers are gone through, where some have several places in it; `None`: as they
    /// are stored. What is said of each layer is said of each place then.
    pub schedule: Option<Schedule>,
    /// The rotary embeddings, which layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// The attention of each layer.
    pub attention: Vec<AttentionSpec>,
    /// The attention of a head that drafts, where it is not that of the first layer that attends.
    pub draft_attention: Option<AttentionSpec>,
    /// Whether each layer has a token mixer: attention or a recurrence. `None`: all have.
    pub mixers: Option<Vec<bool>>,
    /// The recurrence that some layers have instead of attention.
    pub recurrent: Option<RecurrentSpec>,
    /// The feed-forward part of layers without experts; of size 0 where there is none.
    pub mlp: MlpSpec,
    /// Size of the feed-forward part of each layer, where layers differ.
    pub intermediate_sizes: Option<Vec<usize>>,
    /// [`MlpSpec::gate_threshold`] of each layer, where layers differ.
    pub gate_thresholds: Option<Vec<Option<f32>>>,
    /// Bounds of gates and ups in each layer, which are activated by SiLU then.
    pub gate_limits: Option<Vec<GateLimits>>,
    /// The blocks that give some layers more input.
    pub shared_blocks: Option<SharedBlocks>,
    /// The streams of hidden states, where there is more than one.
    pub streams: Option<StreamsSpec>,
    /// The streams of hidden states that the parts of layers read and write, where there are some.
    pub hyper_connections: Option<HyperConnectionsSpec>,
    /// Rank of a linear path beside each mixer.
    pub low_rank_path: Option<usize>,
    /// The per-layer embeddings.
    pub layer_inputs: Option<LayerInputs>,
    /// Name of the tensor with the factor of a layer's output.
    pub layer_scale: Option<&'static str>,
    /// The experts that some layers have instead of the dense feed-forward part.
    pub moe: Option<MoeSpec>,
    /// Whether tokens of a prompt see all of it, also what is behind them, and only those of an answer what is
    /// before them alone: Raffel et al., "Exploring the Limits of Transfer Learning", 2020.
    pub prefix_lm: bool,
    /// After how many of the first layers features of pictures are added to the hidden states.
    pub picture_layers: usize,
    /// The token that those of pictures are for per-layer embeddings.
    pub picture_filler: Option<u32>,
}

/// The variants of norms of hidden states that differ from the others of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OtherNorms {
    /// That of the embeddings.
    pub embedding: Option<NormSpec>,
    /// That of what a part of a layer gives.
    pub outputs: Option<NormSpec>,
    /// That behind the last layer.
    pub last: Option<NormSpec>,
}

/// Gates of low rank, whose sigmoids multiply what they are projected from: `x * sigmoid(up(silu(down(x))))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormGatesSpec {
    /// Elements between the projections.
    pub rank: usize,
    /// Names of the norms of the mixer's and of the feed-forward part's input, below which gates are.
    pub norms: [&'static str; 2],
}

/// Where a layer has its memory of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Index of its KV cache: its own, or that of the layer it shares one with.
    pub(super) cache: usize,
    /// Index of the first of its recurrent states.
    pub(super) states: usize,
}

/// Sequences that a checkpoint has and that are not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongerContexts {
    /// The longest one that it declares.
    pub declared: usize,
    /// Why they are not computed.
    pub reason: &'static str,
}

/// The embedding of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedPositions {
    /// Its name.
    pub name: &'static str,
    /// The row of the first position; those before it are not used.
    pub first: usize,
}

impl LearnedPositions {
    /// Without rows before the first position's.
    pub const fn from_zero(name: &'static str) -> Self {
        Self { name, first: 0 }
    }
}

/// An embedding of positions by sines in its first half, and cosines of the same angles in its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sinusoids {
    /// The position of the first token.
    pub first: usize,
    /// What wavelengths are a series of, from 2 pi to 2 pi times 10,000: the number of terms between
    /// the first and the one of the longest.
    pub intervals: usize,
}

/// A linear layer, an activation and a norm between the final norm and the output head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeforeHead {
    /// Full name of the linear layer.
    pub dense: &'static str,
    /// Whether it has a bias.
    pub bias: bool,
    /// The activation.
    pub activation: Activation,
    /// Full name of the norm.
    pub norm: &'static str,
}

/// The output head of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// There is none: the decoder gives hidden states alone.
    Absent,
    /// A matrix.
    Plain,
    /// A matrix and a bias.
    Biased,
}

impl DecoderSpec {
    /// The recurrence of layer `index`, if it has one.
    pub(super) fn recurrent(&self, index: usize) -> Option<&RecurrentSpec> {
        self.recurrent.as_ref().filter(|recurrent| recurrent.layers[index])
    }

    /// How norms and parts of layer `index` are connected.
    pub(super) fn block(&self, index: usize) -> Block {
        self.recurrent_block.filter(|_| self.recurrent(index).is_some()).unwrap_or(self.block)
    }

    /// The name of a module below layer `index`, or below its pair.
    pub(super) fn module(&self, index: usize, name: &str) -> String {
        if self.pairs { format!("{name}.{}", index % 2) } else { name.to_owned() }
    }

    /// The name of a projection of the feed-forward part, below layer `index` or its pair.
    pub(super) fn of_mlp(&self, index: usize, projection: &str) -> String {
        if self.names.mlp.is_empty() {
            projection.to_owned()
        } else {
            format!("{}.{projection}", self.module(index, self.names.mlp))
        }
    }

    /// What layer `index` or its pair is called, with its list of layers.
    pub(super) fn stored_layer(&self, index: usize) -> String {
        if let Some(schedule) = &self.schedule {
            let Place { list, layer, .. } = schedule.places[index];
            return format!("{list}.{layer}");
        }
        format!("{}.{}", self.names.layers, if self.pairs { index / 2 } else { index })
    }

    /// The first place of the layer that is at place `index`.
    pub(super) fn first_place(&self, index: usize) -> usize {
        let Some(schedule) = &self.schedule else { return index };
        let layer = |place: &Place| (place.list, place.layer);
        let own = layer(&schedule.places[index]);
        let first = schedule.places.iter().position(|place| layer(place) == own);
        first.unwrap_or(index)
    }

    /// Where layer `index` has its memory of sequences.
    pub(super) fn memory(&self, index: usize) -> Memory {
        let cache_of = self.attention[index].kv_from_layer.unwrap_or(index);
        Memory {
            cache: (0..cache_of).map(|index| self.caches(index).count()).sum(),
            states: (0..index).map(|index| self.states(index).len()).sum(),
        }
    }

    /// Whether layer `index` sees the tokens that a layer before it chose.
    pub(super) fn sees_earlier_choice(&self, index: usize) -> bool {
        let selection = self.attention[index].latent.and_then(|latent| latent.selection);
        selection.is_some_and(|selection| selection.indexer.is_none())
    }

    /// The decoder with contexts of at most as many tokens as layers select of longer ones, so that it selects
    /// nothing, for this `reason`; the same where nothing is selected.
    pub(crate) fn without_selection(mut self, reason: &'static str) -> Self {
        let declared = self.max_position_embeddings;
        for layer in &mut self.attention {
            let selection = layer.latent.as_mut().and_then(|latent| latent.selection.take());
            let blocks = layer.blocks.take().map(|blocks| blocks.choice.size * blocks.choice.count);
            let Some(most) = selection.map(|own| own.count).or(blocks) else { continue };
            self.max_position_embeddings = self.max_position_embeddings.min(most);
            self.longer_contexts = Some(LongerContexts { declared, reason });
        }
        self
    }

    /// Whether layer `index` has attention or a recurrence.
    pub(super) fn has_mixer(&self, index: usize) -> bool {
        self.mixers.as_ref().is_none_or(|mixers| mixers[index])
    }

    /// Whether layer `index` has attention, perhaps beside a recurrence.
    pub(super) fn attends(&self, index: usize) -> bool {
        let alone = |recurrent: &RecurrentSpec| recurrent.beside_attention.is_none();
        self.has_mixer(index) && !self.recurrent(index).is_some_and(alone)
    }

    /// The shared block of layer `index`, if it has one.
    pub(super) fn shared_block(&self, index: usize) -> Option<BlockUse> {
        self.shared_blocks.as_ref().and_then(|blocks| blocks.of_layers[index])
    }

    /// Whether layer `index` has a KV cache of its own.
    pub(super) fn has_kv_cache(&self, index: usize) -> bool {
        let attends = self.attends(index) || self.shared_block(index).is_some();
        attends && self.attention[index].kv_from_layer.is_none()
    }

    /// The number of elements of each state that layer `index` has: of its recurrence, and of its attention.
    fn states(&self, index: usize) -> Vec<usize> {
        let mut states = self.recurrent(index).map_or_else(Vec::new, RecurrentSpec::states);
        if self.attends(index) {
            states.extend(self.attention[index].states());
        }
        states
    }

    /// The KV caches that layer `index` has: its own, and that of the keys by which it chooses blocks.
    fn caches(&self, index: usize) -> impl Iterator<Item = KvHeads> {
        let attention = &self.attention[index];
        let own = self.has_kv_cache(index).then(|| attention.kv());
        let block_keys = own.and_then(|_| attention.block_keys());
        own.into_iter().chain(block_keys)
    }

    /// The dense feed-forward part of layer `index`, which layers with experts may lack.
    pub(super) fn mlp(&self, index: usize) -> MlpSpec {
        let sizes = self.intermediate_sizes.as_ref();
        let intermediate_size = sizes.map_or(self.mlp.intermediate_size, |sizes| sizes[index]);
        let thresholds = self.gate_thresholds.as_ref();
        let gate_threshold = thresholds.map_or(self.mlp.gate_threshold, |all| all[index]);
        let limit = self.gate_limits.as_ref().and_then(|all| all[index].mlp);
        let gating = limit.map_or(self.mlp.gating, |limit| Some(Gating::Limited { limit }));
        MlpSpec { intermediate_size, gating, gate_threshold, ..self.mlp }
    }

    /// The experts of layer `index`, if it has any.
    pub(super) fn experts(&self, index: usize) -> Option<Cow<'_, MoeSpec>> {
        let moe = self.moe.as_ref().filter(|moe| moe.layers[index])?;
        let Some(limits) = self.gate_limits.as_ref().map(|all| all[index]) else {
            return Some(Cow::Borrowed(moe));
        };
        let limited = |mlp: &mut MlpSpec, limit: Option<f32>| {
            mlp.gating = limit.map_or(mlp.gating, |limit| Some(Gating::Limited { limit }));
        };
        let mut own = moe.clone();
        limited(&mut own.expert, limits.experts);
        if let Some(shared) = &mut own.shared {
            limited(&mut shared.mlp, limits.mlp);
        }
        Some(Cow::Owned(own))
    }

    /// The shape of the KV cache and of recurrent states.
    pub fn kv_shape(&self) -> KvShape {
        let layers = 0..self.attention.len();
        KvShape {
            states: layers.clone().flat_map(|index| self.states(index)).collect(),
            layers: layers.flat_map(|index| self.caches(index)).collect(),
        }
    }
}

/// Names of tensors outside of layers, and of the modules of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Prefixes of all names but the head's; the first that the checkpoint has is used.
    pub roots: &'static [&'static str],
    /// The embedding of tokens.
    pub embedding: &'static str,
    /// The list of layers.
    pub layers: &'static str,
    /// The final norm; empty where there is none.
    pub norm: &'static str,
    /// The output head, below the prefix or beside it.
    pub head: &'static str,
    /// Another name of the output head's bias, which some checkpoints have.
    pub other_head_bias: Option<&'static str>,
    /// The attention in a layer.
    pub attention: &'static str,
    /// The feed-forward part in a layer; empty where the layer itself has its projections.
    pub mlp: &'static str,
    /// Another name of the dense feed-forward part, which some checkpoints have.
    pub other_mlp: Option<&'static str>,
    /// The name of a norm in a layer, and another one that some checkpoints have for it.
    pub other_norm: Option<[&'static str; 2]>,
}

/// How the norms and parts of a layer are connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Name of the norm of attention's input.
    pub before_attention: Option<&'static str>,
    /// Name of the norm of attention's output.
    pub after_attention: Option<&'static str>,
    /// Name of the norm of the feed-forward part's input. A parallel layer without one gives it
    /// attention's normalized input.
    pub before_mlp: Option<&'static str>,
    /// Name of the norm of the feed-forward part's output.
    pub after_mlp: Option<&'static str>,
    /// Name of the norm of the experts' output, in layers that have experts.
    pub after_experts: Option<&'static str>,
    /// Whether attention and the feed-forward part have the same hidden states as input.
    pub parallel: bool,
    /// Whether norms of outputs are norms of their sums with the hidden states.
    pub normalizes_sums: bool,
    /// Whether the first layer has no norm of attention's input.
    pub first_input_is_plain: bool,
    /// Factor of the outputs of both parts, before they are added to the hidden states.
    pub residual_scale: f32,
    /// Another factor of the feed-forward part's output, where its output has no norm.
    pub mlp_scale: f32,
}

impl Names {
    /// Prefixes of a language model that may be part of a multimodal one.
    pub const MULTIMODAL_ROOTS: &'static [&'static str] =
        &["model.", "language_model.model.", "model.language_model.", "thinker.model."];
    /// The most common names.
    pub const COMMON: Self = Self {
        roots: &["model."],
        embedding: "embed_tokens",
        layers: "layers",
        norm: "norm",
        head: "lm_head",
        other_head_bias: None,
        attention: "self_attn",
        mlp: "mlp",
        other_mlp: None,
        other_norm: None,
    };
}

impl Block {
    /// Norms before both parts, which follow each other, under their most common names.
    pub const PRE_NORM: Self = Self::pre_norm("input_layernorm", "post_attention_layernorm");
    /// Norms after both parts, which follow each other.
    pub const POST_NORM: Self = Self {
        before_attention: None,
        after_attention: Some("post_attention_layernorm"),
        before_mlp: None,
        after_mlp: Some("post_feedforward_layernorm"),
        ..Self::PRE_NORM
    };
    /// Both parts in parallel, on the same normalized hidden states.
    pub const PARALLEL: Self = Self { before_mlp: None, parallel: true, ..Self::PRE_NORM };

    /// Norms of these names before both parts, which follow each other.
    pub const fn pre_norm(attention: &'static str, mlp: &'static str) -> Self {
        Self {
            before_attention: Some(attention),
            after_attention: None,
            before_mlp: Some(mlp),
            after_mlp: None,
            after_experts: None,
            parallel: false,
            normalizes_sums: false,
            first_input_is_plain: false,
            residual_scale: 1.0,
            mlp_scale: 1.0,
        }
    }
}
