//! The shape and the variant of a decoder-only transformer, as plain data.

use crate::kernels::pointwise::Activation;
use crate::layers::attention::AttentionSpec;
use crate::layers::forward::KvShape;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::MoeSpec;
use crate::layers::norm::NormSpec;
use crate::layers::recurrent::RecurrentSpec;
use crate::layers::rope::RopeSpec;

/// The shape and the variant of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Longest sequence the checkpoint declares.
    pub max_position_embeddings: usize,
    /// Names of tensors outside of layers, and of the modules of a layer.
    pub names: Names,
    /// The variant of norms of hidden states.
    pub norm: NormSpec,
    /// Where the norms of a layer are, and how its parts are connected.
    pub block: Block,
    /// Whether the output head shares the embedding's weights.
    pub tied_embeddings: bool,
    /// The output head.
    pub head: Head,
    /// The embedding of positions, where it is learned and added to that of tokens.
    pub learned_positions: Option<LearnedPositions>,
    /// Name and rows of the embedding of token types, of which all tokens have the first.
    pub token_types: Option<(&'static str, usize)>,
    /// Name of the norm of the embeddings.
    pub embedding_norm: Option<&'static str>,
    /// Whether matrices of layers are stored transposed, as `[inputs, outputs]`.
    pub transposed_matrices: bool,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// The `cap` of `cap * tanh(logit / cap)`, of scaled logits.
    pub logit_softcap: Option<f32>,
    /// The rotary embeddings, which layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// The attention of each layer.
    pub attention: Vec<AttentionSpec>,
    /// Whether each layer has a token mixer: attention or a recurrence. `None`: all have.
    pub mixers: Option<Vec<bool>>,
    /// The recurrence that some layers have instead of attention.
    pub recurrent: Option<RecurrentSpec>,
    /// The feed-forward part of layers without experts; of size 0 where there is none.
    pub mlp: MlpSpec,
    /// Size of the feed-forward part of each layer, where layers differ.
    pub intermediate_sizes: Option<Vec<usize>>,
    /// The per-layer embeddings.
    pub layer_inputs: Option<LayerInputs>,
    /// Name of the tensor with the factor of a layer's output.
    pub layer_scale: Option<&'static str>,
    /// The experts that some layers have instead of the dense feed-forward part.
    pub moe: Option<MoeSpec>,
    /// After how many of the first layers features of pictures are added to the hidden states.
    pub picture_layers: usize,
    /// The token that those of pictures are for per-layer embeddings.
    pub picture_filler: Option<u32>,
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

    /// Whether layer `index` has attention or a recurrence.
    pub(super) fn has_mixer(&self, index: usize) -> bool {
        self.mixers.as_ref().is_none_or(|mixers| mixers[index])
    }

    /// Whether layer `index` has attention, perhaps beside a recurrence.
    pub(super) fn attends(&self, index: usize) -> bool {
        let alone = |recurrent: &RecurrentSpec| recurrent.beside_attention.is_none();
        self.has_mixer(index) && !self.recurrent(index).is_some_and(alone)
    }

    /// Whether layer `index` has a KV cache of its own.
    pub(super) fn has_kv_cache(&self, index: usize) -> bool {
        self.attends(index) && self.attention[index].kv_from_layer.is_none()
    }

    /// The dense feed-forward part of layer `index`, which layers with experts may lack.
    pub(super) fn mlp(&self, index: usize) -> MlpSpec {
        let sizes = self.intermediate_sizes.as_ref();
        let intermediate_size = sizes.map_or(self.mlp.intermediate_size, |sizes| sizes[index]);
        MlpSpec { intermediate_size, ..self.mlp }
    }

    /// The shape of the KV cache and of recurrent states.
    pub fn kv_shape(&self) -> KvShape {
        let layers = 0..self.attention.len();
        let states = layers.clone().filter_map(|index| self.recurrent(index));
        KvShape {
            states: states.flat_map(RecurrentSpec::states).collect(),
            layers: layers
                .filter(|index| self.has_kv_cache(*index))
                .map(|index| self.attention[index].kv())
                .collect(),
        }
    }
}

/// Per-layer embeddings: small vectors of each token for each layer, from an embedding of their own
/// and from the token's common embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInputs {
    /// Elements of a vector.
    pub width: usize,
    /// Rows of their embedding.
    pub vocab_size: usize,
    /// Activation of the gate in a layer.
    pub activation: Activation,
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
    /// The attention in a layer.
    pub attention: &'static str,
    /// The feed-forward part in a layer; empty where the layer itself has its projections.
    pub mlp: &'static str,
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
    /// The name of a projection of the feed-forward part, below a layer.
    pub(super) fn of_mlp(&self, projection: &str) -> String {
        if self.mlp.is_empty() {
            projection.to_owned()
        } else {
            format!("{}.{projection}", self.mlp)
        }
    }

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
        attention: "self_attn",
        mlp: "mlp",
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
            parallel: false,
            normalizes_sums: false,
            first_input_is_plain: false,
            residual_scale: 1.0,
            mlp_scale: 1.0,
        }
    }
}
