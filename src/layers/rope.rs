//! Rotary position embedding: which angle belongs to which position.
//!
//! Frequencies are fixed when the model loads; the angles of a step are computed from its
//! positions, once for all layers, so no table has to be as long as the longest context. Frequency
//! rules: RoFormer (default), "Extending Context Window of Large Language Models via Positional
//! Interpolation" (linear), the Llama 3.1 release (llama3). Frequencies and angles are f32 all the
//! way, as the models were trained with.

use candle_core::{Device, Result, Tensor};

use crate::kernels::kv_write::{HeadNorms, Rotation};

/// How frequencies are stretched beyond the context the model was pretrained with.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// At least 1.
        factor: f32,
    },
    /// Low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f32,
        /// `original_context / low_freq_factor` is the wavelength from which on all is divided.
        low_freq_factor: f32,
        /// `original_context / high_freq_factor` is the wavelength up to which all is kept.
        high_freq_factor: f32,
        /// Context length of the pretraining.
        original_context: f32,
    },
    /// Each frequency divided by its own factor, as GGUF files state llama3 scaling.
    Factors(
        /// `[rotary_dim / 2]`
        Vec<f32>,
    ),
}

/// One variant of rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the geometric series of wavelengths.
    pub theta: f32,
    /// Elements of a head that are rotated; even.
    pub rotary_dim: usize,
    /// Stretching.
    pub scaling: RopeScaling,
}

/// Frequencies of one variant.
#[derive(Clone, Debug)]
pub struct Rope {
    /// `[rotary_dim / 2]`
    frequencies: Vec<f32>,
}

/// Cosines and sines of one step's rows, each `[num_tokens, rotary_dim / 2]`.
#[derive(Clone, Debug)]
pub struct RopeAngles {
    cos: Tensor,
    sin: Tensor,
}

impl Rope {
    /// Frequencies of `spec`.
    pub fn new(spec: &RopeSpec) -> Self {
        let pairs = spec.rotary_dim / 2;
        #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
        let frequency = |i: usize| 1.0 / spec.theta.powf((2 * i) as f32 / spec.rotary_dim as f32);
        let frequencies = (0..pairs).map(|i| spec.scaling.scale(i, frequency(i))).collect();
        Self { frequencies }
    }

    /// Angles of rows at these positions.
    pub fn angles(&self, positions: &[u32], device: &Device) -> Result<RopeAngles> {
        let shape = (positions.len(), self.frequencies.len());
        let (mut cos, mut sin) =
            (Vec::with_capacity(shape.0 * shape.1), Vec::with_capacity(shape.0 * shape.1));
        for position in positions {
            #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
            let position = *position as f32;
            for frequency in &self.frequencies {
                let (s, c) = (position * frequency).sin_cos();
                cos.push(c);
                sin.push(s);
            }
        }
        Ok(RopeAngles {
            cos: Tensor::from_vec(cos, shape, device)?,
            sin: Tensor::from_vec(sin, shape, device)?,
        })
    }
}

impl RopeAngles {
    /// What happens to queries and keys on their way to attention.
    pub(super) fn rotation<'a>(&'a self, norms: Option<HeadNorms<'a>>) -> Rotation<'a> {
        Rotation { cos: &self.cos, sin: &self.sin, norms }
    }
}

impl RopeScaling {
    /// The `index`-th frequency, stretched.
    fn scale(&self, index: usize, frequency: f32) -> f32 {
        match *self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Factors(ref factors) => frequency / factors[index],
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let wavelength = 2.0 * std::f32::consts::PI / frequency;
                if wavelength < original_context / high_freq_factor {
                    frequency
                } else if wavelength > original_context / low_freq_factor {
                    frequency / factor
                } else {
                    let smooth = (original_context / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
            }
        }
    }
}
