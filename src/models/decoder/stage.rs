//! Pipeline parallelism: the layers that one stage of several computes are a smaller decoder.
//!
//! Huang et al., "GPipe", 2018: each stage has consecutive layers, and hidden states go from one to the
//! next. The first stage has the embedding and the output head, which may be one matrix: the last one
//! gives back hidden states after the final norm, which are far fewer bytes than logits.

use std::ops::Range;

use super::embedding_and_head::Names;
use super::spec::DecoderSpec;
use crate::layers::recurrent::{CellSpec, RecurrentSpec};
use crate::models::error::{ModelError, Result};
use crate::weights::Weights;

/// One stage of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Which one it is, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Stage {
    /// The only stage.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Whether it begins with tokens, and makes logits of hidden states.
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// Whether it has the last layer.
    pub fn is_last(self) -> bool {
        self.index + 1 == self.count
    }

    fn refused(self, reason: String) -> ModelError {
        ModelError::Split { size: self.count, reason }
    }

    /// The layers of this stage, so that the stage with the most bytes of weights has as few as possible.
    /// Names of layers' tensors begin with `layers`.
    pub(super) fn layers(
        self,
        spec: &DecoderSpec,
        weights: &Weights,
        names: &Names,
        layers: &str,
    ) -> Result<Range<usize>> {
        let count = spec.attention.len();
        if self.count == 1 {
            return Ok(0..count);
        }
        // No stage tells the next one which tokens a layer chose, so layers stay with the one that chooses.
        let firsts: Vec<_> = (0..count).filter(|layer| !spec.sees_earlier_choice(*layer)).collect();
        if self.count > firsts.len() {
            let count = firsts.len();
            return Err(self.refused(format!("each needs a layer, and there are {count}")));
        }
        let mut bytes = vec![0; count];
        let mut ends = 0;
        for tensor in weights.outlines()? {
            let layer = tensor.name.strip_prefix(layers).and_then(|rest| rest.split('.').next());
            match layer.and_then(|layer| bytes.get_mut(layer.parse::<usize>().ok()?)) {
                Some(own) => *own += tensor.bytes,
                None if names.is_end(spec, weights, &tensor.name) => ends += tensor.bytes,
                None => {}
            }
        }
        let end = |group: usize| firsts.get(group).copied().unwrap_or(count);
        let groups = (0..firsts.len()).map(|group| bytes[end(group)..end(group + 1)].iter().sum());
        let groups: Vec<usize> = groups.collect();
        let own = ranges(&groups, ends, self.count).swap_remove(self.index);
        Ok(end(own.start)..end(own.end))
    }

    /// The smaller decoder of these layers.
    pub(super) fn part(self, spec: DecoderSpec, layers: &Range<usize>) -> Result<DecoderSpec> {
        if self.count == 1 {
            return Ok(spec);
        }
        let refused = [
            (spec.layer_inputs.is_some(), "layers with embeddings of their own can't be"),
            (spec.shared_blocks.is_some(), "layers that share blocks can't be"),
            (
                spec.streams.is_some() || spec.hyper_connections.is_some(),
                "streams of hidden states can't be",
            ),
            (spec.pairs, "layers that are stored in pairs can't be"),
            (
                spec.moe.as_ref().is_some_and(|moe| moe.remembering.is_some()),
                "routers that remember others can't be",
            ),
            (spec.schedule.is_some(), "layers that are gone through again can't be"),
            // Each layer's decays follow from its place among all.
            (
                spec.recurrent.as_ref().is_some_and(is_lightning),
                "layers of lightning attention can't be",
            ),
        ];
        if let Some((_, reason)) = refused.into_iter().find(|(is_there, _)| *is_there) {
            return Err(self.refused(reason.to_owned()));
        }
        let mut part = spec.clone();
        part.attention = spec.attention[layers.clone()].to_vec();
        for (index, attention) in layers.clone().zip(&mut part.attention) {
            let Some(source) = attention.kv_from_layer else { continue };
            let own = source.checked_sub(layers.start).ok_or_else(|| {
                let reads = format!("layer {index} reads the keys of layer {source}");
                self.refused(format!("{reads}, which another stage has"))
            })?;
            attention.kv_from_layer = Some(own);
        }
        let range = || layers.clone();
        part.mixers.iter_mut().for_each(|all| keep(all, range()));
        part.recurrent.iter_mut().for_each(|recurrent| keep(&mut recurrent.layers, range()));
        part.moe.iter_mut().for_each(|moe| keep(&mut moe.layers, range()));
        part.intermediate_sizes.iter_mut().for_each(|all| keep(all, range()));
        part.residuals_from_norms.iter_mut().for_each(|all| keep(all, range()));
        part.residuals_scaled.iter_mut().for_each(|all| keep(all, range()));
        part.gate_thresholds.iter_mut().for_each(|all| keep(all, range()));
        part.gate_limits.iter_mut().for_each(|all| keep(all, range()));
        if !self.is_first() {
            part.block.first_input_is_plain = false;
            part.recurrent_block.iter_mut().for_each(|block| block.first_input_is_plain = false);
            (part.learned_positions, part.sinusoids) = (None, None);
            (part.token_types, part.embedding_norm) = (None, None);
        }
        if !self.is_last() {
            part.names.norm = "";
        }
        Ok(part)
    }
}

