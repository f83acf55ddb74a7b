//! The transformer decoder: one implementation, driven by plain data.
//!
//! A layer is `x += attention(norm(x))`, then `x += mlp(norm(x))`; after the last layer comes one
//! more norm and the output head. What differs between architectures is a value in
//! [`DecoderSpec`]; a field is never named after a model.

use candle_core::quantized::GgmlDType;
use candle_core::{Device, Result, Tensor, bail};

use super::{CausalLm, ForwardOutput, ModelError};
use crate::layers::attention::{Attention, AttentionSpec};
use crate::layers::embedding::Embedding;
use crate::layers::forward::{ForwardBatch, ForwardContext, KvLayer, KvShape};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::mlp::{Mlp, MlpSpec};
use crate::layers::norm::RmsNorm;
use crate::layers::rope::{Rope, RopeAngles, RopeSpec};
use crate::weights::{StoredTensor, Weights};

/// Everything that tells one decoder-only transformer from another.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Longest sequence the checkpoint declares.
    pub max_position_embeddings: usize,
    /// Epsilon of the norms of hidden states.
    pub norm_eps: f32,
    /// Whether the output head is the embedding.
    pub tied_embeddings: bool,
    /// Rotary embedding of all layers.
    pub rope: RopeSpec,
    /// One per layer; all have the same heads.
    pub attention: Vec<AttentionSpec>,
    /// The feed-forward part of every layer.
    pub mlp: MlpSpec,
}

struct Layer {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: Mlp,
}

/// A loaded decoder.
pub struct Decoder {
    embedding: Embedding,
    rope: Rope,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    vocab_size: usize,
    hidden_size: usize,
    max_position_embeddings: usize,
    kv_shape: KvShape,
}

impl Decoder {
    /// Loads the weights of `spec`.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn load(spec: &DecoderSpec, weights: &Weights) -> std::result::Result<Self, ModelError> {
        let Some(first) = spec.attention.first().copied() else {
            return Err(super::config::bad("num_hidden_layers", 0, "must be at least 1"));
        };
        let (embedding, head) = load_ends(spec, weights)?;
        let model = weights.scope("model");
        let layers =
            spec.attention.iter().enumerate().map(|(i, attention)| {
                Layer::load(&model.scope("layers").scope(i), spec, *attention)
            });
        Ok(Self {
            embedding: Embedding::new(embedding),
            rope: Rope::new(&spec.rope),
            layers: layers.collect::<std::result::Result<_, _>>()?,
            norm: RmsNorm::load(&model.scope("norm"), first.hidden_size, spec.norm_eps)?,
            head: Linear::from_matrix(head),
            vocab_size: spec.vocab_size,
            hidden_size: first.hidden_size,
            max_position_embeddings: spec.max_position_embeddings,
            kv_shape: KvShape {
                num_layers: spec.attention.len(),
                num_kv_heads: first.num_kv_heads,
                head_dim: first.head_dim,
            },
        })
    }
}

/// The embedding and the output head.
///
/// A tied checkpoint has one of the two, or both with the same values; with different values it is
/// not tied, whatever its configuration says.
fn load_ends(
    spec: &DecoderSpec,
    weights: &Weights,
) -> std::result::Result<(Matrix, Matrix), ModelError> {
    const EMBEDDING: &str = "model.embed_tokens.weight";
    const HEAD: &str = "lm_head.weight";
    let shape = [spec.vocab_size, spec.mlp.hidden_size];
    let kind = weights.rounding().map(at_least_eight_bits);
    let load = |name| -> std::result::Result<_, ModelError> {
        Ok(Matrix::from_stored(weights, &weights.stored(name, &shape)?, kind)?)
    };
    if !spec.tied_embeddings {
        return Ok((load(EMBEDDING)?, load(HEAD)?));
    }
    let shared = match (weights.contains(EMBEDDING), weights.contains(HEAD)) {
        (true, true) => {
            let (embedding, head) =
                (weights.stored(EMBEDDING, &shape)?, weights.stored(HEAD, &shape)?);
            if !same(&embedding, &head) {
                tracing::warn!("{EMBEDDING} and {HEAD} differ in a tied checkpoint: both are used");
                return Ok((load(EMBEDDING)?, load(HEAD)?));
            }
            load(EMBEDDING)?
        }
        (false, true) => load(HEAD)?,
        (_, false) => load(EMBEDDING)?,
    };
    Ok((shared.clone(), shared))
}

/// The ends of a model suffer most from few bits: they keep at least about eight, as in llama.cpp.
fn at_least_eight_bits(kind: GgmlDType) -> GgmlDType {
    match kind {
        GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_0 => kind,
        _ => GgmlDType::Q6K,
    }
}

