//! Rotary position embedding: the angles of positions.
//!
//! Frequencies are fixed when the model loads; the angles of a step are computed from its
//! positions, once for all layers, so no table has to be as long as the longest context. Frequency
//! rules: RoFormer (default), "Extending Context Window of Large Language Models via Positional
//! Interpolation" (linear), the Llama 3.1 release (llama3), "YaRN" (yarn). Frequencies and angles
//! are f32 all the way, as the models were trained with.

use std::sync::OnceLock;

use candle_core::{DType, Device, Result, Tensor};

use super::forward::{Step, StepTensors};
use crate::kernels::kv_write::{HeadNorms, Rotation};
use crate::kernels::rope::{AngleParams, angles};

/// Scaling of frequencies for contexts longer than that of the pretraining.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The divisor, at least 1.
        factor: f32,
    },
    /// Low frequencies divided by `factor`, high ones kept, interpolated between, by wavelength.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f32,
        /// Wavelengths above `original_context / low_freq_factor` have their frequency divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high_freq_factor` keep their frequency.
        high_freq_factor: f32,
        /// Context length of the pretraining.
        original_context: f32,
    },
    /// Low frequencies divided by `factor`, high ones kept, interpolated between, by dimension.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f32,
        /// Context length of the pretraining.
        original_context: f64,
        /// A frequency with this many rotations in that context is kept.
        beta_fast: f64,
        /// A frequency with this many rotations in that context is divided.
        beta_slow: f64,
        /// Whether the ramp starts and ends at whole dimensions.
        truncate: bool,
    },
    /// Each frequency divided by its own factor.
    Factors(
        /// `[rotary_dim / 2]`
        Vec<f32>,
    ),
    /// Each frequency divided by its own factor, which changes once a sequence is long.
    FactorsByLength {
        /// The longest sequence that has the short factors.
        longest_short: usize,
        /// `[rotary_dim / 2]`: factors of short sequences.
        short: Vec<f32>,
        /// `[rotary_dim / 2]`: factors of all tokens of longer sequences.
        long: Vec<f32>,
    },
}

/// A variant of rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the geometric series of wavelengths.
    pub theta: f32,
    /// Number of elements of a head that are rotated; even.
    pub rotary_dim: usize,
    /// Scaling of frequencies.
    pub scaling: RopeScaling,
    /// Factor of cosines and sines.
    pub magnitude: f32,
    /// Position-dependent scale of queries, behind their norm.
    pub query_scale: Option<QueryScale>,
    /// `[rotary_dim / 2]`: by which of a token's three positions each pair is rotated; empty where they
    /// are never told apart. Wang et al., "Qwen2-VL", 2024.
    pub axes: Vec<Axis>,
}

/// One of a token's three positions, which differ inside of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The position in time.
    Time,
    /// The row in the picture.
    Row,
    /// The column in the picture.
    Column,
}

/// A scale of queries by their position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryScale {
    /// `1 + beta * ln(1 + floor((position + offset) / interval))`
    Logarithm {
        /// Coefficient of the logarithm.
        beta: f32,
        /// Number of consecutive positions with the same scale.
        interval: f32,
        /// Number that is added to positions.
        offset: f32,
    },
    /// `(1 + (position + 1) / unit)^exponent`
    Power {
        /// Number of positions that the base grows by one in.
        unit: f32,
        /// The exponent.
        exponent: f32,
    },
}

impl QueryScale {
    #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
    fn at(self, position: u32) -> f32 {
        let position = position as f32;
        match self {
            Self::Logarithm { beta, interval, offset } => {
                1.0 + beta * (1.0 + ((position + offset) / interval).floor()).ln()
            }
            Self::Power { unit, exponent } => (exponent * ((position + 1.0) / unit).ln_1p()).exp(),
        }
    }

    /// Of positions on a GPU: `[num_tokens, 1, 1]`, where a kernel doesn't compute it with the angles.
    fn on_device(self, positions: &Tensor) -> Result<Option<Tensor>> {
        let Self::Power { unit, exponent } = self else { return Ok(None) };
        let base = positions.to_dtype(DType::F32)?.affine(1.0 / f64::from(unit), 1.0)?;
        let base = (base + 1.0 / f64::from(unit))?;
        let scales = (base.log()? * f64::from(exponent))?.exp()?;
        scales.reshape((positions.elem_count(), 1, 1)).map(Some)
    }
}

