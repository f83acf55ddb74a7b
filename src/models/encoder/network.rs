//! The network of all encoders: embeddings, then layers of attention and a feed-forward part, each
//! with a residual connection and a norm after it.

use candle_core::{DType, Device, Result, Tensor};

use super::config::{EncoderKind, EncoderSpec};
use super::disentangled::Distances;
use super::position_bias::PositionBias;
use super::text::{Text, lengths};
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

const MPNET: Names = Names {
    layers: "encoder.layer",
    query: "attention.attn.q",
    key: "attention.attn.k",
    value: "attention.attn.v",
    attention_output: "attention.attn.o",
    attention_norm: "attention.LayerNorm",
    intermediate: "intermediate.dense",
    output: "output.dense",
    output_norm: "output.LayerNorm",
};

const ALBERT: Names = Names {
    layers: "encoder.albert_layer_groups",
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    attention_output: "attention.dense",
    attention_norm: "attention.LayerNorm",
    intermediate: "ffn",
    output: "ffn_output",
    output_norm: "full_layer_layer_norm",
};

const DEBERTA: Names = Names {
    query: "attention.self.query_proj",
    key: "attention.self.key_proj",
    value: "attention.self.value_proj",
    ..BERT
};

/// Name of the embedding of tokens, which every encoder has.
const TOKEN_EMBEDDING: &str = "embeddings.word_embeddings.weight";
/// Prefixes of names in checkpoints that have a head on top of the encoder.
const PREFIXES: [&str; 9] =
    ["bert", "roberta", "distilbert", "electra", "mpnet", "deberta", "albert", "ernie", "rembert"];

/// From this distance on all share a bias.
const FAR: usize = 128;

/// The weights of an encoder.
pub(super) struct Network {
    words: Embedding,
    /// `[max_positions, hidden]`, with the embedding of token type 0 added, if there are types.
    positions: Tensor,
    /// `[hidden]`: what token type 1 has more than type 0.
    second_type: Option<Tensor>,
    norm: LayerNorm,
    /// From embeddings to hidden states, where they differ.
    projection: Option<Linear>,
    layers: Vec<Layer>,
    /// The layers that are computed one after the other, by index.
    order: Vec<usize>,
    heads: Heads,
    /// What scores have more by relative position, if they have.
    position_bias: Option<PositionBias>,
}

struct Layer {
    attention: FullAttention,
    /// Where scores depend on distances.
    distances: Option<Distances>,
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
            EncoderKind::Mpnet => &MPNET,
            EncoderKind::Deberta => &DEBERTA,
            EncoderKind::Albert => &ALBERT,
            EncoderKind::Bert
            | EncoderKind::Electra
            | EncoderKind::Roberta
            | EncoderKind::RemBert => &BERT,
        };
        let (hidden, width) = (spec.hidden_size, spec.embedding_size());
        // A look-up costs the same in every format, so the embedding is not rounded.
        let words = weights.stored(TOKEN_EMBEDDING, &[spec.vocab_size, width])?;
        let layers = weights.scope(names.layers);
        let (positions, second_type) = positions(spec, &weights)?;
        let position_bias = match spec.position_buckets {
            Some(buckets) => {
                let name = "encoder.relative_attention_bias.weight";
                Some(PositionBias::load(name, [buckets, FAR], spec.heads(), &weights)?)
            }
            None => None,
        };
        let distances = spec.distances.as_ref();
        let distances = distances.map(|own| own.embedding(hidden, spec.norm_eps, &weights));
        let distances = distances.transpose()?;
        let projection = spec.kind.projection().filter(|_| spec.projected_from.is_some());
        let projection =
            projection.map(|name| Linear::load(&weights.scope(name), width, hidden, true));
        let (own, order) = spec.layers();
        let own = own.into_iter().map(|[group, layer]| match spec.groups {
            Some(_) => layers.scope(group).scope("albert_layers").scope(layer),
            None => layers.scope(layer),
        });
        let load = |weights: Weights| Layer::load(spec, names, distances.as_ref(), &weights);
        Ok(Self {
            words: Embedding::new(Matrix::from_stored(&weights, &words, None)?),
            positions,
            second_type,
            norm: LayerNorm::load(&weights.scope("embeddings.LayerNorm"), width, spec.norm_eps)?,
            projection: projection.transpose()?,
            layers: own.map(load).collect::<std::result::Result<_, _>>()?,
            order,
            heads: spec.heads(),
            position_bias,
        })
    }

    /// Hidden states `[num_tokens, hidden]` of texts; `None` once `go_on`, which is called before
    /// every layer, returns false.
    pub(super) fn forward(
        &self,
        texts: &[Text<'_>],
        spec: &EncoderSpec,
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        let lengths = lengths(texts)?;
        let mut x = self.embed(texts, spec, device)?;
        let seen: Vec<usize> = texts.iter().map(Text::seen).collect();
        let mut texts = Texts::seeing(&lengths, &seen, self.heads, device)?;
        if let Some(bias) = &self.position_bias {
            let longest = lengths.iter().max().copied().unwrap_or_default();
            texts = texts.biased(bias.of_length(longest)?);
        }
        for index in &self.order {
            let layer = &self.layers[*index];
            if !go_on() {
                return Ok(None);
            }
            x = layer.forward(&x, &texts)?;
        }
        Ok(Some(x))
    }
}

