//! The embedding of positions that is added to that of tokens: learned, or computed.

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use super::spec::{DecoderSpec, LearnedPositions, Sinusoids};
use crate::layers::embedding::Embedding;
use crate::layers::linear::Matrix;
use crate::weights::{Loaded, StoredTensor, Weights};

/// The table of positions that `spec` asks for, if any.
pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Embedding>> {
    let table = match (spec.learned_positions, spec.sinusoids) {
        (Some(learned), _) => stored(weights, spec, learned)?,
        (None, Some(sinusoids)) => computed(spec, sinusoids),
        (None, None) => return Ok(None),
    };
    // A table so small isn't worth rounding.
    Ok(Some(Embedding::new(Matrix::from_stored(weights, &table, None)?)))
}

fn stored(
    weights: &Weights,
    spec: &DecoderSpec,
    positions: LearnedPositions,
) -> Loaded<StoredTensor> {
    let rows = positions.first..positions.first + spec.max_position_embeddings;
    let shape = [rows.end, spec.mlp.hidden_size];
    let all = rows.start == 0;
    let rows = (!all).then_some(std::slice::from_ref(&rows));
    weights.scope(positions.name).stored_rows("weight", &shape, rows)
}

/// In f32, as the reference computes it.
#[expect(clippy::cast_precision_loss, reason = "positions and sizes are below 2^24")]
fn computed(spec: &DecoderSpec, sinusoids: Sinusoids) -> StoredTensor {
    let (rows, hidden) = (spec.max_position_embeddings, spec.mlp.hidden_size);
    let half = hidden / 2;
    let step = 10_000f32.ln() / sinusoids.intervals as f32;
    let frequencies: Vec<f32> = (0..half).map(|i| (-step * i as f32).exp()).collect();
    let mut bytes = Vec::with_capacity(rows * hidden * DType::F32.size_in_bytes());
    for position in sinusoids.first..sinusoids.first + rows {
        let angles = frequencies.iter().map(|frequency| position as f32 * frequency);
        let (sines, cosines) = (angles.clone().map(f32::sin), angles.map(f32::cos));
        // An odd number of elements ends in a zero.
        let rest = std::iter::repeat_n(0.0, hidden - 2 * half);
        bytes.extend(sines.chain(cosines).chain(rest).flat_map(f32::to_le_bytes));
    }
    StoredTensor::owned(GgmlDType::F32, vec![rows, hidden], bytes)
}
