//! Recurrent layers, which stand in for attention: their state of a sequence has a fixed size,
//! however long the sequence is.

use candle_core::{Result, Tensor};

use super::forward::Step;
use super::linear::Linear;
use crate::weights::{Loaded, Weights};

mod channel_delta_rule;
mod delta_rule;
mod gated_unit;
mod lightning;
mod matrix_memory;
mod selective_scan;
mod short_conv;
mod state_space;

pub use crate::kernels::recurrence::delta_rule::Heads as DeltaHeads;
pub use channel_delta_rule::ChannelDeltaRuleSpec;
pub use delta_rule::DeltaRuleSpec;
pub use gated_unit::GatedUnitSpec;
pub use lightning::LightningSpec;
pub use matrix_memory::MatrixMemorySpec;
pub use selective_scan::SelectiveScanSpec;
pub use short_conv::ShortConvSpec;
pub use state_space::{SpaceNorm, StateSpaceSpec};

/// The recurrence that some layers have instead of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentSpec {
    /// Whether each layer has it.
    pub layers: Vec<bool>,
    /// Name of the module in a layer.
    pub name: &'static str,
    /// Name of the output projection.
    pub output: &'static str,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// The computation between the projections.
    pub cell: CellSpec,
    /// Factors of the outputs of attention and of the recurrence, where layers have both side by side:
    /// both have the same input, and both outputs are added to the hidden states.
    pub beside_attention: Option<[f32; 2]>,
}

/// The computation of a recurrent layer between its projections.
#[derive(Clone, Debug, PartialEq)]
pub enum CellSpec {
    /// A gated short convolution.
    ShortConv(ShortConvSpec),
    /// Linear attention by the gated delta rule.
    DeltaRule(DeltaRuleSpec),
    /// The same with a decay of each element of a key.
    ChannelDeltaRule(ChannelDeltaRuleSpec),
    /// A selective state space.
    StateSpace(StateSpaceSpec),
    /// A selective scan, whose channels have states with decays of their own.
    SelectiveScan(SelectiveScanSpec),
    /// Linear attention with fixed decays.
    Lightning(LightningSpec),
    /// A real-gated linear recurrent unit.
    GatedUnit(GatedUnitSpec),
    /// A matrix memory with exponential gates.
    MatrixMemory(MatrixMemorySpec),
}

impl RecurrentSpec {
    /// Number of elements of each state of a layer.
    pub fn states(&self) -> Vec<usize> {
        match &self.cell {
            CellSpec::ShortConv(conv) => conv.states(),
            CellSpec::DeltaRule(rule) => rule.states(),
            CellSpec::ChannelDeltaRule(rule) => rule.states(),
            CellSpec::StateSpace(space) => space.states(),
            CellSpec::SelectiveScan(scan) => scan.states(),
            CellSpec::Lightning(attention) => attention.states(),
            CellSpec::GatedUnit(unit) => unit.states(),
            CellSpec::MatrixMemory(memory) => memory.states(),
        }
    }
}

/// The weights of a recurrent layer.
#[derive(Debug)]
pub struct Recurrent {
    cell: Cell,
    output: Linear,
    /// Elements of a row before the output projection.
    width: usize,
}

#[derive(Debug)]
enum Cell {
    ShortConv(Box<short_conv::ShortConv>),
    DeltaRule(Box<delta_rule::DeltaRule>),
    ChannelDeltaRule(Box<channel_delta_rule::ChannelDeltaRule>),
    StateSpace(Box<state_space::StateSpace>),
    SelectiveScan(Box<selective_scan::SelectiveScan>),
    Lightning(Box<lightning::Lightning>),
    GatedUnit(Box<gated_unit::GatedUnit>),
    MatrixMemory(Box<matrix_memory::MatrixMemory>),
}

impl Recurrent {
    /// Loads the weights of `spec` in layer `index`, for hidden states of `hidden` elements.
    pub fn load(
        weights: &Weights,
        hidden: usize,
        spec: &RecurrentSpec,
        index: usize,
    ) -> Loaded<Self> {
        let (cell, inner) = match &spec.cell {
            CellSpec::ShortConv(conv) => (
                Cell::ShortConv(Box::new(short_conv::ShortConv::load(weights, *conv)?)),
                conv.channels,
            ),
            CellSpec::DeltaRule(rule) => {
                let cell = delta_rule::DeltaRule::load(weights, *rule)?;
                (Cell::DeltaRule(Box::new(cell)), rule.outputs())
            }
            CellSpec::ChannelDeltaRule(rule) => {
                let cell = channel_delta_rule::ChannelDeltaRule::load(weights, *rule)?;
                (Cell::ChannelDeltaRule(Box::new(cell)), rule.outputs())
            }
            CellSpec::StateSpace(space) => {
                let loaded = state_space::StateSpace::load(weights, hidden, *space)?;
                (Cell::StateSpace(Box::new(loaded)), space.inner())
            }
            CellSpec::SelectiveScan(scan) => {
                let loaded = selective_scan::SelectiveScan::load(weights, hidden, *scan)?;
                (Cell::SelectiveScan(Box::new(loaded)), scan.channels)
            }
            CellSpec::Lightning(attention) => {
                let loaded = lightning::Lightning::load(weights, hidden, attention, index)?;
                (Cell::Lightning(Box::new(loaded)), attention.inner())
            }
            CellSpec::GatedUnit(unit) => {
                let loaded = gated_unit::GatedUnit::load(weights, hidden, *unit)?;
                (Cell::GatedUnit(Box::new(loaded)), unit.channels)
            }
            CellSpec::MatrixMemory(memory) => {
                let loaded = matrix_memory::MatrixMemory::load(weights, hidden, *memory)?;
                (Cell::MatrixMemory(Box::new(loaded)), memory.inner())
            }
        };
        let output = Linear::load(&weights.scope(spec.output), inner, hidden, spec.output_bias)?;
        Ok(Self { cell, output, width: inner })
    }

    /// Elements of a row before the output projection.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Computes the rows `x [num_tokens, hidden]` up to the output projection, `[num_tokens,
    /// inner]`, and updates `states`.
    pub fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        match &self.cell {
            Cell::ShortConv(conv) => conv.forward(x, states, step),
            Cell::DeltaRule(rule) => rule.forward(x, states, step),
            Cell::ChannelDeltaRule(rule) => rule.forward(x, states, step),
            Cell::StateSpace(space) => space.forward(x, states, step),
            Cell::SelectiveScan(scan) => scan.forward(x, states, step),
            Cell::Lightning(attention) => attention.forward(x, states, step),
            Cell::GatedUnit(unit) => unit.forward(x, states, step),
            Cell::MatrixMemory(memory) => memory.forward(x, states, step),
        }
    }

    /// The output projection of `x [.., inner]`: `[.., hidden]`.
    pub fn project(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(x)
    }

    /// `residual + factor * project(x)`
    pub fn project_add(&self, x: &Tensor, residual: &Tensor, factor: f32) -> Result<Tensor> {
        self.output.forward_add_scaled(x, residual, factor)
    }
}
