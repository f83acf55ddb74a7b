//! The projections of hidden states to queries, keys and values.

use super::qkv_source::QkvSource;
use super::query_key_norms::QueryKeyNorms;
use super::spec::{AttentionSpec, NormSpan, QkvTensors, QueryKeyNorm};
use crate::layers::linear::{Linear, LowRank};
use crate::layers::norm::{Norm, RmsNorm};
use crate::weights::{Loaded, Weights};

/// Projections to queries, keys and values, with the gate of heads and the norms of queries and
/// keys.
#[derive(Clone, Debug)]
pub(super) struct QkvProjections {
    pub(super) layers: [Linear; 3],
    /// What is added to each of these.
    pub(super) changes: Option<[LowRank; 3]>,
    pub(super) gate: Option<Linear>,
    pub(super) norms: Option<QueryKeyNorms>,
}

impl QkvProjections {
    pub(super) fn load(weights: &Weights, spec: &AttentionSpec) -> Loaded<Self> {
        let (inputs, bias) = (spec.hidden_size, spec.qkv_bias);
        let load = |QkvSource { name, rows, ranges }: QkvSource, bias| {
            Linear::load_rows(&weights.scope(name), inputs, rows, bias, &ranges)
        };
        let [query, key, value] = QkvSource::all(spec);
        let is_key = value == key;
        let gate = QkvSource::gate(spec);
        // A gate of its own has no bias in any model.
        let with_queries = gate.as_ref().is_some_and(|gate| gate.name == query.name);
        let gate = gate.map(|gate| load(gate, bias && with_queries)).transpose()?;
        let [query, key] = [load(query, bias)?, load(key, bias)?];
        let value = if is_key { key.clone() } else { load(value, bias)? };
        let norms = spec.query_key_norm.map(|norm| QueryKeyNorms::load(weights, spec, norm));
        Ok(Self { layers: [query, key, value], changes: None, gate, norms: norms.transpose()? })
    }
}

/// Loads the projection to gates of heads, if they have one of their own.
pub(super) fn load_gate(weights: &Weights, spec: &AttentionSpec) -> Loaded<Option<Linear>> {
    let load = |QkvSource { name, rows, ranges }: QkvSource| {
        Linear::load_rows(&weights.scope(name), spec.hidden_size, rows, false, &ranges)
    };
    QkvSource::gate(spec).map(load).transpose()
}

/// Loads the query projection, and the norm of queries, of a layer with another layer's keys.
pub(super) fn load_query(
    weights: &Weights,
    spec: &AttentionSpec,
) -> Loaded<(Linear, Option<RmsNorm>)> {
    let (QkvTensors::Separate([name, ..]), None) = (spec.qkv, spec.interleaved_rope) else {
        let message = "keys of another layer beside fused queries are not implemented".to_owned();
        return Err(candle_core::Error::Msg(message).into());
    };
    let AttentionSpec { hidden_size, num_heads, head_dim, qkv_bias, .. } = *spec;
    let query = weights.scope(name);
    let query = Linear::load(&query, hidden_size, num_heads * head_dim, qkv_bias)?;
    let Some(QueryKeyNorm { norm, over, tensors }) = spec.query_key_norm else {
        return Ok((query, None));
    };
    let norm = Norm::load(&weights.scope(tensors[0]), head_dim, norm)?;
    let (NormSpan::Head, Norm::Rms(norm)) = (over, norm) else {
        let message = "such a norm of queries alone is not implemented".to_owned();
        return Err(candle_core::Error::Msg(message).into());
    };
    Ok((query, Some(norm)))
}
