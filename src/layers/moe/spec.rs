//! The shape and the variant of a mixture of experts, as plain data.

use super::Routing;
use crate::layers::mlp::MlpSpec;
use crate::layers::norm::NormSpec;

/// Names and layout of the experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertTensors {
    /// A list with a feed-forward part for each expert.
    List(&'static str),
    /// Tensors with the matrices of all experts.
    Stacked(StackedTensors),
    /// Stacked tensors, or a list where the checkpoint doesn't have them.
    StackedOrList(StackedTensors, &'static str),
}

/// A feed-forward part that every token goes through besides its routed experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedExpert {
    /// Name in a layer.
    pub name: &'static str,
    /// Shape and variant.
    pub mlp: MlpSpec,
    /// Name of a linear layer with one output, whose sigmoid multiplies the expert's output.
    pub gate: Option<&'static str>,
    /// Factor of the expert's output.
    pub factor: f32,
}

/// A bias for each expert's score that changes which experts are chosen, and no weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorrectionBias {
    /// Name in a layer.
    pub name: &'static str,
    /// Whether it is stored as a matrix of one row instead of a vector.
    pub one_row: bool,
}

/// Experts without weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// So many that give their input.
    Identities(usize),
    /// So many that give nothing.
    Nothing(usize),
}

impl Extra {
    /// How many they are.
    pub fn count(self) -> usize {
        let (Self::Identities(count) | Self::Nothing(count)) = self;
        count
    }
}

/// A router that projects to a few elements, adds those of the layer before times factors, and has a norm and layers
/// behind them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RememberingRouter {
    /// Number of elements.
    pub width: usize,
    /// Variant of the norm.
    pub norm: NormSpec,
}

/// The shape and the variant of a mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeSpec {
    /// Whether each layer has experts.
    pub layers: Vec<bool>,
    /// Number of routed experts in a layer.
    pub num_experts: usize,
    /// The experts behind those, which have no weights.
    pub extra: Extra,
    /// Shape and variant of one expert.
    pub expert: MlpSpec,
    /// Names and layout of the experts.
    pub experts: ExpertTensors,
    /// Name of the router in a layer.
    pub router: &'static str,
    /// The router, where it is more than a linear layer.
    pub remembering: Option<RememberingRouter>,
    /// Whether the router has a bias.
    pub router_bias: bool,
    /// Whether routing weights multiply the inputs of experts instead of their outputs.
    pub router_weight_on_input: bool,
    /// Bias of scores in the choice of experts.
    pub correction_bias: Option<CorrectionBias>,
    /// How experts are chosen and weighted.
    pub routing: Routing,
    /// The shared expert.
    pub shared: Option<SharedExpert>,
    /// Name in a layer of a bias of what experts give together.
    pub output_bias: Option<&'static str>,
    /// How a dense feed-forward part is combined with the experts, where layers have both.
    pub parallel_dense: Option<ParallelDense>,
}

/// How experts and a dense feed-forward part are combined: both have the hidden states as input,
/// through a norm of their own, and a norm of their output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParallelDense {
    /// Name of the norm of the experts' input.
    pub before_experts: &'static str,
    /// Names of the norms of the dense part's and of the experts' output.
    pub after: [&'static str; 2],
    /// Normalization and scaling in the router.
    pub router: ScaledRouter,
}

/// A router that normalizes hidden states, and scales weights by expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledRouter {
    /// Name of the norm's scale in a layer.
    pub scale: &'static str,
    /// Factor of the norm's scale.
    pub factor: f32,
    /// Name of the vector with a factor of each expert's weight.
    pub expert_scale: &'static str,
    /// Epsilon of the norm.
    pub eps: f32,
}

/// Names and layout of tensors with the matrices of all experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a format has each of them by itself")]
pub struct StackedTensors {
    /// Gates and ups `[experts, 2 * inner, hidden]`, and downs `[experts, hidden, inner]`.
    pub names: [&'static str; 2],
    /// Name of the ups, where they have a tensor of their own.
    pub ups: Option<&'static str>,
    /// Whether the last two dimensions are transposed.
    pub transposed: bool,
    /// Names of the tensors in compressed checkpoints, where they are never transposed.
    pub compressed: Option<[&'static str; 2]>,
    /// Whether rows of gates and ups are interleaved; else all gates come first.
    pub interleaved: bool,
    /// Whether experts are below each other in matrices `[experts * inner, hidden]`, also those of downs.
    pub flat: bool,
    /// Whether experts have no gates.
    pub plain: bool,
    /// Names of the biases `[experts, 2 * inner]` and `[experts, hidden]`.
    pub biases: Option<[&'static str; 2]>,
}

impl StackedTensors {
    /// Two tensors in the common layout without biases.
    pub const fn new(names: [&'static str; 2]) -> Self {
        Self {
            names,
            ups: None,
            transposed: false,
            compressed: None,
            interleaved: false,
            flat: false,
            plain: false,
            biases: None,
        }
    }
}
