//! The shape and the variant of an encoder of sound, as plain data.

use serde_json::Value;

use crate::models::error::{Result, bad};
use crate::models::vision::{Roots, Stage, TowerActivation, VisionFields};
use crate::weights::Weights;

/// Epsilon of the norms.
pub(super) const EPS: f32 = 1e-5;

/// The shape and the variant of an encoder: convolutions over the vectors of a segment, layers of attention
/// within it, and a connector that makes the features of a token of its positions.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioSpec {
    /// Prefixes of all names; the first that the checkpoint has are used.
    pub roots: &'static [Roots],
    /// Numbers of a log-mel vector.
    pub mels: usize,
    /// What makes the first hidden states.
    pub front: Front,
    /// Elements of a hidden state.
    pub hidden: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Number of layers.
    pub layers: usize,
    /// Elements between the products of the feed-forward part.
    pub intermediate: usize,
    /// What is between them.
    pub activation: TowerActivation,
    /// Whether the projection to keys has a bias; all others have.
    pub key_bias: bool,
    /// Positions that the connector takes together; those that are left over at the end are dropped.
    pub joined: usize,
    /// Name of the norm behind the last layer, if it stands before the connector.
    pub last_norm: Option<&'static str>,
    /// What makes features of positions, at the end.
    pub connector: Vec<Stage>,
    /// Elements of a token's features.
    pub output: usize,
}

/// What makes the first hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Two convolutions over time, the second with a stride of two, and learned positions; a segment is as long
    /// as they are. Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022.
    Whisper {
        /// Positions of a segment.
        positions: usize,
    },
    /// Three convolutions over time and frequency with strides of two, chunk by chunk, a product, and sines of
    /// positions in the chunk; a segment is several chunks.
    Chunks {
        /// Channels of the convolutions.
        channels: usize,
        /// Vectors of a chunk.
        frames: usize,
        /// Chunks of a segment.
        chunks: usize,
    },
}

impl Front {
    /// Vectors of a segment.
    pub(super) fn frames(self) -> usize {
        match self {
            Self::Whisper { positions } => 2 * positions,
            Self::Chunks { frames, chunks, .. } => frames * chunks,
        }
    }

    /// Positions of the first `heard` vectors of a segment.
    pub(super) fn positions(self, heard: usize) -> usize {
        match self {
            Self::Whisper { .. } => heard.div_ceil(2),
            Self::Chunks { frames, .. } => {
                heard / frames * frames.div_ceil(8) + (heard % frames).div_ceil(8)
            }
        }
    }

    /// Name of the first convolution.
    fn first(self) -> &'static str {
        match self {
            Self::Whisper { .. } => "conv1",
            Self::Chunks { .. } => "conv2d1",
        }
    }
}

impl AudioSpec {
    /// Prefixes of names in this checkpoint, if it has the encoder.
    pub(super) fn root(&self, weights: &Weights) -> Option<Roots> {
        let first = self.front.first();
        let has = |root: &Roots| weights.contains(&format!("{}{first}.weight", root.tower));
        self.roots.iter().copied().find(has)
    }

    /// Whether a checkpoint has the encoder.
    pub fn is_in(&self, weights: &Weights) -> bool {
        self.root(weights).is_some()
    }

    /// The same, if its sizes fit each other.
    pub(super) fn checked(self) -> Result<Self> {
        if !self.hidden.is_multiple_of(self.heads) || !self.hidden.is_multiple_of(2) {
            let bound = format!("must divide `d_model` = {}, an even number", self.hidden);
            return Err(bad("encoder_attention_heads", self.heads, bound));
        }
        Ok(self)
    }
}

/// The fields of an `audio_config`, of which some have two names.
#[derive(Clone, Copy)]
pub(super) struct AudioFields<'a>(pub(super) &'a Value);

impl AudioFields<'_> {
    /// A size, 1 at least, under the first of its names that the file has.
    pub(super) fn size(self, names: &[&'static str], default: usize) -> Result<usize> {
        let given = names.iter().find(|name| !self.0[**name].is_null());
        given.map_or(Ok(default), |name| VisionFields(self.0).size(name, default))
    }

    /// An encoder without a connector.
    pub(super) fn encoder(
        self,
        front: Front,
        [hidden, layers, heads]: [usize; 3],
    ) -> Result<AudioSpec> {
        let hidden = self.size(&["d_model", "hidden_size"], hidden)?;
        Ok(AudioSpec {
            roots: ROOTS,
            mels: self.size(&["num_mel_bins"], 128)?,
            front,
            hidden,
            heads: self.size(&["encoder_attention_heads", "num_attention_heads"], heads)?,
            layers: self.size(&["encoder_layers", "num_hidden_layers"], layers)?,
            intermediate: self.size(&["encoder_ffn_dim", "intermediate_size"], 4 * hidden)?,
            activation: VisionFields(self.0).activation_of("activation_function", "gelu")?,
            key_bias: false,
            joined: 1,
            last_norm: None,
            connector: Vec::new(),
            output: hidden,
        })
    }

    /// Whisper's front.
    pub(super) fn whisper(self) -> Result<Front> {
        Ok(Front::Whisper { positions: self.size(&["max_source_positions"], 1500)? })
    }
}

/// Prefixes of an encoder and a projector beside a language model, new and old.
const ROOTS: &[Roots] = &[
    Roots { tower: "model.audio_tower.", connector: "model.multi_modal_projector." },
    Roots { tower: "audio_tower.", connector: "multi_modal_projector." },
];
