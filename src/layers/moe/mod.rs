//! A mixture of experts: feed-forward parts of which a router chooses a few for each token.
//!
//! Shazeer et al., "Outrageously Large Neural Networks", 2017. The rows of a step are grouped by
//! expert, so that each expert's weights are read once however many tokens chose it. A token's
//! results are added in ascending order of its experts, so they don't depend on the other rows.

use candle_core::{DType, Result, Tensor};

use super::linear::Linear;
use super::mlp::Mlp;
use crate::kernels::experts::DeviceExperts;
pub use crate::kernels::experts::{Groups, Routing, Score};
use crate::kernels::pointwise::sigmoid;
use crate::kernels::weighted_rows::{WeightedRow, weighted_rows};
use crate::weights::{Loaded, WeightError, Weights};

mod router;
mod spec;
mod stacked;

pub use router::RouterMemory;
use router::{Router, load_router};
pub use spec::{
    CorrectionBias, ExpertTensors, Extra, MoeSpec, ParallelDense, RememberingRouter, ScaledRouter,
    SharedExpert, StackedTensors,
};

/// An expert, and a row of its batch.
type Choice = (usize, WeightedRow);

/// The tokens of a step that are routed to one expert.
#[derive(Clone, Debug, Default)]
struct ExpertBatch {
    /// Rows of the step.
    rows: Vec<u32>,
    /// The expert's weight for each row.
    weights: Vec<f32>,
}

/// Weights of one layer's experts.
#[derive(Debug)]
pub struct Moe {
    router: Router,
    /// `[experts]`
    correction_bias: Option<Vec<f32>>,
    routing: Routing,
    router_weight_on_input: bool,
    experts: Vec<Mlp>,
    /// What is behind those.
    extra: Extra,
    /// `[experts]`: factors of their weights.
    expert_scale: Option<Vec<f32>>,
    /// The shared expert, its gate and its factor.
    shared: Option<(Mlp, Option<Linear>, f32)>,
    /// `[hidden]`
    output_bias: Option<Tensor>,
    on_device: Option<DeviceExperts>,
}

