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

/// The shape and the variant of a vision tower: a product for each patch of pixels, layers of
/// attention within a picture or a window of it, and a connector that makes the features of a token of
/// its patches.
#[derive(Clone, Debug, PartialEq)]
pub struct TowerSpec {
    /// Prefixes of all names; the first that the checkpoint has are used.
    pub roots: &'static [Roots],
    /// Names of modules.
    pub names: TowerNames,
    /// Pixels of a side of a patch.
    pub patch: usize,
    /// Patches of a side of a token.
    pub merge: usize,
    /// How the product of patches is stored.
    pub patches: PatchForm,
    /// Whether the product of patches has a bias.
    pub patch_bias: bool,
    /// The norms before and behind the product of patches.
    pub patch_norms: [Option<(&'static str, NormSpec)>; 2],
    /// The embedding that stands before the patches and is left out at the end.
    pub class_token: Option<Stored>,
    /// The learned embedding of positions.
    pub positions: Option<Positions>,
    /// The rotary embedding.
    pub rope: Option<TowerRope>,
    /// Elements of a hidden state.
    pub hidden: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Number of layers that are computed.
    pub layers: usize,
    /// Norm before the first layer.
    pub first_norm: Option<(&'static str, NormSpec)>,
    /// The norms before attention and before the feed-forward part.
    pub norm: NormSpec,
    /// Which projections of attention have biases.
    pub attention_biases: Biases,
    /// Norms of heads, if there are any; then heads have scores of their own factor.
    pub normed_heads: Option<HeadSpec>,
    /// Names of norms of what attention and the feed-forward part give.
    pub after_norms: Option<[&'static str; 2]>,
    /// Whether products have bounds beside them, and are one name deeper.
    pub bounded: bool,
    /// The feed-forward part.
    pub mlp: TowerMlp,
    /// Names of the factors of what attention and the feed-forward part give, one for each element.
    pub scales: Option<[&'static str; 2]>,
    /// The windows that most layers attend within; `None`: all see the whole picture.
    pub windows: Option<Windows>,
    /// Norm behind the last layer.
    pub last_norm: Option<(&'static str, NormSpec)>,
    /// What makes features of patches, at the end.
    pub connector: Vec<Stage>,
    /// After which layers more features are made of the hidden states, each by a connector of its own.
    pub deepstack: Vec<usize>,
    /// The stages of these.
    pub deepstack_connector: Vec<Stage>,
    /// Names of the features of the end of a row of tokens, of which the checkpoint has one.
    pub separator: &'static [&'static str],
    /// Elements of a token's features.
    pub output: usize,
}

/// How the product of patches is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// `[hidden, 3, patch, patch]`
    Picture,
    /// `[hidden, 3, frames, patch, patch]`: a picture is seen as if it were so many frames of a video.
    Frames(usize),
    /// `[hidden, patch * patch * 3]`
    Pixels,
    /// `[hidden, 3 * patch * patch]`
    Channels,
}

/// Prefixes of names in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Of the tower.
    pub tower: &'static str,
    /// Of the connector.
    pub connector: &'static str,
}

/// Names of a tower's modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TowerNames {
    /// The product of patches.
    pub patches: &'static str,
    /// The list of layers.
    pub layers: &'static str,
    /// The norms of a layer.
    pub norms: [&'static str; 2],
    /// The projections to queries, keys and values.
    pub qkv: Qkv,
    /// The output projection of attention.
    pub output: &'static str,
}

/// The projections to queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qkv {
    /// One module for all.
    Joined(&'static str),
    /// A module for each.
    Apart([&'static str; 3]),
}

/// The name of an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The name.
    pub name: &'static str,
    /// Whether it is stored with a dimension for pictures in front, of size 1.
    pub batched: bool,
}

/// Which projections of attention have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// None has.
    None,
    /// The output projection has.
    Output,
    /// All have.
    All,
}

/// A learned embedding of positions, a square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The tensor, with a row for the class token first, if there is one.
    pub stored: Stored,
    /// Rows, and columns.
    pub side: usize,
    /// How a picture of another size is laid on it.
    pub fit: Fit,
}

/// How a picture is laid on a square of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Corner on corner, with positions between by interpolation.
    Corners,
    /// Each patch has the position whose share of the square's side is the same or the next below.
    Shares,
    /// The first of two tables has a position for each column, the other one for each row; both are added.
    Axes,
    /// The same, where the two positions of each place are stored together.
    PairedAxes,
    /// The square is resized to the picture's size, with all positions that a patch covers where that is
    /// smaller.
    Resized,
    /// Interpolated with Keys' cubic convolution (`a = -0.75`) between the centres of places, beyond which the
    /// outermost are repeated.
    Sampled,
    /// Every picture has the square's size.
    Whole,
    /// The same, with the row for the class token last.
    WholeBeforeClass,
}

/// A rotary embedding whose first half turns by rows and whose other half by columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TowerRope {
    /// Base of the wavelengths.
    pub theta: f32,
    /// Which elements of a head turn by rows and which by columns.
    pub layout: RopeLayout,
}