/// The frequencies of a variant of rotary embedding.
#[derive(Clone, Debug)]
pub struct Rope {
    /// `[rotary_dim / 2]`
    frequencies: Vec<f32>,
    /// The longest sequence with these `frequencies`, and those of longer ones.
    beyond: Option<(usize, Vec<f32>)>,
    magnitude: f32,
    query_scale: Option<QueryScale>,
    axes: Vec<Axis>,
    /// `frequencies` and those of long sequences, on a GPU.
    on_device: OnceLock<(Tensor, Option<Tensor>)>,
}

/// Cosines and sines of a step's rows, each `[num_tokens, rotary_dim / 2]`.
#[derive(Clone, Debug)]
pub struct RopeAngles {
    cos: Tensor,
    sin: Tensor,
    /// `[num_tokens, 1, 1]`
    query_scale: Option<Tensor>,
}

impl Rope {
    /// The longest sequence whose rotation stays as it is while the sequence grows, if there is a
    /// limit.
    pub fn fixed_rope_length(&self) -> Option<usize> {
        self.beyond.as_ref().map(|(longest, _)| *longest)
    }

    /// The frequencies of `spec`.
    pub fn new(spec: &RopeSpec) -> Self {
        let pairs = spec.rotary_dim / 2;
        #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
        let frequency = |i: usize| 1.0 / spec.theta.powf((2 * i) as f32 / spec.rotary_dim as f32);
        let frequencies = (0..pairs).map(|i| spec.scale(i, frequency(i))).collect();
        let beyond = match &spec.scaling {
            RopeScaling::FactorsByLength { longest_short, long, .. } => {
                let scaled = (0..pairs).map(|i| frequency(i) / long[i]).collect();
                Some((*longest_short, scaled))
            }
            _ => None,
        };
        let RopeSpec { magnitude, query_scale, axes, .. } = spec.clone();
        Self { frequencies, beyond, magnitude, query_scale, axes, on_device: OnceLock::new() }
    }

    /// The angles of a step's rows.
    pub fn angles(&self, step: &Step, device: &Device) -> Result<RopeAngles> {
        if !self.axes.is_empty() && !step.rope_positions.is_empty() {
            return self.angles_by_axis(step, device);
        }
        if let Some(tensors) = step.tensors() {
            return self.angles_on_device(tensors, device);
        }
        let Some((longest, beyond)) = &self.beyond else {
            return self.angles_at(&step.positions, |_| &self.frequencies, device);
        };
        let mut rows = Vec::with_capacity(step.positions.len());
        for (bounds, length) in step.cu_seqlens_q.windows(2).zip(&step.sequence_lens) {
            let long = *length as usize > *longest;
            rows.resize(bounds[1] as usize, if long { beyond } else { &self.frequencies });
        }
        self.angles_at(&step.positions, |row| rows[row], device)
    }

    /// The angles of a step whose positions are on a GPU.
    fn angles_on_device(&self, tensors: &StepTensors, device: &Device) -> Result<RopeAngles> {
        let tensor = |numbers: &[f32]| Tensor::new(numbers, device);
        let moved = if let Some(moved) = self.on_device.get() {
            moved
        } else {
            let beyond = self.beyond.as_ref().map(|(_, frequencies)| tensor(frequencies));
            let moved = (tensor(&self.frequencies)?, beyond.transpose()?);
            self.on_device.get_or_init(|| moved)
        };
        let longest = self.fixed_rope_length();
        let query_scale = match self.query_scale {
            Some(QueryScale::Logarithm { beta, interval, offset }) => {
                Some([beta, interval, offset])
            }
            _ => None,
        };
        let params = AngleParams {
            frequencies: &moved.0,
            beyond: longest.zip(moved.1.as_ref()),
            magnitude: self.magnitude,
            query_scale,
        };
        let (cos, sin, mut query_scale) = angles(&tensors.positions, &tensors.lengths, &params)?;
        if let Some(scale) = self.query_scale {
            query_scale = scale.on_device(&tensors.positions)?.or(query_scale);
        }
        Ok(RopeAngles { cos, sin, query_scale })
    }

    /// The angles of rows whose three positions differ.
    fn angles_by_axis(&self, step: &Step, device: &Device) -> Result<RopeAngles> {
        let shape = (step.rope_positions.len(), self.frequencies.len());
        let (mut cos, mut sin) =
            (Vec::with_capacity(shape.0 * shape.1), Vec::with_capacity(shape.0 * shape.1));
        for positions in &step.rope_positions {
            for (axis, frequency) in self.axes.iter().zip(&self.frequencies) {
                #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
                let (s, c) = (positions[*axis as usize] as f32 * frequency).sin_cos();
                cos.push(c * self.magnitude);
                sin.push(s * self.magnitude);
            }
        }
        Ok(RopeAngles {
            cos: Tensor::from_vec(cos, shape, device)?,
            sin: Tensor::from_vec(sin, shape, device)?,
            query_scale: self.query_scale(&step.positions, device)?,
        })
    }

