//! The shape and the variant of a vision tower, as plain data.

use serde_json::Value;

use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::weights::Weights;

/// The most layers of a tower.
const MAX_LAYERS: usize = 1 << 10;
/// The largest size of a tower in any direction.
const MAX_SIZE: usize = 1 << 20;

/// Prefixes of the names of Qwen's towers beside a language model, new and old.
pub(super) const QWEN_ROOTS: &[&str] = &["model.visual.", "visual."];

/// The shape and the variant of a vision tower: a product for each patch of pixels, layers of
/// attention within a picture or a window of it, and a merger that makes one token of several patches.
#[derive(Clone, Debug, PartialEq)]
pub struct TowerSpec {
    /// Prefixes of all names; the first that the checkpoint has is used.
    pub roots: &'static [&'static str],
    /// Pixels of a side of a patch.
    pub patch: usize,
    /// Patches of a side of a token.
    pub merge: usize,
    /// How often a picture is seen, as if it were so many frames of a video.
    pub frames: usize,
    /// Whether the product of patches has a bias.
    pub patch_bias: bool,
    /// Rows, and columns, of the learned embedding of positions, which is interpolated; `None`: there
    /// is none.
    pub positions: Option<usize>,
    /// Base of the wavelengths of the rotary embedding, whose first half turns by rows and whose other
    /// half by columns.
    pub rope_theta: f32,
    /// Elements of a hidden state.
    pub hidden: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Number of layers.
    pub layers: usize,
    /// The norm before attention, before the feed-forward part and in the merger.
    pub norm: NormSpec,
    /// The feed-forward part.
    pub mlp: TowerMlp,
    /// The windows that most layers attend within; `None`: all see the whole picture.
    pub windows: Option<Windows>,
    /// What makes tokens of patches, at the end.
    pub merger: MergerSpec,
    /// After which layers more features are made of the hidden states, each by a merger of its own.
    pub deepstack: Vec<usize>,
    /// Elements of a token's features.
    pub output: usize,
}

/// The feed-forward part of a tower's layers; all projections have biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TowerMlp {
    /// Elements between the projections.
    pub intermediate: usize,
    /// What is between them.
    pub activation: TowerActivation,
    /// Name of the gate, if there is one.
    pub gate: Option<&'static str>,
    /// Names of the projections up and down.
    pub names: [&'static str; 2],
}

/// An activation of a tower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TowerActivation {
    /// One that decoders have too.
    Common(Activation),
    /// `x * sigmoid(1.702 x)`: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    QuickGelu,
}

/// Windows of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Tokens of a side.
    pub side: usize,
    /// The layers that see the whole picture.
    pub whole: Vec<usize>,
}

/// Names of a merger's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergerSpec {
    /// The norm of each patch.
    pub norm: &'static str,
    /// The two products.
    pub products: [&'static str; 2],
}

impl TowerSpec {
    /// Prefix of all names in this checkpoint, if it has the tower.
    pub(super) fn root(&self, weights: &Weights) -> Option<&'static str> {
        let has = |root: &&str| weights.contains(&format!("{root}patch_embed.proj.weight"));
        self.roots.iter().copied().find(has)
    }

    /// Whether a checkpoint has the tower.
    pub fn is_in(&self, weights: &Weights) -> bool {
        self.root(weights).is_some()
    }

    /// Elements of a head.
    pub(super) fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// The same, if its sizes fit each other.
    pub(super) fn checked(self) -> Result<Self> {
        let dim = self.head_dim();
        if !self.hidden.is_multiple_of(self.heads) || !dim.is_multiple_of(4) {
            let bound = "must divide `hidden_size` into heads of a multiple of four elements";
            return Err(bad("num_heads", self.heads, bound));
        }
        let all = self.windows.iter().flat_map(|windows| &windows.whole).chain(&self.deepstack);
        if let Some(layer) = all.copied().find(|layer| *layer >= self.layers) {
            let bound = format!("must be below `depth` = {}", self.layers);
            return Err(bad("fullatt_block_indexes or deepstack_visual_indexes", layer, bound));
        }
        if self.windows.as_ref().is_some_and(|windows| windows.side == 0) {
            return Err(bad("window_size", 0, "must be at least one token"));
        }
        Ok(self)
    }
}

/// The fields of a `vision_config`.
#[derive(Clone, Copy)]
pub(super) struct VisionFields<'a>(pub(super) &'a Value);

impl VisionFields<'_> {
    /// A size, 1 at least.
    pub(super) fn size(self, field: &'static str, default: usize) -> Result<usize> {
        let value = &self.0[field];
        if value.is_null() {
            return Ok(default);
        }
        let most = if field == "depth" { MAX_LAYERS } else { MAX_SIZE };
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        size.filter(|size| (1..=most).contains(size))
            .ok_or_else(|| bad(field, value, format!("must be 1 to {most}")))
    }

    /// Indices of layers.
    pub(super) fn layers(self, field: &'static str, default: &[usize]) -> Result<Vec<usize>> {
        match &self.0[field] {
            Value::Null => Ok(default.to_vec()),
            value => serde_json::from_value(value.clone())
                .map_err(|_| bad(field, value, "must be a list of layers")),
        }
    }

    /// The activation of the feed-forward part.
    pub(super) fn activation(self, default: &str) -> Result<TowerActivation> {
        let name = self.0["hidden_act"].as_str().unwrap_or(default);
        Ok(match name {
            "quick_gelu" => TowerActivation::QuickGelu,
            "silu" => TowerActivation::Common(Activation::Silu),
            "gelu" => TowerActivation::Common(Activation::Gelu),
            "gelu_pytorch_tanh" => TowerActivation::Common(Activation::GeluTanh),
            other => {
                let bound = "supported are quick_gelu, silu, gelu, gelu_pytorch_tanh";
                return Err(bad("vision_config.hidden_act", other, bound));
            }
        })
    }

    /// Base of the rotary embedding.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    pub(super) fn rope_theta(self) -> Result<f32> {
        let theta = self.0["rope_parameters"]["rope_theta"].as_f64().unwrap_or(10_000.0);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(bad("vision_config.rope_theta", theta, "must be a positive number"));
        }
        Ok(theta as f32)
    }
}
