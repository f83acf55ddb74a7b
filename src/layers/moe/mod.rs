//! A feed-forward part made of many experts, of which a router chooses a few for each token.
//!
//! Shazeer et al., "Outrageously Large Neural Networks", 2017. The rows of a step are grouped by
//! expert, so that each expert's weights are read once however many tokens chose it. A token's
//! results are added in ascending order of its experts, so they don't depend on the other rows.

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Result, Tensor};

use super::linear::{Linear, Matrix};
use super::mlp::{Mlp, MlpSpec};
use crate::kernels::experts::{DeviceExperts, Rule};
use crate::kernels::pointwise::sigmoid;
use crate::kernels::weighted_rows::{WeightedRow, weighted_rows};
use crate::weights::{WeightError, Weights};

mod routing;
mod stacked;

pub use routing::{Groups, Routing, Score};
pub use stacked::StackedTensors;

/// Where the experts' tensors are, below a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertTensors {
    /// A list of feed-forward parts.
    List(&'static str),
    /// Tensors that have all experts.
    Stacked(StackedTensors),
    /// Those, or a list where the checkpoint doesn't have them.
    StackedOrList(StackedTensors, &'static str),
}

/// A feed-forward part that every token goes through besides its experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedExpert {
    /// Its name below a layer.
    pub name: &'static str,
    /// Its shape.
    pub mlp: MlpSpec,
    /// The name of a linear layer with one output, whose sigmoid is a factor of it.
    pub gate: Option<&'static str>,
}

/// A number for each expert that counts for the choice alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoiceBias {
    /// Its name below a layer.
    pub name: &'static str,
    /// Stored as a matrix of one row, not as a vector.
    pub one_row: bool,
}

/// Experts of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeSpec {
    /// Which layers have them.
    pub layers: Vec<bool>,
    /// Experts of a layer.
    pub num_experts: usize,
    /// One expert.
    pub expert: MlpSpec,
    /// Where the experts are.
    pub experts: ExpertTensors,
    /// The router's name below a layer.
    pub router: &'static str,
    /// Whether the router has a bias.
    pub router_bias: bool,
    /// An expert is given its weight times the token, instead of what it gives being weighed.
    pub weighs_inputs: bool,
    /// What is added to scores when experts are chosen.
    pub choice_bias: Option<ChoiceBias>,
    /// How experts are chosen.
    pub routing: Routing,
    /// What all tokens share.
    pub shared: Option<SharedExpert>,
    /// Layers have a feed-forward part beside their experts.
    pub beside: Option<BesideMlp>,
}

/// How experts and a feed-forward part beside them are put together: both get hidden states, each
/// through a norm of its own, and there is a norm of what each of them gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BesideMlp {
    /// The norm of what experts are given.
    pub before: &'static str,
    /// Norms of what the feed-forward part and the experts give.
    pub after: [&'static str; 2],
    /// What the router does to hidden states and weights.
    pub router: ScaledRouter,
}

/// A router with a norm of hidden states, and factors of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledRouter {
    /// The tensor of the norm's scale, below a layer.
    pub scale: &'static str,
    /// A factor of that.
    pub factor: f32,
    /// The tensor of an expert's factor of its weight.
    pub expert_scale: &'static str,
    /// Added to the mean square.
    pub eps: f32,
}

/// An expert, and a row among those that it is given.
type Choice = (usize, WeightedRow);

/// What one expert is given.
#[derive(Clone, Debug, Default)]
struct Given {
    /// Rows of the step.
    rows: Vec<u32>,
    /// The expert's weight for each.
    weights: Vec<f32>,
}

/// Weights of one layer's experts.
#[derive(Debug)]
pub struct Moe {
    router: Linear,
    /// `[experts]`
    choice_bias: Option<Vec<f32>>,
    routing: Routing,
    weighs_inputs: bool,
    experts: Vec<Mlp>,
    /// A factor of each expert's weight.
    expert_scale: Option<Vec<f32>>,
    shared: Option<(Mlp, Option<Linear>)>,
    on_device: Option<OnDevice>,
}

/// What there is of a layer's experts on a GPU.
#[derive(Debug)]
struct OnDevice {
    experts: DeviceExperts,
    /// `[experts]`
    choice_bias: Option<Tensor>,
    /// `[experts]`
    expert_scale: Option<Tensor>,
}

