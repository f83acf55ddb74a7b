//! Experts of a layer.

use crate::linear::DeviceLayer;

/// The layers of one expert.
#[derive(Clone, Copy, Debug)]
pub struct ExpertLayers<'a> {
    /// The gate projection, whose output is activated, if the expert has one.
    pub gate: Option<DeviceLayer<'a>>,
    /// The up projection.
    pub up: DeviceLayer<'a>,
    /// The down projection.
    pub down: DeviceLayer<'a>,
}
