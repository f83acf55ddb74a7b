//! The embedding and the output head of a decoder, which may share their weights.

use std::ops::Range;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Result, Tensor};

use super::spec::{DecoderSpec, Head};
use crate::kernels::pointwise::{Activation, pointwise};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::Norm;
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// Names of the embedding and the output head in a checkpoint.
pub(super) struct Names {
    /// Prefix of all tensors of the decoder, except perhaps for the head.
    pub(super) root: &'static str,
    embedding: String,
    head: String,
}

impl Names {
    /// The names that the checkpoint has, else the first that it may have.
    pub(super) fn find(spec: &DecoderSpec, weights: &Weights) -> Self {
        let names = &spec.names;
        let embedding = |root: &str| format!("{root}{}.weight", names.embedding);
        let first = names.roots.first().copied().unwrap_or_default();
        // A decoder that was saved without its head has no prefix.
        let mut roots = names.roots.iter().copied().chain([""]);
        let root = roots.find(|root| weights.contains(&embedding(root))).unwrap_or(first);
        // The head of root `a.b.` is `head`, `a.head`, or `a.b.head`.
        let outer = root.trim_end_matches('.').rsplit_once('.').map_or("", |(outer, _)| outer);
        let outer = if outer.is_empty() { String::new() } else { format!("{outer}.") };
        let heads = [String::new(), outer, root.to_owned()];
        let heads = heads.map(|outer| format!("{outer}{}", names.head));
        let head = heads.iter().find(|head| weights.contains(&format!("{head}.weight")));
        Self { root, embedding: embedding(root), head: head.unwrap_or(&heads[0]).clone() }
    }

    /// Loads the embedding, and the rows `vocabulary` of the output head, if there is one.
    ///
    /// A tied checkpoint has one of the two, or both with the same values; with different values
    /// it is not tied, whatever its configuration says.
    pub(super) fn load(
        &self,
        spec: &DecoderSpec,
        weights: &Weights,
        vocabulary: Range<usize>,
    ) -> Loaded<(Matrix, Option<Linear>)> {
        let (embedding, head) = (self.embedding.as_str(), format!("{}.weight", self.head));
        let shape = [spec.vocab_size, spec.mlp.hidden_size];
        let kind = weights.rounding().map(at_least_eight_bits);
        let rows = std::slice::from_ref(&vocabulary);
        let rows = (vocabulary.len() < spec.vocab_size).then_some(rows);
        let load = |name: &str| Matrix::from_stored(weights, &weights.stored(name, &shape)?, kind);
        let whole_embedding = || {
            let shape = [spec.embedding_rows.unwrap_or(spec.vocab_size), shape[1]];
            Matrix::from_stored(weights, &weights.stored(embedding, &shape)?, kind)
        };
        let part = |name: &str| {
            Matrix::from_stored(weights, &weights.stored_rows(name, &shape, rows)?, kind)
        };
        if spec.head == Head::Absent {
            return Ok((whole_embedding()?, None));
        }
        let both = |name: &str| {
            let whole = load(name)?;
            let part = if rows.is_some() { part(name)? } else { whole.clone() };
            Ok::<_, WeightError>((whole, part))
        };
        let (embedding, head) = if !spec.tied_embeddings {
            (whole_embedding()?, part(&head)?)
        } else if !weights.contains(embedding) && weights.contains(&head) {
            both(&head)?
        } else if weights.contains(&head) && !same(weights, [embedding, &head], &shape)? {
            tracing::warn!("{embedding} and {head} differ in a tied checkpoint: both are used");
            (load(embedding)?, part(&head)?)
        } else {
            both(embedding)?
        };
        let bias = if spec.head == Head::Biased {
            let own = format!("{}.bias", self.head);
            let other = spec.names.other_head_bias.filter(|_| !weights.contains(&own));
            let bias = weights.dense(other.unwrap_or(&own), &shape[..1], DType::F32)?;
            let own = bias.narrow(0, vocabulary.start, vocabulary.len());
            Some(own?)
        } else {
            None
        };
        Ok((embedding, Some(Linear::from_matrix(head, bias)?)))
    }
}

impl Names {
    /// Whether `name` is the embedding, or the output head where that isn't the embedding.
    pub(super) fn is_end(&self, spec: &DecoderSpec, weights: &Weights, name: &str) -> bool {
        let shared = spec.tied_embeddings && weights.contains(&self.embedding);
        let is_head = || name.strip_suffix(".weight") == Some(self.head.as_str());
        name == self.embedding || !shared && spec.head != Head::Absent && is_head()
    }

    /// The matrix `name`, unless the checkpoint lacks it or it is a copy of the decoder's embedding
    /// or, with `is_head`, of its output head.
    pub(super) fn another(
        &self,
        spec: &DecoderSpec,
        weights: &Weights,
        name: &str,
        is_head: bool,
    ) -> Loaded<Option<Matrix>> {
        let shape = [spec.vocab_size, spec.mlp.hidden_size];
        let head = format!("{}.weight", self.head);
        let own = if is_head { &head } else { &self.embedding };
        if !weights.contains(name) || weights.contains(own) && same(weights, [name, own], &shape)? {
            return Ok(None);
        }
        let kind = weights.rounding().map(at_least_eight_bits);
        Matrix::from_stored(weights, &weights.stored(name, &shape)?, kind).map(Some)
    }
}

/// What hidden states go through between the final norm and the output head.
pub(super) struct HeadTransform {
    dense: Linear,
    activation: Activation,
    norm: Norm,
}

impl HeadTransform {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(before) = spec.before_head.filter(|_| spec.head != Head::Absent) else {
            return Ok(None);
        };
        let hidden = spec.mlp.hidden_size;
        Ok(Some(Self {
            dense: Linear::load(&weights.scope(before.dense), hidden, hidden, before.bias)?,
            activation: before.activation,
            norm: Norm::load(&weights.scope(before.norm), hidden, spec.norm)?,
        }))
    }

    /// `[.., hidden]` to the same shape.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.forward(&pointwise(self.activation, &self.dense.forward(x)?)?)
    }
}

/// The kind that embeddings and the output head are rounded to: they suffer most from few bits, and
/// keep at least about eight, as in llama.cpp.
pub(crate) fn at_least_eight_bits(kind: GgmlDType) -> GgmlDType {
    match kind {
        GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_0 => kind,
        _ => GgmlDType::Q6K,
    }
}

/// Whether two stored tensors are equal in kind and values.
fn same(weights: &Weights, names: [&str; 2], shape: &[usize]) -> Loaded<bool> {
    let [a, b] = names.map(|name| weights.stored(name, shape));
    let (a, b): (StoredTensor, StoredTensor) = (a?, b?);
    Ok(a.kind() == b.kind() && a.bytes() == b.bytes())
}
