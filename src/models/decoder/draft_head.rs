//! The heads of checkpoints that draft the token after the next one: a decoder of one layer whose input
//! is a token's embedding joined with the hidden states from which that token was predicted.
//!
//! DeepSeek-V3 (<https://arxiv.org/abs/2412.19437>, section 2.2) calls them multi-token prediction. At
//! position `p` the hidden states are the model's own behind its final norm, the token is that of
//! position `p + 1`, and the logits are of position `p + 2`. What the head gives behind its own final norm
//! stands for the model's hidden states of position `p + 1` where it goes on by itself.

use candle_core::{Result, Tensor, bail};

use super::spec::{DecoderSpec, Head, Names};
use crate::layers::linear::Linear;
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::MoeSpec;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// How a checkpoint names a head, and what it does with its two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    /// What stands before the layer's index: the layers of the model, or the head's own.
    layers: &'static str,
    /// Whether the head's layer is counted behind those of the model.
    behind_layers: bool,
    /// Names below the layer, or below the checkpoint's root where there is a dot before them.
    embedding_norm: &'static str,
    hidden_norm: &'static str,
    projection: &'static str,
    /// The norm of the feed-forward part's input, where the model's layers call it otherwise.
    mlp_norm: Option<&'static str>,
    /// The final norm, where there is one.
    norm: Option<&'static str>,
    /// Copies of the embedding and of the output head.
    embedding: Option<&'static str>,
    head: Option<&'static str>,
    /// Whether hidden states come before the embedding.
    hidden_first: bool,
    /// Whether the first position has no embedding.
    blind_at_start: bool,
}

const FAMILIES: [Family; 6] = [
    // Qwen3-Next, Qwen3.5, EXAONE.
    Family {
        layers: "mtp.layers",
        behind_layers: false,
        embedding_norm: ".mtp.pre_fc_norm_embedding",
        hidden_norm: ".mtp.pre_fc_norm_hidden",
        projection: ".mtp.fc",
        mlp_norm: None,
        norm: Some(".mtp.norm"),
        embedding: None,
        head: None,
        hidden_first: false,
        blind_at_start: false,
    },
    // DeepSeek-V3, GLM-4.5.
    Family {
        layers: "model.layers",
        behind_layers: true,
        embedding_norm: "enorm",
        hidden_norm: "hnorm",
        projection: "eh_proj",
        mlp_norm: None,
        norm: Some("shared_head.norm"),
        embedding: Some("embed_tokens"),
        head: Some("shared_head.head"),
        hidden_first: false,
        blind_at_start: true,
    },
    // Step 3.5.
    Family {
        layers: "model.layers",
        behind_layers: true,
        embedding_norm: "enorm",
        hidden_norm: "hnorm",
        projection: "eh_proj",
        mlp_norm: None,
        norm: Some("transformer.shared_head.norm"),
        embedding: None,
        head: Some("transformer.shared_head.output"),
        hidden_first: false,
        blind_at_start: false,
    },
    // MiMo V2.
    Family {
        layers: "model.mtp.layers",
        behind_layers: false,
        embedding_norm: "enorm",
        hidden_norm: "hnorm",
        projection: "eh_proj",
        mlp_norm: Some("pre_mlp_layernorm"),
        norm: Some("final_layernorm"),
        embedding: None,
        head: None,
        hidden_first: false,
        blind_at_start: false,
    },
    // MiMo.
    Family {
        layers: "model.mtp_layers",
        behind_layers: false,
        embedding_norm: "token_layernorm",
        hidden_norm: "hidden_layernorm",
        projection: "input_proj",
        mlp_norm: None,
        norm: Some("final_layernorm"),
        embedding: None,
        head: None,
        hidden_first: true,
        blind_at_start: true,
    },
    // Ernie.
    Family {
        layers: "model.mtp_block",
        behind_layers: false,
        embedding_norm: ".model.mtp_emb_norm.0",
        hidden_norm: ".model.mtp_hidden_norm.0",
        projection: ".model.mtp_linear_proj.0",
        mlp_norm: None,
        norm: None,
        embedding: None,
        head: None,
        hidden_first: false,
        blind_at_start: true,
    },
];

/// A head that a checkpoint has.
#[derive(Clone, Debug)]
pub(super) struct HeadNames {
    family: Family,
    /// The name of its layer.
    layer: String,
}

/// What joins the two inputs of a head.
#[derive(Debug)]
pub(super) struct Join {
    embedding_norm: Norm,
    hidden_norm: Norm,
    projection: Linear,
    hidden_first: bool,
    blind_at_start: bool,
}

impl HeadNames {
    /// The head that a checkpoint has behind the layers of `spec`, if it has one.
    pub(super) fn find(spec: &DecoderSpec, weights: &Weights) -> Option<Self> {
        let named = |family: Family| {
            let index = if family.behind_layers { spec.attention.len() } else { 0 };
            let names = Self { family, layer: format!("{}.{index}", family.layers) };
            weights.contains(&format!("{}.weight", names.of(family.projection))).then_some(names)
        };
        let has_norm = |names: &Self| {
            let norm = names.norm();
            norm.is_none_or(|norm| weights.contains(&format!("{norm}.weight")))
        };
        // Families that call their projections alike have final norms of other names.
        let mut found = FAMILIES.into_iter().filter_map(named);
        found.clone().find(has_norm).or_else(|| found.next())
    }