    /// The angles of rows at these positions, with the frequencies of each row.
    fn angles_at<'a>(
        &self,
        positions: &[u32],
        frequencies: impl Fn(usize) -> &'a Vec<f32>,
        device: &Device,
    ) -> Result<RopeAngles> {
        let shape = (positions.len(), self.frequencies.len());
        let (mut cos, mut sin) =
            (Vec::with_capacity(shape.0 * shape.1), Vec::with_capacity(shape.0 * shape.1));
        for (row, position) in positions.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
            let position = *position as f32;
            for frequency in frequencies(row) {
                let (s, c) = (position * frequency).sin_cos();
                cos.push(c * self.magnitude);
                sin.push(s * self.magnitude);
            }
        }
        Ok(RopeAngles {
            cos: Tensor::from_vec(cos, shape, device)?,
            sin: Tensor::from_vec(sin, shape, device)?,
            query_scale: self.query_scale(positions, device)?,
        })
    }

    fn query_scale(&self, positions: &[u32], device: &Device) -> Result<Option<Tensor>> {
        let Some(scale) = self.query_scale else { return Ok(None) };
        let scales: Vec<f32> = positions.iter().map(|position| scale.at(*position)).collect();
        Tensor::from_vec(scales, (positions.len(), 1, 1), device).map(Some)
    }
}

impl RopeAngles {
    /// Queries `[num_tokens, heads, head_dim]` times their position-dependent scale, if there is
    /// one.
    pub(super) fn scale_queries(&self, queries: Tensor) -> Result<Tensor> {
        match &self.query_scale {
            Some(scale) => queries.broadcast_mul(scale),
            None => Ok(queries),
        }
    }

    /// Angles of no elements, on the device of the f32 tensor `like [rows, ..]`: nothing is rotated.
    /// They are a part of its memory, since captured steps can't ask for memory of no bytes.
    pub fn none(rows: usize, like: &Tensor) -> Result<Self> {
        let empty = like.narrow(0, 0, 0)?.reshape((rows, 0))?;
        Ok(Self { cos: empty.clone(), sin: empty, query_scale: None })
    }

    /// The rotation as kernels take it, fused with the norms of heads.
    pub(super) fn rotation<'a>(&'a self, norms: Option<HeadNorms<'a>>) -> Rotation<'a> {
        Rotation { cos: &self.cos, sin: &self.sin, norms }
    }
}

impl RopeSpec {
    /// No rotation, perhaps with a scale of queries.
    pub fn none(query_scale: Option<QueryScale>) -> Self {
        let scaling = RopeScaling::None;
        let axes = Vec::new();
        Self { theta: 1.0, rotary_dim: 0, scaling, magnitude: 1.0, query_scale, axes }
    }

    /// Scales the `index`-th frequency.
    fn scale(&self, index: usize, frequency: f32) -> f32 {
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Factors(ref factors)
            | RopeScaling::FactorsByLength { short: ref factors, .. } => frequency / factors[index],
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
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
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate } => {
                let bound = |beta| self.dimension_with_rotations(beta, original_context);
                let (low, high) = (bound(beta_fast), bound(beta_slow));
                let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
                #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
                let (index, last) = (index as f32, (self.rotary_dim - 1) as f64);
                #[expect(clippy::cast_possible_truncation, reason = "as the reference")]
                let (low, mut high) = (low.max(0.0) as f32, high.min(last) as f32);
                if high.to_bits() == low.to_bits() {
                    high += 0.001;
                }
                let ramp = ((index - low) / (high - low)).clamp(0.0, 1.0);
                frequency / factor * ramp + frequency * (1.0 - ramp)
            }
        }
    }

    /// The (fractional) index of the frequency with this many `rotations` in `context`.
    fn dimension_with_rotations(&self, rotations: f64, context: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
        let dim = self.rotary_dim as f64;
        let ratio = context / (rotations * 2.0 * std::f64::consts::PI);
        dim * ratio.ln() / (2.0 * f64::from(self.theta).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_of_no_elements_take_no_memory_of_their_own() {
        let x = Tensor::zeros((3, 8), candle_core::DType::F32, &Device::Cpu).unwrap();
        let none = RopeAngles::none(3, &x).unwrap();
        let ((own, layout), (of_x, _)) = (none.cos.storage_and_layout(), x.storage_and_layout());
        assert_eq!(layout.dims(), [3, 0]);
        assert!(layout.is_contiguous());
        assert!(std::ptr::eq(&raw const *own, &raw const *of_x));
    }
}
