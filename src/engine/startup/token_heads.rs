//! From the two layers that BGE-M3 has beside its checkpoint to heads of every token.
//!
//! Chen et al., "M3-Embedding", 2024: a token's weight is `max(0, w h + b)`, its vector for late
//! interaction is `W h + b`, scaled to length 1.

use std::sync::Arc;

use super::error::StartupError;
use crate::pooling::{Activation, Dense, DenseActivation, Outputs, TokenHead};
use crate::weights::WeightError;
use crate::weights::source::ModelSource;
use crate::weights::token_heads::LinearLayer;

/// The heads beside the one that pools, for hidden states of `hidden_size` elements; none where the
/// folder has no files of them.
pub(super) fn read(
    source: &ModelSource,
    hidden_size: usize,
) -> Result<Arc<[TokenHead]>, StartupError> {
    let Some(files) = &source.token_heads else { return Ok([].into()) };
    let failed = |error: WeightError| StartupError::Model(error.into());
    let head = |outputs, LinearLayer { weight, bias }, activation| TokenHead {
        outputs,
        layer: Dense { weight, bias, activation: DenseActivation::Identity },
        activation,
    };
    let (weights, vectors) = (files.sparse(hidden_size), files.colbert(hidden_size));
    Ok([
        head(Outputs::TokenWeights, weights.map_err(failed)?, Activation::Relu),
        head(Outputs::TokenEmbeddings, vectors.map_err(failed)?, Activation::Normalize),
    ]
    .into())
}
