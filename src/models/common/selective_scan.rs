//! Selective scans as the files of several families describe them.

use serde::Deserialize;

use super::base::activation;
use super::state_space::MAX_TAPS;
use crate::layers::norm::NormSpec;
use crate::layers::recurrent::{CellSpec, RecurrentSpec, SelectiveScanSpec};
use crate::models::config::HfConfig;
use crate::models::error::{Result, bad, check_size};

/// The largest size of a scan in any direction; products of three stay far from overflow.
const MAX_SIZE: usize = 1 << 18;
/// The most heads of a layer.
const MAX_HEADS: usize = 1 << 10;

/// Names of a family's fields.
pub(crate) struct SelectiveScanFields {
    /// Ratio of channels to the elements of a hidden state.
    pub(crate) expand: &'static str,
    /// Elements of a channel's state.
    pub(crate) state_size: &'static str,
    /// Elements of the vector that time steps are projected from; a number, or `auto`.
    pub(crate) rank: &'static str,
    /// Tokens that the convolution sees.
    pub(crate) taps: &'static str,
    /// Whether the convolution has a bias.
    pub(crate) conv_bias: &'static str,
    /// Whether the projections have biases.
    pub(crate) bias: &'static str,
    /// Activation of the convolution.
    pub(crate) activation: &'static str,
    /// Number of heads, where files have it.
    pub(crate) heads: Option<&'static str>,
}

/// Selective scans in the module `name` of these `layers`; `None` if there are no such layers.
pub(crate) fn scans(
    config: &HfConfig,
    fields: &SelectiveScanFields,
    norm: Option<NormSpec>,
    layers: Vec<bool>,
    name: &'static str,
) -> Result<Option<RecurrentSpec>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Rank {
        Number(usize),
        Word(String),
    }
    if !layers.contains(&true) {
        return Ok(None);
    }
    let hidden = config.hidden_size;
    let expand = config.size_or(fields.expand, 2, 1..=64)?;
    let channels = check_size(fields.expand, expand * hidden, 1..=MAX_SIZE)?;
    let rank = match config.field::<Rank>(fields.rank)? {
        Some(Rank::Number(rank)) => rank,
        Some(Rank::Word(word)) if word != "auto" => {
            return Err(bad(fields.rank, word, "must be a number or auto"));
        }
        Some(Rank::Word(_)) | None => hidden.div_ceil(16),
    };
    let bias = config.field_or(fields.bias, false)?;
    let act = config.field::<String>(fields.activation)?;
    let heads = fields.heads.map(|name| {
        let heads = config.size_or(name, 2, 1..=MAX_HEADS)?;
        if channels.is_multiple_of(heads) {
            return Ok(heads);
        }
        Err(bad(name, heads, format!("must divide the {channels} channels")))
    });
    let cell = CellSpec::SelectiveScan(SelectiveScanSpec {
        channels,
        heads: heads.transpose()?,
        state_size: config.size_or(fields.state_size, 16, 1..=1 << 12)?,
        rank: check_size(fields.rank, rank, 1..=MAX_SIZE)?,
        taps: config.size_or(fields.taps, 4, 2..=MAX_TAPS)?,
        conv_bias: config.field_or(fields.conv_bias, true)?,
        bias,
        activation: activation(act.as_deref().unwrap_or("silu"))?,
        norm,
    });
    let (output, beside_attention) = ("out_proj", None);
    Ok(Some(RecurrentSpec { layers, name, output, output_bias: bias, cell, beside_attention }))
}
