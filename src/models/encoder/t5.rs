//! The encoder of T5, alone: sentence-t5, GTR and Instructor.
//!
//! Raffel et al., "Exploring the Limits of Transfer Learning", 2020: RMS norms before both parts and one at
//! the end, no biases, scores that are not scaled and have a bias by relative position, which all layers
//! share.

use candle_core::{Device, Result as TensorResult, Tensor, bail};
use serde::Deserialize;
use serde_json::Value;

use super::position_bias::PositionBias;
use super::text::{Text, TextEncoder, lengths};
use crate::kernels::pointwise::Activation;
use crate::layers::embedding::Embedding;
use crate::layers::full_attention::{FullAttention, Heads, Texts};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::mlp::{Mlp, MlpSpec, MlpTensors};
use crate::layers::norm::{Norm, NormSpec};
use crate::models::config::MAX_SIZE;
use crate::models::error::{ModelError, Result, bad, check_size};
use crate::weights::{Loaded, Weights};

/// Class names, as in `config.json`'s `architectures`.
pub(super) const CLASSES: [&str; 2] = ["T5EncoderModel", "MT5EncoderModel"];

/// Whether a `config.json` describes such an encoder.
pub fn is_t5(config: &Value) -> bool {
    let names = config.get("architectures").and_then(Value::as_array);
    let known = |name: &Value| CLASSES.iter().any(|class| name == class);
    names.is_some_and(|names| names.iter().any(known))
}

#[derive(Deserialize)]
struct Fields {
    vocab_size: usize,
    d_model: usize,
    d_kv: usize,
    d_ff: usize,
    num_layers: usize,
    num_heads: usize,
    n_positions: Option<usize>,
    relative_attention_num_buckets: Option<usize>,
    relative_attention_max_distance: Option<usize>,
    feed_forward_proj: Option<String>,
    layer_norm_epsilon: Option<f32>,
}

/// The shape of the encoder, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct T5Spec {
    vocab_size: usize,
    hidden_size: usize,
    num_layers: usize,
    heads: Heads,
    max_tokens: usize,
    buckets: usize,
    far: usize,
    norm: NormSpec,
    mlp: MlpSpec,
}

impl T5Spec {
    /// Checks the content of a `config.json`.
    ///
    /// # Errors
    ///
    /// An absent size, a size of zero, a feed-forward part that is not implemented.
    pub fn from_config(config: &Value) -> Result<Self> {
        let fields = Fields::deserialize(config)?;
        let max_tokens = fields.n_positions.unwrap_or(512);
        let buckets = fields.relative_attention_num_buckets.unwrap_or(32);
        let far = fields.relative_attention_max_distance.unwrap_or(128);
        for (field, size, least) in [
            ("vocab_size", fields.vocab_size, 1),
            ("d_model", fields.d_model, 1),
            ("d_kv", fields.d_kv, 1),
            ("d_ff", fields.d_ff, 1),
            ("num_layers", fields.num_layers, 1),
            ("num_heads", fields.num_heads, 1),
            ("n_positions", max_tokens, 1),
            ("relative_attention_num_buckets", buckets, 4),
            ("relative_attention_max_distance", far, buckets / 4 + 1),
        ] {
            check_size(field, size, least..=MAX_SIZE)?;
        }
        if !buckets.is_multiple_of(4) {
            return Err(bad("relative_attention_num_buckets", buckets, "must be a multiple of 4"));
        }
        let eps = fields.layer_norm_epsilon.unwrap_or(1e-6);
        if !(0.0..1.0).contains(&eps) {
            return Err(bad("layer_norm_epsilon", eps, "must be at least 0 and less than 1"));
        }
        let (gated, activation) = feed_forward(fields.feed_forward_proj.as_deref())?;
        let tensors = if gated {
            MlpTensors::Gated(["wi_0", "wi_1", "wo"])
        } else {
            MlpTensors::Plain(["wi", "wo"])
        };
        Ok(Self {
            vocab_size: fields.vocab_size,
            hidden_size: fields.d_model,
            num_layers: fields.num_layers,
            heads: Heads { count: fields.num_heads, dim: fields.d_kv },
            max_tokens,
            buckets,
            far,
            norm: NormSpec::rms(eps),
            mlp: MlpSpec {
                hidden_size: fields.d_model,
                intermediate_size: fields.d_ff,
                bias: false,
                down_bias: false,
                activation,
                gating: None,
                gate_factor: 1.0,
                gate_threshold: None,
                learned_activation: None,
                inner_norm: None,
                scales: None,
                tensors,
            },
        })
    }

    /// Elements of a hidden state.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }
}

/// Whether a feed-forward part is gated, and its activation.
fn feed_forward(name: Option<&str>) -> Result<(bool, Activation)> {
    match name.unwrap_or("relu") {
        "relu" => Ok((false, Activation::Relu)),
        "gelu" => Ok((false, Activation::Gelu)),
        "gelu_new" => Ok((false, Activation::GeluTanh)),
        // Its authors mean this one.
        "gated-gelu" | "gated-gelu_new" => Ok((true, Activation::GeluTanh)),
        "gated-silu" => Ok((true, Activation::Silu)),
        other => {
            let bound = "must be relu, gelu, gelu_new, gated-gelu, gated-gelu_new or gated-silu";
            Err(bad("feed_forward_proj", other, bound))
        }
    }
}

