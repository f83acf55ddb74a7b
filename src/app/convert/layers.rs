//! What a layer of a decoder has.

use crate::models::decoder::DecoderSpec;

/// Whether a layer has attention, perhaps beside a recurrence.
pub(super) fn attends(spec: &DecoderSpec, layer: usize) -> bool {
    let recurrent = spec.recurrent.as_ref().filter(|recurrent| recurrent.layers[layer]);
    let alone = recurrent.is_some_and(|recurrent| recurrent.beside_attention.is_none());
    spec.mixers.as_ref().is_none_or(|mixers| mixers[layer]) && !alone
}
