//! Mamba and Falcon-Mamba: every layer is a selective scan, and nothing else. The second normalizes,
//! without learned scales, what the scan is selected by.

use super::mamba2;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, HfConfig, RawFields, Result, SelectiveScanFields, scans,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("MambaForCausalLM", spec).completed_by(complete),
    Architecture::new("FalconMambaForCausalLM", spec_falcon).completed_by(complete),
];

const FIELDS: SelectiveScanFields = SelectiveScanFields {
    expand: "expand",
    state_size: "state_size",
    rank: "time_step_rank",
    taps: "conv_kernel",
    conv_bias: "use_conv_bias",
    bias: "use_bias",
    activation: "hidden_act",
    heads: None,
};

/// Files may say how many channels there are, which the ratio says as well.
fn complete(fields: &mut RawFields<'_>) {
    fields.remove("intermediate_size");
    mamba2::complete(fields);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    with_norm(config, None)
}

fn spec_falcon(config: &HfConfig) -> Result<DecoderSpec> {
    let eps = config.number_or("mixer_rms_eps", 1e-6)?;
    with_norm(config, Some(NormSpec { scale: NormScale::One, ..NormSpec::rms(eps) }))
}

fn with_norm(config: &HfConfig, norm: Option<NormSpec>) -> Result<DecoderSpec> {
    let mut spec = mamba2::without_layers(config, true)?;
    let layers = vec![true; config.num_hidden_layers];
    spec.recurrent = scans(config, &FIELDS, norm, layers, "mixer")?;
    Ok(spec)
}