impl Moe {
    /// Loads a layer's experts.
    pub fn load(weights: &Weights, spec: &MoeSpec) -> std::result::Result<Self, WeightError> {
        let hidden = spec.expert.hidden_size;
        let router = weights.scope(spec.router);
        let list = |name: &str| {
            let list = weights.scope(name);
            let expert = |index| Mlp::load(&list.scope(index), spec.expert);
            (0..spec.num_experts).map(expert).collect::<std::result::Result<_, _>>()
        };
        let stacked = |tensors| stacked::load(weights, tensors, spec.expert, spec.num_experts);
        let experts = match spec.experts {
            ExpertTensors::List(name) => list(name)?,
            ExpertTensors::StackedOrList(tensors, name) if !weights.contains(tensors.names[0]) => {
                list(name)?
            }
            ExpertTensors::Stacked(tensors) | ExpertTensors::StackedOrList(tensors, _) => {
                stacked(tensors)?
            }
        };
        let shared = |shared: SharedExpert| {
            let mlp = Mlp::load(&weights.scope(shared.name), shared.mlp)?;
            let gate = shared
                .gate
                .map(|name| exact(&weights.scope(name), hidden, 1, false))
                .transpose()?;
            Ok::<_, WeightError>((mlp, gate))
        };
        let expert_scale = |beside: BesideMlp| {
            let name = beside.router.expert_scale;
            let scale = weights.dense(name, &[spec.num_experts], DType::F32)?;
            Ok::<_, WeightError>(scale.to_vec1()?)
        };
        let bias = |bias: ChoiceBias| {
            let shape = [1, spec.num_experts];
            let shape = if bias.one_row { &shape[..] } else { &shape[1..] };
            let bias = weights.dense(bias.name, shape, DType::F32)?;
            Ok::<_, WeightError>(bias.flatten_all()?.to_vec1()?)
        };
        let choice_bias = spec.choice_bias.map(bias).transpose()?;
        let expert_scale = spec.beside.map(expert_scale).transpose()?;
        let numbers = [choice_bias.as_deref(), expert_scale.as_deref()];
        Ok(Self {
            on_device: OnDevice::new(weights.device(), &experts, numbers)?,
            router: exact(&router, hidden, spec.num_experts, spec.router_bias)?,
            choice_bias,
            routing: spec.routing,
            weighs_inputs: spec.weighs_inputs,
            experts,
            expert_scale,
            shared: spec.shared.map(shared).transpose()?,
        })
    }