/// Whether two stored tensors are equal in kind and values.
fn same(a: &StoredTensor, b: &StoredTensor) -> bool {
    a.kind() == b.kind() && a.bytes() == b.bytes()
}

impl Layer {
    fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        attention: AttentionSpec,
    ) -> std::result::Result<Self, ModelError> {
        let norm = |name| RmsNorm::load(&weights.scope(name), attention.hidden_size, spec.norm_eps);
        Ok(Self {
            attention_norm: norm("input_layernorm")?,
            attention: Attention::load(&weights.scope("self_attn"), attention)?,
            mlp_norm: norm("post_attention_layernorm")?,
            mlp: Mlp::load(&weights.scope("mlp"), spec.mlp)?,
        })
    }

    /// Takes and returns hidden states; `keep` names the rows that are still wanted after attention.
    fn forward(
        &self,
        x: Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        batch: &ForwardBatch,
        keep: Option<&Tensor>,
    ) -> Result<Tensor> {
        let mut attended =
            self.attention.attend(&self.attention_norm.forward(&x)?, angles, kv, batch)?;
        let mut x = x;
        if let Some(rows) = keep {
            attended = attended.index_select(rows, 0)?;
            x = x.index_select(rows, 0)?;
        }
        let x = self.attention.project_add(&attended, &x)?;
        self.mlp.forward_add(&self.mlp_norm.forward(&x)?, &x)
    }
}

impl CausalLm for Decoder {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        self.check(context, batch)?;
        let device = context.device;
        let angles = self.rope.angles(&batch.positions, device)?;
        let mut x = self.embedding.forward(&batch.input_ids, device)?;
        // Behind the last layer's attention only rows that are wanted matter.
        let wanted = wanted_rows(batch);
        let all = wanted.len() == batch.input_ids.len();
        let kept = Tensor::new(wanted.as_slice(), device)?;
        for (i, (layer, kv)) in self.layers.iter().zip(context.kv).enumerate() {
            let keep = (i + 1 == self.layers.len() && !all).then_some(&kept);
            x = layer.forward(x, &angles, kv, batch, keep)?;
        }
        let x = self.norm.forward(&x)?;
        if batch.hidden_rows.is_empty() {
            return Ok(ForwardOutput { logits: self.head.forward(&x)?, hidden: None });
        }
        let with_logits = x.index_select(&places(&batch.logits_rows, &wanted, device)?, 0)?;
        let hidden = x.index_select(&places(&batch.hidden_rows, &wanted, device)?, 0)?;
        Ok(ForwardOutput { logits: self.head.forward(&with_logits)?, hidden: Some(hidden) })
    }

    fn kv_shape(&self) -> KvShape {
        self.kv_shape
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    fn max_position_embeddings(&self) -> usize {
        self.max_position_embeddings
    }
}

/// All rows that anything is wanted of, ascending.
fn wanted_rows(batch: &ForwardBatch) -> Vec<u32> {
    if batch.hidden_rows.is_empty() {
        return batch.logits_rows.clone();
    }
    let mut rows = [&batch.logits_rows[..], &batch.hidden_rows[..]].concat();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Where each of `rows` stands among the `wanted` ones.
fn places(rows: &[u32], wanted: &[u32], device: &Device) -> Result<Tensor> {
    let places = rows.iter().map(|row| wanted.partition_point(|other| other < row));
    let places = places.map(|place| u32::try_from(place).map_err(candle_core::Error::wrap));
    Tensor::new(places.collect::<Result<Vec<u32>>>()?, device)
}

impl Decoder {
    /// Refuses a batch whose parts don't fit each other, before anything is written.
    fn check(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<()> {
        let rows = batch.input_ids.len();
        if rows == 0 {
            bail!("a batch needs at least one token");
        }
        if context.kv.len() != self.layers.len() {
            bail!("{} kv layers for {} layers", context.kv.len(), self.layers.len());
        }
        if batch.positions.len() != rows || batch.slot_mapping.len() != rows {
            bail!(
                "{rows} tokens with {} positions and {} slots",
                batch.positions.len(),
                batch.slot_mapping.len()
            );
        }
        for (what, wanted) in [("logits", &batch.logits_rows), ("hidden", &batch.hidden_rows)] {
            let ascending = wanted.is_sorted_by(|a, b| a < b);
            if !ascending || wanted.last().is_some_and(|row| *row as usize >= rows) {
                bail!("{what} rows {wanted:?} don't ascend below {rows}");
            }
        }
        Ok(())
    }
}
