//! The network of all encoders: embeddings, then layers of attention and a feed-forward part, each
//! with a residual connection and a norm after it.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::config::{EncoderKind, EncoderSpec};
use crate::kernels::pointwise::{Activation, pointwise};
use crate::layers::embedding::Embedding;
use crate::layers::full_attention::{FullAttention, Heads, Texts};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::LayerNorm;
use crate::weights::{Loaded, Weights};

/// Names of a kind's tensors, below the kind's prefix.
struct Names {
    layers: &'static str,
    query: &'static str,
    key: &'static str,
    value: &'static str,
    attention_output: &'static str,
    attention_norm: &'static str,
    intermediate: &'static str,
    output: &'static str,
    output_norm: &'static str,
}

const BERT: Names = Names {
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    attention_output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    intermediate: "intermediate.dense",
    output: "output.dense",
    output_norm: "output.LayerNorm",
};
const DISTIL_BERT: Names = Names {
    layers: "transformer.layer",
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    attention_output: "attention.out_lin",
    attention_norm: "sa_layer_norm",
    intermediate: "ffn.lin1",
    output: "ffn.lin2",
    output_norm: "output_layer_norm",
};

/// Name of the embedding of tokens, which every encoder has.
const TOKEN_EMBEDDING: &str = "embeddings.word_embeddings.weight";
/// Prefixes of names in checkpoints that have a head on top of the encoder.
const PREFIXES: [&str; 3] = ["bert", "roberta", "distilbert"];

/// The weights of an encoder.
pub(super) struct Network {
    words: Embedding,
    /// `[max_positions, hidden]`, with the embedding of token type 0 added, if there are types.
    positions: Tensor,
    norm: LayerNorm,
    layers: Vec<Layer>,
    heads: Heads,
}

struct Layer {
    attention: FullAttention,
    attention_norm: LayerNorm,
    intermediate: Linear,
    activation: Activation,
    output: Linear,
    output_norm: LayerNorm,
}

impl Network {
    pub(super) fn load(spec: &EncoderSpec, weights: &Weights) -> Loaded<Self> {
        let has = |prefix: &&&str| weights.contains(&format!("{prefix}.{TOKEN_EMBEDDING}"));
        let weights = match PREFIXES.iter().find(has) {
            Some(prefix) if !weights.contains(TOKEN_EMBEDDING) => weights.scope(prefix),
            _ => weights.clone(),
        };
        let names = match spec.kind {
            EncoderKind::DistilBert => &DISTIL_BERT,
            EncoderKind::Bert | EncoderKind::Roberta => &BERT,
        };
        let hidden = spec.hidden_size;
        // A look-up costs the same in every format, so the embedding is not rounded.
        let words = weights.stored(TOKEN_EMBEDDING, &[spec.vocab_size, hidden])?;
        let layers = weights.scope(names.layers);
        Ok(Self {
            words: Embedding::new(Matrix::from_stored(&weights, &words, None)?),
            positions: positions(spec, &weights)?,
            norm: LayerNorm::load(&weights.scope("embeddings.LayerNorm"), hidden, spec.norm_eps)?,
            layers: (0..spec.num_layers)
                .map(|layer| Layer::load(spec, names, &layers.scope(layer)))
                .collect::<std::result::Result<_, _>>()?,
            heads: spec.heads(),
        })
    }

    /// Hidden states `[num_tokens, hidden]` of `ids` at `positions`, from texts of these lengths;
    /// `None` once `go_on`, which is called before every layer, returns false.
    pub(super) fn forward(
        &self,
        ids: &[u32],
        positions: &[u32],
        lengths: &[usize],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        if ids.is_empty() || lengths.contains(&0) {
            bail!("a batch needs texts of at least one token each");
        }
        let texts = Texts::new(lengths, self.heads, device)?;
        let positions = self.positions.index_select(&Tensor::new(positions, device)?, 0)?;
        let mut x = self.norm.forward(&(self.words.forward(ids.into(), device)? + positions)?)?;
        for layer in &self.layers {
            if !go_on() {
                return Ok(None);
            }
            x = layer.forward(&x, &texts)?;
        }
        Ok(Some(x))
    }
}

/// The embedding of positions plus that of token type 0, which all tokens have.
fn positions(spec: &EncoderSpec, weights: &Weights) -> Loaded<Tensor> {
    let table = |name: &str, rows| weights.dense(name, &[rows, spec.hidden_size], DType::F32);
    let positions = table("embeddings.position_embeddings.weight", spec.max_positions)?;
    if spec.kind == EncoderKind::DistilBert {
        return Ok(positions);
    }
    let types = table("embeddings.token_type_embeddings.weight", spec.type_vocab_size)?;
    let added = types.narrow(0, 0, 1).and_then(|first| positions.broadcast_add(&first));
    Ok(added?)
}

impl Layer {
    fn load(spec: &EncoderSpec, names: &Names, weights: &Weights) -> Loaded<Self> {
        let (hidden, inner) = (spec.hidden_size, spec.intermediate_size);
        let linear =
            |name, inputs, outputs| Linear::load(&weights.scope(name), inputs, outputs, true);
        let norm = |name| LayerNorm::load(&weights.scope(name), hidden, spec.norm_eps);
        Ok(Self {
            attention: FullAttention {
                query: linear(names.query, hidden, hidden)?,
                key: linear(names.key, hidden, hidden)?,
                value: linear(names.value, hidden, hidden)?,
                output: linear(names.attention_output, hidden, hidden)?,
                heads: spec.heads(),
            },
            attention_norm: norm(names.attention_norm)?,
            intermediate: linear(names.intermediate, hidden, inner)?,
            activation: spec.activation,
            output: linear(names.output, inner, hidden)?,
            output_norm: norm(names.output_norm)?,
        })
    }

    fn forward(&self, x: &Tensor, texts: &Texts) -> Result<Tensor> {
        let x = self.attention_norm.forward(&self.attention.forward_add(x, texts)?)?;
        let inner = pointwise(self.activation, &self.intermediate.forward(&x)?)?;
        self.output_norm.forward(&self.output.forward_add(&inner, &x)?)
    }
}