    /// `residual + factor * experts(x)`, all `[num_tokens, hidden]`.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor, factor: f32) -> Result<Tensor> {
        self.forward_routed(x, x, residual, factor)
    }

    /// The same with experts chosen by other rows than those that they are given.
    pub fn forward_routed(
        &self,
        x: &Tensor,
        routed_by: &Tensor,
        residual: &Tensor,
        factor: f32,
    ) -> Result<Tensor> {
        if x.dim(0)? == 0 {
            return Ok(residual.clone());
        }
        let scores = self.router.forward(routed_by)?;
        let sum = match self.on_device.as_ref().filter(|own| own.takes(&scores, &self.routing)) {
            Some(own) => own.forward_add(self, [x, &scores, residual], factor)?,
            None => self.experts_add(x, &scores, residual, factor)?,
        };
        match &self.shared {
            None => Ok(sum),
            Some((mlp, None)) => mlp.forward_add(x, &sum, factor),
            Some((mlp, Some(gate))) => {
                let gates = (sigmoid(&gate.forward(x)?)? * f64::from(factor))?;
                sum + mlp.forward(x)?.broadcast_mul(&gates)?
            }
        }
    }

    /// `residual + factor * experts(x)` by the router's scores, expert by expert.
    fn experts_add(
        &self,
        x: &Tensor,
        scores: &Tensor,
        residual: &Tensor,
        factor: f32,
    ) -> Result<Tensor> {
        let (given, mut chosen) = self.choose(scores)?;
        let mut outputs = Vec::new();
        let mut starts = vec![0; given.len()];
        let mut start = 0;
        for ((given, expert), first) in given.iter().zip(&self.experts).zip(&mut starts) {
            if given.rows.is_empty() {
                continue;
            }
            *first = start;
            start += given.rows.len();
            outputs.push(expert.forward(&self.inputs(x, given)?)?);
        }
        for (expert, pick) in &mut chosen {
            pick.row += starts[*expert];
            pick.weight = if self.weighs_inputs { factor } else { pick.weight * factor };
        }
        let picks: Vec<WeightedRow> = chosen.into_iter().map(|(_, pick)| pick).collect();
        let per_token = picks.len() / x.dim(0)?;
        weighted_rows(&Tensor::cat(&outputs, 0)?, &picks, per_token, residual)
    }

    /// The rows of `x` that an expert is given.
    fn inputs(&self, x: &Tensor, given: &Given) -> Result<Tensor> {
        let rows = x.index_select(&Tensor::new(given.rows.as_slice(), x.device())?, 0)?;
        if !self.weighs_inputs {
            return Ok(rows);
        }
        let weights = Tensor::new(given.weights.as_slice(), x.device())?.unsqueeze(1)?;
        rows.broadcast_mul(&weights)
    }

    /// What goes to each expert; and token by token, in ascending order of the experts that
    /// it goes to, which, and where among that expert's rows.
    fn choose(&self, scores: &Tensor) -> Result<(Vec<Given>, Vec<Choice>)> {
        let scores: Vec<Vec<f32>> = scores.to_vec2()?;
        let mut given = vec![Given::default(); self.experts.len()];
        let mut chosen = Vec::with_capacity(scores.len() * self.routing.experts_per_token);
        for (row, scores) in (0u32..).zip(scores) {
            let mut experts = self.routing.choose(scores, self.choice_bias.as_deref());
            experts.sort_unstable_by_key(|(expert, _)| *expert);
            for (expert, weight) in experts {
                let scale = self.expert_scale.as_ref().map_or(1.0, |scale| scale[expert]);
                let weight = weight * scale;
                let given = &mut given[expert];
                chosen.push((expert, WeightedRow { row: given.rows.len(), weight }));
                given.rows.push(row);
                given.weights.push(weight);
            }
        }
        Ok((given, chosen))
    }
}

impl OnDevice {
    /// `None` without kernels for such experts.
    fn new(device: &Device, experts: &[Mlp], numbers: [Option<&[f32]>; 2]) -> Result<Option<Self>> {
        let layers: Option<Vec<_>> = experts.iter().map(Mlp::on_device).collect();
        let Some(layers) = layers else { return Ok(None) };
        let Some(experts) = DeviceExperts::new(device, &layers)? else { return Ok(None) };
        let [choice_bias, expert_scale] =
            numbers.map(|own| own.map(|own| Tensor::new(own, device)).transpose());
        Ok(Some(Self { experts, choice_bias: choice_bias?, expert_scale: expert_scale? }))
    }

    fn rule(&self, routing: &Routing) -> Rule<'_> {
        let groups = routing.groups.map(|Groups { count, chosen, best }| [count, chosen, best]);
        Rule {
            score: routing.score,
            per_token: routing.experts_per_token,
            groups,
            renormalize: routing.renormalize,
            scale: routing.scale,
            bias: self.choice_bias.as_ref(),
            expert_scale: self.expert_scale.as_ref(),
        }
    }

    /// Whether this is the better way for as many tokens as `scores [T, E]` are of.
    fn takes(&self, scores: &Tensor, routing: &Routing) -> bool {
        self.experts.takes(scores.dims()[0], &self.rule(routing))
    }

    fn forward_add(&self, moe: &Moe, rows: [&Tensor; 3], factor: f32) -> Result<Tensor> {
        let one = &moe.experts[0];
        let (rule, weighing) = (self.rule(&moe.routing), (factor, moe.weighs_inputs));
        self.experts.forward_add(rows, &rule, one.gating(), |x| one.activate(x), weighing)
    }
}

/// A small layer whose result decides between experts: with inputs and weights in f32.
fn exact(
    weights: &Weights,
    inputs: usize,
    outputs: usize,
    bias: bool,
) -> std::result::Result<Linear, WeightError> {
    let bias = bias.then(|| weights.dense("bias", &[outputs], DType::F32)).transpose()?;
    let stored = weights.stored("weight", &[outputs, inputs])?;
    // What is quantized in the file stays so.
    let kind = stored.dense_dtype().map(|_| GgmlDType::F32);
    Ok(Linear::from_matrix(Matrix::from_stored(weights, &stored, kind)?, bias)?)
}