fn is_lightning(recurrent: &RecurrentSpec) -> bool {
    matches!(recurrent.cell, CellSpec::Lightning(_))
}

/// Leaves what belongs to the layers of a stage.
fn keep<T>(of_layers: &mut Vec<T>, layers: Range<usize>) {
    of_layers.truncate(layers.end);
    of_layers.drain(..layers.start);
}

/// Ranges of layers of these `bytes` for so many stages, of which the first has `ends` more. The most that
/// a stage has is as little as possible, and each has a layer.
fn ranges(bytes: &[usize], ends: usize, stages: usize) -> Vec<Range<usize>> {
    // Fills one stage after the other up to `most` bytes, and leaves a layer for each that follows.
    let within = |most: usize| {
        let (mut all, mut next) = (Vec::new(), 0);
        for stage in 0..stages {
            let (first, last) = (next, bytes.len() - (stages - stage - 1));
            let mut own = if stage == 0 { ends } else { 0 };
            while next < last && own + bytes[next] <= most {
                own += bytes[next];
                next += 1;
            }
            all.push(first..next);
        }
        (next == bytes.len() && all.iter().all(|range| !range.is_empty())).then_some(all)
    };
    let (mut low, mut high) = (0, ends + bytes.iter().sum::<usize>());
    while low < high {
        let middle = low.midpoint(high);
        if within(middle).is_some() { high = middle } else { low = middle + 1 }
    }
    within(high).expect("no stage has more than all bytes, and there are as many layers as stages")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::tests::{fields_of_fixture, spec_of_fields};

    #[test]
    fn layers_that_share_keys_stay_together() {
        let spec = spec_of_fields(&fields_of_fixture("gemma4_shared"));
        let spec = DecoderSpec { layer_inputs: None, ..spec };
        let shares: Vec<_> = spec.attention.iter().map(|layer| layer.kv_from_layer).collect();
        assert_eq!(shares, [None, None, Some(0), Some(1)]);
        let part =
            |index, layers: Range<usize>| Stage { index, count: 2 }.part(spec.clone(), &layers);
        assert_eq!(part(0, 0..3).unwrap().attention[2].kv_from_layer, Some(0));
        // Counted from the stage's first layer.
        assert_eq!(
            part(1, 1..4).unwrap_err().to_string(),
            concat!(
                "the model can't be split over 2 ranks: layer 2 reads the keys of layer 0, ",
                "which another stage has"
            )
        );
    }

    #[test]
    fn stages_have_about_as_many_bytes_and_each_a_layer() {
        assert_eq!(ranges(&[1; 8], 0, 2), [0..4, 4..8]);
        assert_eq!(ranges(&[1; 8], 0, 3), [0..3, 3..6, 6..8]);
        // The embedding and the output head weigh, too.
        assert_eq!(ranges(&[10; 8], 25, 2), [0..3, 3..8]);
        assert_eq!(ranges(&[1, 1, 1], 100, 3), [0..1, 1..2, 2..3]);
        assert_eq!(ranges(&[1, 1, 1], 100, 2), [0..1, 1..3]);
        // A dense layer before layers of experts.
        assert_eq!(ranges(&[1, 1, 1, 9, 9], 0, 2), [0..4, 4..5]);
        assert_eq!(ranges(&[0, 0, 0], 0, 3), [0..1, 1..2, 2..3]);
    }
}