impl Network {
    /// The matrix of the tokens' embeddings, `[vocab_size, hidden]`.
    pub(super) fn words(&self) -> &Embedding {
        &self.words
    }

    /// The normalized embeddings of tokens, of their positions and of their types.
    fn embed(&self, texts: &[Text<'_>], spec: &EncoderSpec, device: &Device) -> Result<Tensor> {
        let ids: Vec<u32> = texts.iter().flat_map(|text| text.token_ids).copied().collect();
        let positions: Vec<u32> =
            texts.iter().flat_map(|text| spec.positions(text.token_ids)).collect();
        let positions = self.positions.index_select(&Tensor::new(positions, device)?, 0)?;
        let mut x = (self.words.forward(ids.as_slice().into(), device)? + positions)?;
        if let Some(second_type) = self.second_type.as_ref().filter(|_| has_second(texts)) {
            let types: Vec<f32> = texts.iter().flat_map(types).collect();
            let types = Tensor::new(types, device)?.unsqueeze(1)?;
            x = (x + types.broadcast_mul(&second_type.unsqueeze(0)?)?)?;
        }
        let x = self.norm.forward(&x)?;
        self.projection.as_ref().map_or(Ok(x.clone()), |projection| projection.forward(&x))
    }
}

fn has_second(texts: &[Text<'_>]) -> bool {
    texts.iter().any(|text| text.second.is_some())
}

/// 0 for the tokens of the first text, 1 for those of the second.
fn types(text: &Text<'_>) -> impl Iterator<Item = f32> + use<> {
    let length = text.token_ids.len();
    let second = text.second.map_or(length, |second| second.min(length));
    std::iter::repeat_n(0.0, second).chain(std::iter::repeat_n(1.0, length - second))
}

/// The embedding of positions plus that of token type 0, which all tokens have but those of second
/// texts; and what these have more.
fn positions(spec: &EncoderSpec, weights: &Weights) -> Loaded<(Tensor, Option<Tensor>)> {
    let width = spec.embedding_size();
    let table = |name: &str, rows| weights.dense(name, &[rows, width], DType::F32);
    let mut positions = if spec.learns_positions {
        table("embeddings.position_embeddings.weight", spec.max_positions)?
    } else {
        Tensor::zeros((spec.max_positions, width), DType::F32, weights.device())?
    };
    if let Some(rows) = spec.task_types {
        let tasks = table("embeddings.task_type_embeddings.weight", rows)?;
        positions = positions.broadcast_add(&tasks.narrow(0, 0, 1)?)?;
    }
    if spec.type_vocab_size == 0 {
        return Ok((positions, None));
    }
    let types = table("embeddings.token_type_embeddings.weight", spec.type_vocab_size)?;
    let first = types.narrow(0, 0, 1)?;
    let second = match spec.type_vocab_size {
        1 => None,
        _ => Some((types.narrow(0, 1, 1)? - &first)?.squeeze(0)?),
    };
    Ok((positions.broadcast_add(&first)?, second))
}

impl Layer {
    /// `distances` is their embedding, `[distances, hidden]`.
    fn load(
        spec: &EncoderSpec,
        names: &Names,
        distances: Option<&Tensor>,
        weights: &Weights,
    ) -> Loaded<Self> {
        let (hidden, inner) = (spec.hidden_size, spec.intermediate_size);
        let linear =
            |name, inputs, outputs| Linear::load(&weights.scope(name), inputs, outputs, true);
        let norm = |name| LayerNorm::load(&weights.scope(name), hidden, spec.norm_eps);
        let attention = FullAttention {
            query: linear(names.query, hidden, hidden)?,
            key: linear(names.key, hidden, hidden)?,
            value: linear(names.value, hidden, hidden)?,
            output: linear(names.attention_output, hidden, hidden)?,
            heads: spec.heads(),
        };
        let distances = match (&spec.distances, distances) {
            (Some(own), Some(embedding)) => {
                let shared = [&attention.query, &attention.key];
                let weights = weights.scope("attention.self");
                Some(Distances::load(own, spec.heads(), embedding, shared, &weights)?)
            }
            _ => None,
        };
        Ok(Self {
            attention,
            distances,
            attention_norm: norm(names.attention_norm)?,
            intermediate: linear(names.intermediate, hidden, inner)?,
            activation: spec.activation,
            output: linear(names.output, inner, hidden)?,
            output_norm: norm(names.output_norm)?,
        })
    }

    fn forward(&self, x: &Tensor, texts: &Texts) -> Result<Tensor> {
        let attended = match &self.distances {
            Some(distances) => {
                let bias = |q: &Tensor, k: &Tensor| distances.bias(q, k);
                self.attention.forward_add_biased(x, x, texts, distances.scale(), &bias)?
            }
            None => self.attention.forward_add(x, x, texts)?,
        };
        let x = self.attention_norm.forward(&attended)?;
        let inner = pointwise(self.activation, &self.intermediate.forward(&x)?)?;
        self.output_norm.forward(&self.output.forward_add(&inner, &x)?)
    }
}
