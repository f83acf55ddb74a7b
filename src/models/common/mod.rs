//! What the files of `architectures` share: the spec they start from, parts of a `config.json` that
//! several families write alike, and the types that all of them name.

mod architecture;
mod base;
mod experts;
mod selective_scan;
mod state_space;

pub(super) use super::config::{HfConfig, MAX_SIZE, RawFields, RopeDefaults};
pub(super) use super::decoder::DecoderSpec;
pub(super) use super::decoder::spec::{
    BeforeHead, Block, BlockUse, GateLimits, Head, HyperConnectionsSpec, Join, LayerInputs,
    LearnedPositions, LearnedSums, LongerContexts, Names, NormGatesSpec, OtherNorms, Place,
    ResidualScales, Schedule, SharedBlocks, Sinusoids, StreamsSpec,
};
pub(super) use super::error::{Result, bad, check_size};
pub(super) use architecture::{Architecture, EncoderArchitecture};
pub(super) use base::{
    Defaults, activation, base, read_attention_bias, read_biases, remove_rope, root,
    rotated_layers, scale, set_biases, set_interleaved_rope, set_layer_norm,
    set_positions_behind_padding, set_query_key_norm, set_windows, windowed_layers,
};
pub(super) use experts::{
    ExpertFields, are_separate, experts, groups, layers_with_experts, set_sigmoid_routing,
    shared_experts, stacked,
};
pub(super) use selective_scan::{SelectiveScanFields, scans};
pub(super) use state_space::{MAX_TAPS, StateSpaceFields, recurrent, state_space_layers};
