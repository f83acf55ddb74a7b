//! The vision tower of a model that sees, and the encoder of one that hears.

use super::error::StartupError;
use crate::kernels::step::is_read_on;
use crate::models::ModelError;
use crate::models::audio::{self, AudioEncoder};
use crate::models::vision::{self, Tower};
use crate::pictures::processor::Processor;
use crate::sounds;
use crate::weights::Weights;
use crate::weights::source::ModelSource;

/// Loads the tower of a checkpoint, if it has one that is known. The decoder takes `width` features of
/// a token. Of several ranks the first one looks at pictures for all.
pub(super) fn load(
    source: &ModelSource,
    weights: &Weights,
    width: usize,
    first: bool,
) -> Result<Option<Tower>, StartupError> {
    let Some(spec) = vision::spec(&source.config)? else { return Ok(None) };
    if !first {
        return Ok(None);
    }
    if !spec.is_in(weights) {
        tracing::warn!("the checkpoint has no vision tower: it sees no pictures");
        return Ok(None);
    }
    let processor = Processor::from_json(&source.config, source.processor_config.as_ref())?;
    let Some(processor) = processor else { return Ok(None) };
    if processor.two_way && is_read_on(weights.device()) {
        tracing::warn!(
            "pictures that are seen both ways can't be computed on this GPU: none is seen"
        );
        return Ok(None);
    }
    let patches = [processor.patch, processor.merge];
    if patches != [spec.patch, spec.merge] {
        return Err(StartupError::Tower(format!(
            "patches of {patches:?} pixels and patches by the image processor, {:?} by the model",
            [spec.patch, spec.merge]
        )));
    }
    let tower = Tower::load(spec, processor.normalization, weights).map_err(ModelError::from)?;
    if tower.width() != width {
        let own = tower.width();
        return Err(StartupError::Tower(format!("{own} features, the decoder takes {width}")));
    }
    Ok(Some(tower))
}

/// Loads the audio encoder of a checkpoint, if it has one that is known. The decoder takes `width` features of a
/// token; several ranks hear nothing.
pub(super) fn load_audio(
    source: &ModelSource,
    weights: &Weights,
    width: usize,
    alone: bool,
) -> Result<Option<AudioEncoder>, StartupError> {
    let Some(spec) = audio::spec(&source.config)? else { return Ok(None) };
    if !alone {
        tracing::warn!("several ranks compute the model: it hears no sounds");
        return Ok(None);
    }
    if !spec.is_in(weights) {
        tracing::warn!("the checkpoint has no audio encoder: it hears no sounds");
        return Ok(None);
    }
    if sounds::processor::Processor::from_json(&source.config, source.processor_config.as_ref())?
        .is_none()
    {
        return Ok(None);
    }
    let encoder = AudioEncoder::load(spec, weights).map_err(ModelError::from)?;
    if encoder.width() != width {
        let own = encoder.width();
        return Err(StartupError::Tower(format!("{own} features, the decoder takes {width}")));
    }
    Ok(Some(encoder))
}
