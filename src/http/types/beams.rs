//! The fields of beam search, and what has no place beside it.

use serde::Deserialize;

use super::sampling::{MAX_CHOICES, SamplingFields, integer, to_usize, within};
use crate::http::error::ApiError;
use crate::sampling::params::{BeamParams, EarlyStopping};

/// Bound of the exponent, up or down: beyond it lengths to its power overflow.
const MAX_LENGTH_PENALTY: f64 = 10.0;

/// When a search ends: true, false or "never".
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum EarlyStoppingField {
    Flag(bool),
    Word(String),
}

/// The search that the fields ask for. `best_of` is what beam width was called before.
pub(crate) fn beam_params(
    fields: &SamplingFields,
    n: usize,
    best_of: Option<usize>,
) -> Result<Option<BeamParams>, ApiError> {
    let width = integer("beam_width", fields.beam_width, 1, MAX_CHOICES)?.map(to_usize);
    let penalty =
        within("length_penalty", fields.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)?
            .unwrap_or(1.0);
    let early_stopping = early_stopping(fields.early_stopping.as_ref())?;
    if fields.use_beam_search != Some(true) {
        refuse_without_search(width, penalty, early_stopping)?;
        return Ok(None);
    }
    refuse_filters(fields)?;
    if let (Some(width), Some(best_of)) = (width, best_of)
        && width != best_of
    {
        let message = format!("best_of means beam_width ({width}) in a search, got {best_of}");
        return Err(ApiError::field("best_of", message));
    }
    let width = width.or(best_of).unwrap_or(n);
    if width < n {
        let message = format!("beam_width must be at least n ({n}), got {width}");
        return Err(ApiError::field("beam_width", message));
    }
    Ok(Some(BeamParams { width, answers: n, length_penalty: penalty, early_stopping }))
}

fn early_stopping(field: Option<&EarlyStoppingField>) -> Result<EarlyStopping, ApiError> {
    match field {
        None | Some(EarlyStoppingField::Flag(false)) => Ok(EarlyStopping::Estimated),
        Some(EarlyStoppingField::Flag(true)) => Ok(EarlyStopping::WhenFull),
        Some(EarlyStoppingField::Word(word)) if word == "never" => Ok(EarlyStopping::Never),
        Some(EarlyStoppingField::Word(word)) => {
            let shown: String = word.chars().take(40).collect();
            let message = format!("early_stopping must be true, false or \"never\", got {shown:?}");
            Err(ApiError::field("early_stopping", message))
        }
    }
}

fn refuse_without_search(
    width: Option<usize>,
    penalty: f64,
    early_stopping: EarlyStopping,
) -> Result<(), ApiError> {
    let asked = [
        ("beam_width", width.is_some_and(|width| width > 1)),
        ("length_penalty", (penalty - 1.0).abs() > 0.0),
        ("early_stopping", early_stopping != EarlyStopping::Estimated),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((name, _)) => {
            let message = format!("{name} needs use_beam_search to be true");
            Err(ApiError::field(*name, message))
        }
        None => Ok(()),
    }
}

/// A search draws nothing: what shapes a draw must not seem to.
fn refuse_filters(fields: &SamplingFields) -> Result<(), ApiError> {
    let is = |value: f64, neutral: f64| (value - neutral).abs() < f64::EPSILON;
    let kept = |value: Option<f64>, neutral: &[f64]| {
        value.is_none_or(|value| neutral.iter().any(|neutral| is(value, *neutral)))
    };
    let filters = [
        ("temperature", kept(fields.temperature, &[0.0, 1.0]), "0 or 1"),
        ("top_p", kept(fields.top_p, &[1.0]), "1"),
        ("top_k", fields.top_k.is_none_or(|top_k| top_k.0 <= 0), "0"),
        ("min_p", kept(fields.min_p, &[0.0]), "0"),
        ("typical_p", kept(fields.typical_p, &[1.0]), "1"),
        ("top_n_sigma", fields.top_n_sigma.is_none_or(|sigmas| sigmas <= 0.0), "0"),
        ("xtc_probability", kept(fields.xtc_probability, &[0.0]), "0"),
    ];
    match filters.iter().find(|(_, neutral, _)| !neutral) {
        Some((name, _, neutral)) => {
            let message = format!("{name} must be {neutral} in a beam search, which draws nothing");
            Err(ApiError::field(*name, message))
        }
        None => Ok(()),
    }
}
