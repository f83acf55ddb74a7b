//! What a row of the table of architectures holds. Refuses to know a row.

use serde_json::{Map, Value as Json};

use super::keys::{Heads, ModelKeys};

/// An architecture that GGUF files of this program may have.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// `general.architecture`.
    pub(crate) gguf: &'static str,
    /// A tensor of layers that tells this architecture from later rows of the same name.
    pub(crate) mark: Option<&'static str>,
    /// The class in `config.json`'s `architectures`.
    pub(crate) class: &'static str,
    /// Further classes whose checkpoints become such files.
    pub(crate) also: &'static [&'static str],
    /// `config.json`'s `model_type`.
    pub(crate) model_type: &'static str,
    /// Tensors around the layers.
    pub(crate) outer: Outer,
    /// Further tensors around the layers: what stands before `.weight` or `.bias`, and its counterpart.
    pub(crate) around: &'static [Part],
    /// Tensors of a layer.
    pub(crate) blocks: &'static [&'static [Part]],
    /// Rows of the query and key projections are ordered for rotary embeddings of neighbouring
    /// pairs; Hugging Face checkpoints pair the halves of a head.
    pub(crate) interleaved_rope: bool,
    /// Scales of norms have 1 added to what Hugging Face checkpoints have.
    pub(crate) norms_plus_one: bool,
    /// `hidden_act`.
    pub(crate) activation: &'static str,
    /// The key of the norms' epsilon, and its field.
    pub(crate) norm_eps: (&'static str, &'static str),
    /// Keys of numbers that change what a layer computes, and their fields.
    pub(crate) numbers: &'static [(&'static str, &'static str)],
    /// How the attention heads are cut.
    pub(crate) heads: Heads,
    /// What the layer behind the last one is, where it drafts tokens; such layers of other
    /// architectures are left out.
    pub(crate) draft_head: Option<DraftHead>,
    /// Sets what else the configuration needs.
    pub(crate) more: fn(&ModelKeys<'_>, &mut Map<String, Json>) -> Result<(), String>,
}

/// Hugging Face names of the tensors around the layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outer {
    pub(crate) embedding: &'static str,
    pub(crate) layers: &'static str,
    pub(crate) norm: &'static str,
    pub(crate) head: &'static str,
}

/// Hugging Face names of a head that drafts tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftHead {
    /// Its layer, unless that is counted behind those of the model.
    pub(crate) layer: Option<&'static str>,
    /// What it has besides a layer of the model. Whole names begin with a dot.
    pub(crate) parts: &'static [Part],
}

/// What stands between `blk.N.` and `.weight`, and its Hugging Face counterpart.
///
/// In the counterpart, `*` is each index of the tensor's first dimension (an expert), and names
/// with `|` between them share its rows: three are queries, keys and values, two are halves. `#` is
/// a number in both. Behind `!` comes nothing, as if it ended in `.weight` or `.bias` already;
/// parts that end in `.scale` in the file have it.
pub(crate) type Part = (&'static str, &'static str);
