//! A loaded encoder, and one sound being heard, which can be done in parts.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

use super::front::LoadedFront;
use super::layer::Layer;
use super::spec::{AudioSpec, EPS};
use crate::layers::full_attention::{Heads, Texts};
use crate::layers::norm::{Norm, NormSpec};
use crate::models::vision::Connector;
use crate::sounds::sound::Sound;
use crate::weights::stored::dense_dtype;
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded encoder.
#[derive(Debug)]
pub struct AudioEncoder {
    front: LoadedFront,
    layers: Vec<Layer>,
    last_norm: Option<Norm>,
    connector: Connector,
    spec: AudioSpec,
    device: Device,
}

/// A sound being heard, segment by segment and in each layer by layer.
#[derive(Debug)]
pub struct Hearing {
    sound: Arc<Sound>,
    /// The first vector of the next segment.
    next: usize,
    /// The hidden states of the segment that is computed, its layout, and the layer that comes next.
    segment: Option<(Tensor, Texts, usize)>,
    /// Features of the tokens of segments that are done, `[tokens, output]` each.
    features: Vec<Tensor>,
}

impl AudioEncoder {
    /// Loads the weights of `spec`. They are kept as they are stored where the decoder's are rounded to few
    /// bits: encoders are small.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn load(spec: AudioSpec, weights: &Weights) -> std::result::Result<Self, WeightError> {
        let dense = weights.rounding().filter(|kind| dense_dtype(*kind).is_some());
        let weights = weights.clone().rounded_to(dense);
        let root = spec.root(&weights).or(spec.roots.first().copied());
        let [own, connector] = root.map_or(["", ""], |root| [root.tower, root.connector]);
        let (weights, connector) = (weights.scope_as(own), weights.scope_as(connector));
        let layers = weights.scope("layers");
        let layers = (0..spec.layers).map(|index| Layer::load(&layers.scope(index), &spec));
        let norm = |name| Norm::load(&weights.scope(name), spec.hidden, NormSpec::layer(EPS, true));
        Ok(Self {
            front: LoadedFront::load(&weights, &spec)?,
            layers: layers.collect::<Loaded<_>>()?,
            last_norm: spec.last_norm.map(norm).transpose()?,
            connector: Connector::load(
                [&weights, &connector],
                &spec.connector,
                spec.hidden,
                spec.joined,
            )?,
            device: weights.device().clone(),
            spec,
        })
    }

    /// Elements of the features of a token.
    pub fn width(&self) -> usize {
        self.spec.output
    }

    /// Begins to hear a sound.
    ///
    /// # Errors
    ///
    /// Features of another width than this encoder's.
    pub fn begin(&self, sound: Arc<Sound>) -> Result<Hearing> {
        let mels = sound.features().mels();
        if mels != self.spec.mels {
            bail!("vectors of {mels} numbers, the encoder hears {}", self.spec.mels);
        }
        Ok(Hearing { sound, next: 0, segment: None, features: Vec::new() })
    }

    /// Computes the next layer of a segment. After the last one of the last segment there are the features of the
    /// sound's tokens, `[tokens, width]` in f32.
    pub fn advance(&self, hearing: &mut Hearing) -> Result<Option<Tensor>> {
        let (x, layout, index) = match hearing.segment.take() {
            Some(segment) => segment,
            None => self.segment(hearing)?,
        };
        let x = match self.layers.get(index) {
            Some(layer) => layer.forward(&x, &layout)?,
            None => x,
        };
        if index + 1 < self.layers.len() {
            hearing.segment = Some((x, layout, index + 1));
            return Ok(None);
        }
        hearing.features.push(self.connected(x)?);
        if hearing.next < hearing.sound.heard() {
            return Ok(None);
        }
        let features = Tensor::cat(&hearing.features, 0)?;
        let (tokens, expected) = (features.dim(0)?, hearing.sound.num_tokens());
        if tokens != expected {
            bail!("a sound has {tokens} tokens, its processor says {expected}");
        }
        Ok(Some(features))
    }

    /// The first states of the next segment.
    fn segment(&self, hearing: &mut Hearing) -> Result<(Tensor, Texts, usize)> {
        let AudioSpec { mels, front, heads, hidden, .. } = self.spec;
        let (sound, from, frames) = (&hearing.sound, hearing.next, front.frames());
        hearing.next += frames;
        let features = sound.features().window(from, frames);
        let heard = front.positions(sound.heard().saturating_sub(from).min(frames));
        let x = self.front.forward(features, mels, &self.device)?;
        let x = x.narrow(0, 0, heard)?.contiguous()?;
        let layout =
            Texts::new(&[heard], Heads { count: heads, dim: hidden / heads }, &self.device)?;
        Ok((x, layout, 0))
    }

    /// The features of the tokens of a segment.
    fn connected(&self, mut x: Tensor) -> Result<Tensor> {
        if let Some(norm) = &self.last_norm {
            x = norm.forward(&x)?;
        }
        let whole = x.dim(0)? / self.spec.joined * self.spec.joined;
        self.connector.forward(&x.narrow(0, 0, whole)?.contiguous()?, [1, whole])
    }
}
