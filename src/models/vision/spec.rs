//! The shape and the variant of a vision tower, as plain data.

use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::weights::Weights;

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
    /// What makes one of four patches between two layers.
    pub merger: Option<Merger>,
    /// Norm behind the last layer.
    pub last_norm: Option<(&'static str, NormSpec)>,
    /// What makes features of patches, at the end.
    pub connector: Vec<Stage>,
    /// After which layers more features are made of the hidden states, each by a connector of its own.
    pub deepstack: Vec<usize>,
    /// Name of the list of these.
    pub deepstack_list: &'static str,
    /// The stages of these.
    pub deepstack_connector: Vec<Stage>,
    /// After how many layers hidden states are taken, which the connector gets side by side; empty: those
    /// behind the last.
    pub gathered: Vec<usize>,
    /// Names of the features of the end of a row of tokens, of which the checkpoint has one.
    pub separator: &'static [&'static str],
    /// Features of the tokens around pictures.
    pub marks: Option<Marks>,
    /// Elements of a token's features.
    pub output: usize,
}

/// Features of the tokens that stand around pictures, where those have other ones than in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Name of the table that has them in its last rows, beside the connector.
    pub table: &'static str,
    /// Rows of it.
    pub rows: usize,
    /// How many of them are those of marks.
    pub count: usize,
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
    /// Its dimensions.
    pub form: StoredForm,
}

/// The dimensions of an embedding in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredForm {
    /// A row for each position, or a vector.
    Rows,
    /// The same with dimensions of size 1 in front.
    Batched,
    /// Rows of columns of positions.
    Square,
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
    /// The same, interpolated linearly.
    Between,
    /// Every picture has the square's size.
    Whole,
    /// Every picture is made of squares of that size, each with the same positions.
    Tiled,
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
    /// The same, where places are counted from 0.
    NeighboursFromZero,
    /// As `Joint`, but pairs are neighbours, and those of columns and of rows take turns.
    Alternating,
}

/// Norms of the heads of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSpec {
    /// Names of the norms of queries and keys.
    pub norms: [&'static str; 2],
    /// Added to mean squares.
    pub eps: f32,
    /// Factor of scores.
    pub scale: f32,
    /// Whether the heads of values have a norm too, without a scale.
    pub values: bool,
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

/// What makes one of the four patches of a square between two layers: attention among them, and a feed-forward
/// part over all together, to which their mean is added.
#[derive(Clone, Debug, PartialEq)]
pub struct Merger {
    /// Name of the module.
    pub name: &'static str,
    /// The layer that it stands behind.
    pub layer: usize,
    /// Name of the norm before attention.
    pub norm: &'static str,
    /// The feed-forward part.
    pub stages: Vec<Stage>,
}

/// A stage of a connector. The patches of a token come together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// A norm of this name.
    Norm(&'static str, NormSpec),
    /// A norm of this name, which is one of the tower.
    TowerNorm(&'static str, NormSpec),
    /// The patches of a token, in rows from the top, become one vector, one behind the other.
    Join,
    /// The same, element by element: all patches' first, then all patches' second, and so on.
    Interleave,
    /// The patches of a token become their mean.
    Mean,
    /// So many queries, in so many heads, each see all patches and become the tokens, behind this norm.
    Resample([usize; 2], NormSpec),
    /// The tokens that queries become by several layers of attention to all patches.
    Perceive(PerceiverSpec),
    /// A convolution of this name over the patches of a token, with so many outputs and a bias.
    Convolution(&'static str, usize),
    /// A feed-forward part: gate, up and down, with so many elements between and behind, and the activation.
    Gated([&'static str; 3], [usize; 2], TowerActivation),
    /// A product of this name, with so many outputs, and a bias or none.
    Product(&'static str, usize, bool),
    /// A product with the tensor of this name, which is stored as `[inputs, outputs]`.
    Matrix(&'static str, usize),
    /// The same, where the tensor has so many more rows behind, for which there are no inputs.
    Rows(&'static str, usize, usize),
    /// Sines and cosines of the column and the row of each token of a square of so many a side are added.
    Placed(usize),
    /// Elements become the probabilities of which they are the logits.
    Probabilities,
    /// An activation.
    Activation(TowerActivation),
    /// The first half of the elements times the activation of the other half.
    Halves(TowerActivation),
    /// A factor.
    Scale(f32),
    /// Less the first of these tensors of the tower, times the second.
    Standardize([&'static str; 2]),
}

/// Layers of attention from queries to the patches of a picture and to the queries themselves: the Perceiver
/// Resampler (Alayrac et al., "Flamingo", 2022), with heads that share keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerceiverSpec {
    /// Name of the module.
    pub name: &'static str,
    /// Number of queries.
    pub latents: usize,
    /// Number of layers.
    pub layers: usize,
    /// Heads of queries, and of keys, which divide them.
    pub heads: [usize; 2],
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements between the projections of the feed-forward part.
    pub inner: usize,
    /// Between them.
    pub activation: TowerActivation,
    /// Of all norms.
    pub norm: NormSpec,
}

impl Stored {
    /// An embedding of rows.
    pub(super) const fn plain(name: &'static str) -> Self {
        Self { name, form: StoredForm::Rows }
    }

    /// The same with dimensions of size 1 in front.
    pub(super) const fn batched(name: &'static str) -> Self {
        Self { name, form: StoredForm::Batched }
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

    /// Patches of a side of what is a patch for the last layers.
    pub(super) fn early_merge(&self) -> usize {
        if self.merger.is_some() { 2 } else { 1 }
    }

    /// How many tokens there are of every picture, if that doesn't depend on its size.
    pub(super) fn resampled(&self) -> Option<usize> {
        self.connector.iter().find_map(|stage| match stage {
            Stage::Resample([queries, _], _) => Some(*queries),
            Stage::Perceive(spec) => Some(spec.latents),
            _ => None,
        })
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
        if let Some(layer) =
            self.merger.iter().map(|merger| merger.layer).find(|at| *at >= self.layers)
        {
            let bound = format!("must be below the number of layers, {}", self.layers);
            return Err(bad("insert_layer_id", layer, bound));
        }
        if self.windows.as_ref().is_some_and(|windows| windows.side == 0) {
            return Err(bad("window_size", 0, "must be at least one token"));
        }
        Ok(self)
    }
}
