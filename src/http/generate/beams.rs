//! Beam search: its fields, and what has no place beside it.

use crate::http::error::ApiError;
use crate::http::wire::bounds::{MAX_CHOICES, MAX_LENGTH_PENALTY};
use crate::http::wire::number::{integer, to_usize, within};
use crate::http::wire::sampling::{CommonFields, EarlyStoppingField, SamplingFields};
use crate::http::wire::scalars::ScalarFields;
use crate::sampling::params::{BeamParams, EarlyStopping, SCALARS};

/// The search that the fields ask for. `best_of` is what beam width was called before.
pub(crate) fn beam_params(
    fields: &SamplingFields,
    common: &CommonFields,
    scalars: &ScalarFields,
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
    refuse_filters(common, scalars)?;
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
fn refuse_filters(common: &CommonFields, scalars: &ScalarFields) -> Result<(), ApiError> {
    let refuse = |name: &str, neutral: &str| {
        let message = format!("{name} must be {neutral} in a beam search, which draws nothing");
        Err(ApiError::field(name, message))
    };
    if common.top_k.is_some_and(|top_k| top_k.0 > 0) {
        return refuse("top_k", "0");
    }
    for (scalar, value) in SCALARS.iter().zip(scalars.values()) {
        if let (Some(neutral), Some(value)) = (scalar.neutral, value) {
            #[expect(clippy::cast_possible_truncation, reason = "the sampler works in f32")]
            if !(neutral.holds)(*value as f32) {
                return refuse(scalar.name, neutral.words);
            }
        }
    }
    Ok(())
}