impl Moe {
    /// Loads a layer's experts.
    pub fn load(weights: &Weights, spec: &MoeSpec) -> Loaded<Self> {
        let hidden = spec.expert.hidden_size;
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
                .map(|name| load_router(&weights.scope(name), hidden, 1, false))
                .transpose()?;
            Ok::<_, WeightError>((mlp, gate, shared.factor))
        };
        let expert_scale = |parallel: ParallelDense| {
            let name = parallel.router.expert_scale;
            let scale = weights.dense(name, &[spec.num_experts], DType::F32)?;
            Ok::<_, WeightError>(scale.to_vec1()?)
        };
        let choices = spec.num_experts + spec.extra.count();
        let bias = |bias: CorrectionBias| {
            let shape = [1, choices];
            let shape = if bias.one_row { &shape[..] } else { &shape[1..] };
            let bias = weights.dense(bias.name, shape, DType::F32)?;
            Ok::<_, WeightError>(bias.flatten_all()?.to_vec1()?)
        };
        let correction_bias = spec.correction_bias.map(bias).transpose()?;
        let expert_scale = spec.parallel_dense.map(expert_scale).transpose()?;
        let vectors = [correction_bias.as_deref(), expert_scale.as_deref()];
        let layers: Option<Vec<_>> = experts.iter().map(Mlp::on_device).collect();
        // They have no experts without weights.
        let layers = layers.filter(|_| spec.extra.count() == 0);
        let on_device = layers.map(|all| DeviceExperts::new(weights.device(), &all, vectors));
        Ok(Self {
            on_device: on_device.transpose()?.flatten(),
            router: Router::load(weights, spec, choices)?,
            extra: spec.extra,
            correction_bias,
            routing: spec.routing,
            router_weight_on_input: spec.router_weight_on_input,
            experts,
            expert_scale,
            shared: spec.shared.map(shared).transpose()?,
            output_bias: spec
                .output_bias
                .map(|name| weights.dense(name, &[hidden], DType::F32))
                .transpose()?,
        })
    }

    /// `residual + factor * experts(x)`, all `[num_tokens, hidden]`, with a router that may remember what that of the
    /// layer before saw.
    pub fn forward_add(
        &self,
        x: &Tensor,
        residual: &Tensor,
        factor: f32,
        memory: &RouterMemory,
    ) -> Result<Tensor> {
        self.forward_routed([x, x], residual, factor, memory)
    }

    /// As [`forward_add`](Self::forward_add), with a router input of its own.
    pub fn forward_routed(
        &self,
        [x, router_input]: [&Tensor; 2],
        residual: &Tensor,
        factor: f32,
        memory: &RouterMemory,
    ) -> Result<Tensor> {
        if x.dim(0)? == 0 {
            return Ok(residual.clone());
        }
        let scores = self.router.scores(router_input, memory)?;
        let (tokens, weighs_inputs) = (scores.dim(0)?, self.router_weight_on_input);
        let kernels = self.on_device.as_ref();
        let sum = match kernels.filter(|own| own.takes(tokens, self.routing, weighs_inputs)) {
            Some(own) => {
                let (one, weighing) = (&self.experts[0], (factor, weighs_inputs));
                let (rows, activate) = ([x, &scores, residual], |x: &Tensor| one.activate(x));
                own.forward_add(rows, self.routing, Some(one.gating()), activate, weighing)?
            }
            None => self.experts_add(x, &scores, residual, factor)?,
        };
        let sum = match &self.output_bias {
            None => sum,
            Some(bias) => sum.broadcast_add(&(bias * f64::from(factor))?)?,
        };
        match &self.shared {
            None => Ok(sum),
            Some((mlp, None, own)) => mlp.forward_add(x, &sum, factor * own),
            Some((mlp, Some(gate), own)) => {
                let gates = (sigmoid(&gate.forward(x)?)? * f64::from(factor * own))?;
                sum + mlp.forward(x)?.broadcast_mul(&gates)?
            }
        }
    }

    /// `residual + factor * experts(x)`, expert by expert.
    fn experts_add(
        &self,
        x: &Tensor,
        scores: &Tensor,
        residual: &Tensor,
        factor: f32,
    ) -> Result<Tensor> {
        let (batches, mut chosen) = self.choose(scores)?;
        let mut outputs = Vec::new();
        let mut starts = vec![0; batches.len()];
        let mut start = 0;
        for (index, (batch, first)) in batches.iter().zip(&mut starts).enumerate() {
            if batch.rows.is_empty() {
                continue;
            }
            *first = start;
            start += batch.rows.len();
            let inputs = self.inputs(x, batch)?;
            let expert = self.experts.get(index);
            outputs.push(expert.map_or(Ok(inputs.clone()), |expert| expert.forward(&inputs))?);
        }
        for (expert, pick) in &mut chosen {
            pick.row += starts[*expert];
            pick.weight = if self.router_weight_on_input { factor } else { pick.weight * factor };
        }
        let picks: Vec<WeightedRow> = chosen.into_iter().map(|(_, pick)| pick).collect();
        let per_token = picks.len() / x.dim(0)?;
        weighted_rows(&Tensor::cat(&outputs, 0)?, &picks, per_token, residual)
    }

    /// The inputs of an expert: rows of `x`, times its weights if they belong there.
    fn inputs(&self, x: &Tensor, batch: &ExpertBatch) -> Result<Tensor> {
        let rows = x.index_select(&Tensor::new(batch.rows.as_slice(), x.device())?, 0)?;
        if !self.router_weight_on_input {
            return Ok(rows);
        }
        let weights = Tensor::new(batch.weights.as_slice(), x.device())?.unsqueeze(1)?;
        rows.broadcast_mul(&weights)
    }

    /// The batch of each expert; and for each token, in ascending order of its experts, the expert
    /// and the row of its batch.
    fn choose(&self, scores: &Tensor) -> Result<(Vec<ExpertBatch>, Vec<Choice>)> {
        let scores: Vec<Vec<f32>> = scores.to_vec2()?;
        let count = self.experts.len() + self.extra.count();
        let nothing = matches!(self.extra, Extra::Nothing(_));
        let mut batches = vec![ExpertBatch::default(); count];
        let mut chosen = Vec::with_capacity(scores.len() * self.routing.experts_per_token);
        for (row, scores) in (0u32..).zip(scores) {
            let bias = self.correction_bias.as_deref();
            for (expert, weight) in self.routing.choose_ascending(scores, bias) {
                let scale = self.expert_scale.as_ref().map_or(1.0, |scale| scale[expert]);
                let gives = !nothing || expert < self.experts.len();
                let weight = if gives { weight * scale } else { 0.0 };
                let batch = &mut batches[expert];
                chosen.push((expert, WeightedRow { row: batch.rows.len(), weight }));
                batch.rows.push(row);
                batch.weights.push(weight);
            }
        }
        Ok((batches, chosen))
    }
}
