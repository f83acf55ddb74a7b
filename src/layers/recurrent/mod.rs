//! Layers that read a sequence token by token instead of attending to all of it: what they keep of
//! it has one size, however long it is.

use candle_core::{Result, Tensor};

use super::forward::ForwardBatch;
use super::linear::Linear;
use crate::weights::{WeightError, Weights};

mod delta_rule;
mod short_conv;
mod state_space;

pub use crate::kernels::recurrence::delta_rule::Heads as DeltaHeads;
pub use delta_rule::DeltaRuleSpec;
pub use short_conv::ShortConvSpec;
pub use state_space::StateSpaceSpec;

/// What some layers have in place of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentSpec {
    /// Which layers have it.
    pub layers: Vec<bool>,
    /// What the module is called, below a layer.
    pub name: &'static str,
    /// What the output projection's tensor is called.
    pub output: &'static str,
    /// Bias of the output projection.
    pub output_bias: bool,
    /// What it computes.
    pub cell: CellSpec,
}

/// What a recurrent layer computes between its projections.
#[derive(Clone, Debug, PartialEq)]
pub enum CellSpec {
    /// A gated convolution over few tokens.
    ShortConv(ShortConvSpec),
    /// Heads that keep a matrix each.
    DeltaRule(DeltaRuleSpec),
    /// A selective state space.
    StateSpace(StateSpaceSpec),
}

impl RecurrentSpec {
    /// Elements of each state of a layer.
    pub fn states(&self) -> Vec<usize> {
        match &self.cell {
            CellSpec::ShortConv(conv) => conv.states(),
            CellSpec::DeltaRule(rule) => rule.states(),
            CellSpec::StateSpace(space) => space.states(),
        }
    }
}

/// Weights of one recurrent layer.
#[derive(Debug)]
pub struct Recurrent {
    cell: Cell,
    output: Linear,
}

#[derive(Debug)]
enum Cell {
    ShortConv(short_conv::ShortConv),
    DeltaRule(Box<delta_rule::DeltaRule>),
    StateSpace(Box<state_space::StateSpace>),
}

impl Recurrent {
    /// Loads the projections and what is between them, for hidden states of `hidden` elements.
    pub fn load(
        weights: &Weights,
        hidden: usize,
        spec: &RecurrentSpec,
    ) -> std::result::Result<Self, WeightError> {
        let (cell, inner) = match &spec.cell {
            CellSpec::ShortConv(conv) => {
                (Cell::ShortConv(short_conv::ShortConv::load(weights, *conv)?), conv.channels)
            }
            CellSpec::DeltaRule(rule) => {
                let cell = delta_rule::DeltaRule::load(weights, *rule)?;
                (Cell::DeltaRule(Box::new(cell)), rule.outputs())
            }
            CellSpec::StateSpace(space) => {
                let loaded = state_space::StateSpace::load(weights, hidden, *space)?;
                (Cell::StateSpace(Box::new(loaded)), space.inner())
            }
        };
        let output = weights.scope(spec.output);
        Ok(Self { cell, output: Linear::load(&output, inner, hidden, spec.output_bias)? })
    }

    /// Reads the rows `x [num_tokens, hidden]`, takes `states` along and returns what the layer
    /// gives of each row before its output projection: `[num_tokens, inner]`.
    pub fn read(&self, x: &Tensor, states: &[Tensor], batch: &ForwardBatch) -> Result<Tensor> {
        match &self.cell {
            Cell::ShortConv(conv) => conv.forward(x, states, batch.runs()),
            Cell::DeltaRule(rule) => rule.forward(x, states, batch.runs()),
            Cell::StateSpace(space) => space.forward(x, states, batch.runs()),
        }
    }

    /// The output projection of `read [.., inner]`: `[.., hidden]`.
    pub fn project(&self, read: &Tensor) -> Result<Tensor> {
        self.output.forward(read)
    }

    /// `residual + factor * project(read)`.
    pub fn project_add(&self, read: &Tensor, residual: &Tensor, factor: f32) -> Result<Tensor> {
        self.output.forward_add_scaled(read, residual, factor)
    }
}