    /// The whole name of a part of the head.
    fn of(&self, name: &str) -> String {
        name.strip_prefix('.').map_or_else(|| format!("{}.{name}", self.layer), str::to_owned)
    }

    /// The name of the head's layer.
    pub(super) fn layer(&self) -> &str {
        &self.layer
    }

    /// The name of its final norm, if it has one.
    pub(super) fn norm(&self) -> Option<String> {
        self.family.norm.map(|norm| self.of(norm))
    }

    /// The name of the norm of its feed-forward part's input, if it is not that of the model's layers.
    pub(super) fn mlp_norm(&self) -> Option<&'static str> {
        self.family.mlp_norm
    }

    /// Whether its layer has a dense feed-forward part, also where the model's last one has experts.
    pub(super) fn is_dense(&self, spec: &DecoderSpec, weights: &Weights) -> bool {
        let (MlpTensors::Gated([first, ..])
        | MlpTensors::GateAndUp([first, _])
        | MlpTensors::UpAndGate([first, _])
        | MlpTensors::Plain([first, _])) = spec.mlp.tensors;
        weights.contains(&format!("{}.{}.{first}.weight", self.layer, spec.names.mlp))
    }

    /// The names of its own embedding and output head, where it may have them.
    pub(super) fn own(&self) -> [Option<String>; 2] {
        let Family { embedding, head, .. } = self.family;
        [embedding, head].map(|name| Some(format!("{}.weight", self.of(name?))))
    }

    /// Loads what joins its inputs.
    pub(super) fn join(&self, spec: &DecoderSpec, weights: &Weights) -> Loaded<Join> {
        let hidden = spec.mlp.hidden_size;
        let norm = |name| Norm::load(&weights.scope(self.of(name)), hidden, spec.norm);
        let projection = weights.scope(self.of(self.family.projection));
        Ok(Join {
            embedding_norm: norm(self.family.embedding_norm)?,
            hidden_norm: norm(self.family.hidden_norm)?,
            projection: Linear::load(&projection, 2 * hidden, hidden, false)?,
            hidden_first: self.family.hidden_first,
            blind_at_start: self.family.blind_at_start,
        })
    }
}

impl Join {
    /// The input of the head's layer, `[rows, hidden]`: of embeddings `x` and of what the model gave
    /// before them, both `[rows, hidden]`.
    pub(super) fn forward(&self, x: &Tensor, hidden: &Tensor, positions: &[u32]) -> Result<Tensor> {
        if x.dims() != hidden.dims() {
            bail!("hidden states {:?} don't go with embeddings {:?}", hidden.dims(), x.dims());
        }
        let seen: Vec<f32> = positions
            .iter()
            .map(|at| f32::from(u8::from(*at > 0 || !self.blind_at_start)))
            .collect();
        let x = if seen.contains(&0.0) {
            &x.broadcast_mul(&Tensor::from_vec(seen, (positions.len(), 1), x.device())?)?
        } else {
            x
        };
        let embedding = self.embedding_norm.forward(x)?;
        let hidden = self.hidden_norm.forward(hidden)?;
        let parts = if self.hidden_first { [hidden, embedding] } else { [embedding, hidden] };
        self.projection.forward(&Tensor::cat(&parts, 1)?)
    }
}

impl DecoderSpec {
    /// The decoder of one layer that a head is: attention as in the layers that attend unless it is said
    /// otherwise, experts as in the last layer unless it `is_dense`.
    pub(super) fn of_draft_head(&self, is_dense: bool) -> Self {
        let last = self.attention.len() - 1;
        let attends = (0..=last).find(|index| self.has_kv_cache(*index)).unwrap_or(last);
        let scales = self.residuals_from_norms.as_ref();
        let experts = |moe: &MoeSpec| MoeSpec { layers: vec![moe.layers[last]], ..moe.clone() };
        Self {
            names: Names { layers: "", norm: "", ..self.names },
            attention: vec![self.draft_attention.unwrap_or(self.attention[attends])],
            draft_attention: None,
            residuals_from_norms: scales.map(|all| vec![all[attends]]),
            residuals_scaled: None,
            learned_sums: None,
            recurrent_block: None,
            pairs: false,
            schedule: None,
            mixers: None,
            recurrent: None,
            intermediate_sizes: None,
            gate_thresholds: None,
            gate_limits: None,
            shared_blocks: None,
            streams: None,
            hyper_connections: None,
            embedding_sum: None,
            low_rank_path: None,
            layer_inputs: None,
            learned_positions: None,
            sinusoids: None,
            token_types: None,
            embedding_norm: None,
            moe: self.moe.as_ref().filter(|_| !is_dense).map(experts),
            picture_layers: 0,
            picture_filler: None,
            head: Head::Plain,
            ..self.clone()
        }
    }
}