/// Which elements of a head a rotary embedding turns, by which axis and by which wavelengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// The first half of the pairs turns by rows, the other by columns, by the same wavelengths.
    Joint,
    /// The same, where rows and columns take turns in one series of wavelengths.
    Turns,
    /// As `Joint`, but columns come first and each half of a head has its own pairs.
    Apart,
    /// As `Joint`, but columns come first, places are counted from 1, and pairs are neighbours.
    Neighbours,
}

/// Norms of the heads of queries and keys; those of values have a norm without a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSpec {
    /// Names of the norms of queries and keys.
    pub norms: [&'static str; 2],
    /// Added to mean squares.
    pub eps: f32,
    /// Factor of scores.
    pub scale: f32,
}

/// The feed-forward part of a tower's layers.
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
    /// Whether the projections have biases.
    pub bias: bool,
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

/// A stage of a connector. The patches of a token come together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// A norm of this name.
    Norm(&'static str, NormSpec),
    /// The patches of a token, in rows from the top, become one vector, one behind the other.
    Join,
    /// The same, element by element: all patches' first, then all patches' second, and so on.
    Interleave,
    /// The patches of a token become their mean.
    Mean,
    /// A convolution of this name over the patches of a token, with so many outputs and a bias.
    Convolution(&'static str, usize),
    /// A feed-forward part: gate, up and down, with so many elements between, and the activation.
    Gated([&'static str; 3], usize, TowerActivation),
    /// A product of this name, with so many outputs, and a bias or none.
    Product(&'static str, usize, bool),
    /// A product with the tensor of this name, which is stored as `[inputs, outputs]`.
    Matrix(&'static str, usize),
    /// An activation.
    Activation(TowerActivation),
    /// A factor.
    Scale(f32),
    /// Less the first of these tensors of the tower, times the second.
    Standardize([&'static str; 2]),
}

impl Stored {
    /// An embedding without a dimension for pictures.
    pub(super) const fn plain(name: &'static str) -> Self {
        Self { name, batched: false }
    }
}

impl TowerSpec {
    /// Prefixes of names in this checkpoint, if it has the tower.
    pub(super) fn root(&self, weights: &Weights) -> Option<Roots> {
        let patches = self.names.patches;
        let has = |root: &Roots| weights.contains(&format!("{}{patches}.weight", root.tower));
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
        let turned = self.rope.is_none() || self.head_dim().is_multiple_of(4);
        if !self.hidden.is_multiple_of(self.heads) || !turned {
            let bound =
                "must divide `hidden_size` into heads, of a multiple of four elements if rotated";
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
        let layers = matches!(field, "depth" | "num_hidden_layers");
        let most = if layers { MAX_LAYERS } else { MAX_SIZE };
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
        self.activation_of("hidden_act", default)
    }

    /// An activation.
    pub(super) fn activation_of(
        self,
        field: &'static str,
        default: &str,
    ) -> Result<TowerActivation> {
        let name = self.0[field].as_str().unwrap_or(default);
        Ok(match name {
            "quick_gelu" => TowerActivation::QuickGelu,
            "silu" => TowerActivation::Common(Activation::Silu),
            "gelu" => TowerActivation::Common(Activation::Gelu),
            "gelu_pytorch_tanh" => TowerActivation::Common(Activation::GeluTanh),
            "relu" => TowerActivation::Common(Activation::Relu),
            other => {
                let bound = "supported are quick_gelu, silu, gelu, gelu_pytorch_tanh, relu";
                return Err(bad(field, other, bound));
            }
        })
    }

    /// A small number above zero.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    pub(super) fn eps(self, field: &'static str, default: f64) -> Result<f32> {
        let eps = self.0[field].as_f64().unwrap_or(default);
        if (0.0..1.0).contains(&eps) {
            return Ok(eps as f32);
        }
        Err(bad(field, eps, "must be at least 0 and less than 1"))
    }

    /// A side of the square that a field says as a number or twice.
    pub(super) fn square(self, field: &'static str, default: usize) -> Result<usize> {
        let value = &self.0[field];
        match value.as_array().map(Vec::as_slice) {
            Some([one, two]) if one == two => {
                VisionFields(&serde_json::json!({field: one})).size(field, default)
            }
            _ => self.size(field, default),
        }
    }

    /// How many of the tower's `layers` are computed where the file names the layer whose output is
    /// looked at, counted from the end.
    pub(super) fn computed_layers(
        self,
        field: &'static str,
        default: i64,
        layers: usize,
    ) -> Result<usize> {
        let value = &self.0[field];
        let layer = if value.is_null() { Some(default) } else { value.as_i64() };
        let before_end =
            layer.filter(|layer| *layer < 0).and_then(|layer| usize::try_from(-layer - 1).ok());
        let computed = before_end.and_then(|skipped| layers.checked_sub(skipped));
        let computed = computed.filter(|count| *count > 0);
        computed.ok_or_else(|| bad(field, value, format!("must be -1 to -{layers}: one layer")))
    }

    /// Base of the rotary embedding.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    pub(super) fn rope_theta_or(self, default: f64) -> Result<f32> {
        let theta = self.0["rope_parameters"]["rope_theta"].as_f64().unwrap_or(default);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(bad("vision_config.rope_theta", theta, "must be a positive number"));
        }
        Ok(theta as f32)
    }
}