/// The loaded encoder.
pub struct T5Encoder {
    words: Embedding,
    bias: PositionBias,
    layers: Vec<Layer>,
    norm: Norm,
    spec: T5Spec,
}

struct Layer {
    before_attention: Norm,
    attention: FullAttention,
    before_mlp: Norm,
    mlp: Mlp,
}

impl T5Encoder {
    /// Loads the weights of `spec`.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn load(spec: &T5Spec, weights: &Weights) -> std::result::Result<Self, ModelError> {
        let names = ["shared.weight", "encoder.embed_tokens.weight"];
        let name = names.into_iter().find(|name| weights.contains(name)).unwrap_or(names[0]);
        let words = weights.stored(name, &[spec.vocab_size, spec.hidden_size])?;
        let blocks = weights.scope("encoder.block");
        let layers = (0..spec.num_layers).map(|index| Layer::load(spec, &blocks.scope(index)));
        let table = blocks.scope("0.layer.0.SelfAttention");
        let name = "relative_attention_bias.weight";
        Ok(Self {
            // A look-up costs the same in every format, so the embedding is not rounded.
            words: Embedding::new(Matrix::from_stored(weights, &words, None)?),
            bias: PositionBias::load(name, [spec.buckets, spec.far], spec.heads, &table)?,
            layers: layers.collect::<Loaded<_>>()?,
            norm: Norm::load(
                &weights.scope("encoder.final_layer_norm"),
                spec.hidden_size,
                spec.norm,
            )?,
            spec: spec.clone(),
        })
    }
}

impl Layer {
    fn load(spec: &T5Spec, weights: &Weights) -> Loaded<Self> {
        let (hidden, inner) = (spec.hidden_size, spec.heads.count * spec.heads.dim);
        let attention = weights.scope("layer.0.SelfAttention");
        let linear = |name: &str, inputs, outputs| {
            Linear::load(&attention.scope(name), inputs, outputs, false)
        };
        let norm = |name: &str| Norm::load(&weights.scope(name), hidden, spec.norm);
        Ok(Self {
            before_attention: norm("layer.0.layer_norm")?,
            attention: FullAttention {
                query: linear("q", hidden, inner)?,
                key: linear("k", hidden, inner)?,
                value: linear("v", hidden, inner)?,
                output: linear("o", inner, hidden)?,
                heads: spec.heads,
            },
            before_mlp: norm("layer.1.layer_norm")?,
            mlp: Mlp::load(&weights.scope("layer.1.DenseReluDense"), spec.mlp)?,
        })
    }

    /// `bias` is `[heads, longest text, longest text]`.
    fn forward(&self, x: &Tensor, texts: &Texts, bias: &Tensor) -> TensorResult<Tensor> {
        let of_text = |q: &Tensor, _: &Tensor| {
            let length = q.dim(1)?;
            bias.narrow(1, 0, length)?.narrow(2, 0, length)
        };
        let normed = self.before_attention.forward(x)?;
        let x = self.attention.forward_add_biased(x, &normed, texts, 1.0, &of_text)?;
        self.mlp.forward_add(&self.before_mlp.forward(&x)?, &x, 1.0)
    }
}

impl TextEncoder for T5Encoder {
    fn forward(
        &self,
        texts: &[Text<'_>],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> TensorResult<Option<Tensor>> {
        let lengths = lengths(texts)?;
        let longest = lengths.iter().max().copied().unwrap_or_default();
        if longest > self.max_tokens() {
            bail!("a text has {longest} tokens, the most is {}", self.max_tokens());
        }
        let ids: Vec<u32> = texts.iter().flat_map(|text| text.token_ids).copied().collect();
        let seen: Vec<usize> = texts.iter().map(Text::seen).collect();
        let mut x = self.words.forward(ids.as_slice().into(), device)?;
        let layout = Texts::seeing(&lengths, &seen, self.spec.heads, device)?;
        let bias = self.bias.of_length(longest)?;
        for layer in &self.layers {
            if !go_on() {
                return Ok(None);
            }
            x = layer.forward(&x, &layout, &bias)?;
        }
        self.norm.forward(&x).map(Some)
    }

    fn vocab_size(&self) -> usize {
        self.spec.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.spec.hidden_size
    }

    fn max_tokens(&self) -> usize {
        self.spec.max_tokens
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_no_encoder_can_have_is_named() {
        let spec = |fields: Value| {
            let mut config = json!({
                "architectures": ["T5EncoderModel"], "vocab_size": 10, "d_model": 8, "d_kv": 4,
                "d_ff": 12, "num_layers": 1, "num_heads": 3,
            });
            config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert!(is_t5(&config));
            T5Spec::from_config(&config)
        };
        assert_eq!(spec(json!({})).unwrap().hidden_size(), 8);
        for (fields, expected) in [
            (json!({"num_layers": 0}), "`num_layers` is 0"),
            (json!({"feed_forward_proj": "tanh"}), "`feed_forward_proj` is \"tanh\""),
            (json!({"relative_attention_num_buckets": 6}), "must be a multiple of 4"),
            (
                json!({"relative_attention_max_distance": 8}),
                "`relative_attention_max_distance` is 8",
            ),
            (json!({"layer_norm_epsilon": 2.0}), "`layer_norm_epsilon` is 2"),
            (json!({"d_kv": "x"}), "config.json"),
        ] {
            let error = spec(fields).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(!is_t5(&json!({"architectures": ["T5ForConditionalGeneration"]})));
    }
}
