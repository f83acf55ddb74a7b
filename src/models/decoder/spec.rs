//! What tells one decoder-only transformer from another, as plain data.

use crate::kernels::pointwise::Activation;
use crate::layers::attention::AttentionSpec;
use crate::layers::forward::KvShape;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::MoeSpec;
use crate::layers::norm::NormSpec;
use crate::layers::recurrent::RecurrentSpec;
use crate::layers::rope::RopeSpec;

/// Everything that tells one decoder-only transformer from another.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Longest sequence the checkpoint declares.
    pub max_position_embeddings: usize,
    /// What the tensors around the layers are called.
    pub names: Names,
    /// The norms of hidden states.
    pub norm: NormSpec,
    /// Where norms are, and what a layer adds up.
    pub block: Block,
    /// Whether the output head is the embedding.
    pub tied_embeddings: bool,
    /// Whether the output head has a bias.
    pub head_bias: bool,
    /// The embedding of positions, which is added to that of tokens.
    pub learned_positions: Option<&'static str>,
    /// The norm of the embeddings.
    pub embedding_norm: Option<&'static str>,
    /// Matrices of layers are stored as `[inputs, outputs]`.
    pub turned_matrices: bool,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// `cap * tanh(logit / cap)` of scaled logits.
    pub logit_softcap: Option<f32>,
    /// Rotary embeddings that layers choose from.
    pub ropes: Vec<RopeSpec>,
    /// One per layer.
    pub attention: Vec<AttentionSpec>,
    /// Which layers have either; others are a feed-forward part alone. `None`: all.
    pub mixers: Option<Vec<bool>>,
    /// What some layers have instead.
    pub recurrent: Option<RecurrentSpec>,
    /// The feed-forward part of layers without experts; of no inner elements: they have none.
    pub mlp: MlpSpec,
    /// Its inner elements by layer, where layers differ.
    pub intermediate_sizes: Option<Vec<usize>>,
    /// What layers are given of the tokens besides hidden states.
    pub layer_inputs: Option<LayerInputs>,
    /// The tensor with one number that a layer's result is multiplied with.
    pub layer_factor: Option<&'static str>,
    /// Experts instead of the feed-forward part, for some layers.
    pub moe: Option<MoeSpec>,
}

impl DecoderSpec {
    /// The recurrence that layer `index` has instead of attention.
    pub(super) fn recurrent(&self, index: usize) -> Option<&RecurrentSpec> {
        self.recurrent.as_ref().filter(|recurrent| recurrent.layers[index])
    }

    /// Whether layer `index` has attention or a recurrence.
    pub(super) fn mixes(&self, index: usize) -> bool {
        self.mixers.as_ref().is_none_or(|mixers| mixers[index])
    }

    /// Whether layer `index` keeps keys and values of its own.
    pub(super) fn keeps_kv(&self, index: usize) -> bool {
        let attends = self.mixes(index) && self.recurrent(index).is_none();
        attends && self.attention[index].kv_of.is_none()
    }

    /// The feed-forward part of layer `index`, if it has no experts or has one beside them.
    pub(super) fn mlp(&self, index: usize) -> MlpSpec {
        let sizes = self.intermediate_sizes.as_ref();
        let intermediate_size = sizes.map_or(self.mlp.intermediate_size, |sizes| sizes[index]);
        MlpSpec { intermediate_size, ..self.mlp }
    }

    /// What is kept of sequences.
    pub(super) fn kv_shape(&self) -> KvShape {
        let layers = 0..self.attention.len();
        let states = layers.clone().filter_map(|index| self.recurrent(index));
        KvShape {
            states: states.flat_map(RecurrentSpec::states).collect(),
            layers: layers
                .filter(|index| self.keeps_kv(*index))
                .map(|index| self.attention[index].kv())
                .collect(),
        }
    }
}

/// Small vectors of each token for each layer, from an embedding of their own and from the token's
/// common embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInputs {
    /// Elements for one layer.
    pub width: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// What the gate of a layer goes through.
    pub activation: Activation,
}

/// Names of tensors around the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// What may stand before all names but the head's; the first that the checkpoint has.
    pub roots: &'static [&'static str],
    /// The embedding.
    pub embedding: &'static str,
    /// The list of layers.
    pub layers: &'static str,
    /// The norm behind the last layer.
    pub norm: &'static str,
    /// The output head, at the root or beside it.
    pub head: &'static str,
    /// The attention, below a layer.
    pub attention: &'static str,
    /// The feed-forward part, below a layer.
    pub mlp: &'static str,
}

/// How one layer is put together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Name of the norm of what attention is given.
    pub before_attention: Option<&'static str>,
    /// Name of the norm of what attention gives.
    pub after_attention: Option<&'static str>,
    /// Name of the norm of what the feed-forward part is given. In a parallel layer without one,
    /// that is what attention is given.
    pub before_mlp: Option<&'static str>,
    /// Name of the norm of what the feed-forward part gives.
    pub after_mlp: Option<&'static str>,
    /// Attention and the feed-forward part start from the same hidden states.
    pub parallel: bool,
    /// Factor of what both add to the hidden states.
    pub residual_scale: f32,
}

impl Names {
    /// Roots of a language model that may be part of one that takes more than text.
    pub const INSIDE_OF_MORE: &'static [&'static str] =
        &["model.", "language_model.model.", "model.language_model."];
    /// The most common ones.
    pub const COMMON: Self = Self {
        roots: &["model."],
        embedding: "embed_tokens",
        layers: "layers",
        norm: "norm",
        head: "lm_head",
        attention: "self_attn",
        mlp: "mlp",
    };
}

impl Block {
    /// Norms before both parts, one part after the other.
    pub const PRE_NORM: Self = Self {
        before_attention: Some("input_layernorm"),
        after_attention: None,
        before_mlp: Some("post_attention_layernorm"),
        after_mlp: None,
        parallel: false,
        residual_scale: 1.0,
    };
    /// Norms behind both parts.
    pub const POST_NORM: Self = Self {
        before_attention: None,
        after_attention: Some("post_attention_layernorm"),
        before_mlp: None,
        after_mlp: Some("post_feedforward_layernorm"),
        parallel: false,
        residual_scale: 1.0,
    };
    /// Both parts on the same normalized hidden states.
    pub const PARALLEL: Self = Self { before_mlp: None, parallel: true, ..Self::PRE_NORM };
}
