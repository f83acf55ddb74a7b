//! What the sums of hidden states and the outputs of a layer's parts are made of, where those are not
//! simply added.

use candle_core::{DType, Result, Tensor};

use super::spec::{DecoderSpec, LearnedSums, ResidualScales};
use crate::weights::{Loaded, Weights};

/// A part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Mixer,
    Mlp,
}

/// How hidden states come into the sums of a layer.
pub(super) struct Residuals {
    /// Whether they are the normalized ones.
    pub(super) from_norms: bool,
    factors: Factors,
}

enum Factors {
    /// Numbers, also of what is added.
    Fixed(ResidualScales),
    /// `[hidden]` of the mixer and of the feed-forward part, which a layer may lack.
    Learned([Option<Tensor>; 2]),
    /// Of each part vectors `[hidden]` that are added to and multiply hidden states, then those of its output.
    Affine([Option<[Tensor; 4]>; 2]),
    /// The same, of how far normalized hidden states go towards a part's normalized output.
    Rates([Option<Tensor>; 2]),
}

impl Residuals {
    /// Loads those of layer `index`, which has these parts: a mixer, a feed-forward part.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
        parts: [bool; 2],
    ) -> Loaded<Option<Self>> {
        let fixed = |from_norms, all: &Option<Vec<ResidualScales>>| {
            all.as_ref().map(|all| Self { from_norms, factors: Factors::Fixed(all[index]) })
        };
        let of_norms = fixed(true, &spec.residuals_from_norms);
        let Some(learned) = spec.learned_sums else {
            return Ok(of_norms.or_else(|| fixed(false, &spec.residuals_scaled)));
        };
        let hidden = spec.mlp.hidden_size;
        let vectors = |names: [&str; 2]| {
            let load = |part: usize| {
                let load = || weights.dense(names[part], &[hidden], DType::F32);
                parts[part].then(load).transpose()
            };
            Ok::<_, crate::weights::WeightError>([load(0)?, load(1)?])
        };
        Ok(Some(match learned {
            LearnedSums::Factors(names) => {
                Self { from_norms: false, factors: Factors::Learned(vectors(names)?) }
            }
            LearnedSums::Affine(names) => {
                let load =
                    |part: usize| parts[part].then(|| affine(&weights.scope(names[part]), hidden));
                let both = [load(0).transpose()?, load(1).transpose()?];
                Self { from_norms: false, factors: Factors::Affine(both) }
            }
            LearnedSums::Rates(names, factor) => {
                let rate = |vector: Option<Tensor>| {
                    vector.map(|own| (own * f64::from(factor))?.abs()).transpose()
                };
                let [mixer, mlp] = vectors(names)?;
                let rates = [rate(mixer)?, rate(mlp)?];
                Self { from_norms: true, factors: Factors::Rates(rates) }
            }
        }))
    }

    /// What the output of a part is added to, of hidden states `x [num_tokens, hidden]`, and the factor of
    /// the output, which is `scale` unless it is said otherwise.
    pub(super) fn of(&self, part: Part, x: &Tensor, scale: f32) -> Result<(Tensor, f32)> {
        match &self.factors {
            Factors::Fixed(scales) => {
                let [own, of_output] = match part {
                    Part::Mixer => scales.mixer,
                    Part::Mlp => scales.mlp,
                };
                let plain = own.to_bits() == 1.0f32.to_bits();
                let x = if plain { x.clone() } else { (x * f64::from(own))? };
                Ok((x, of_output))
            }
            Factors::Learned(vectors) => match &vectors[part as usize] {
                Some(factors) => Ok((x.broadcast_mul(factors)?, scale)),
                None => Ok((x.clone(), scale)),
            },
            Factors::Rates(_) | Factors::Affine(_) => Ok((x.clone(), scale)),
        }
    }

    /// The sum of hidden states `x [num_tokens, hidden]` and what a part gives of them, if vectors are added to both and
    /// multiply them.
    pub(super) fn affine_sum(
        &self,
        part: Part,
        x: &Tensor,
        output: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Option<Tensor>> {
        let Factors::Affine(parts) = &self.factors else { return Ok(None) };
        let Some([added, factors, of_output, output_factors]) = &parts[part as usize] else {
            return Ok(None);
        };
        let x = x.broadcast_add(added)?.broadcast_mul(factors)?;
        let output = output()?.broadcast_add(of_output)?.broadcast_mul(output_factors)?;
        (x + output).map(Some)
    }

    /// `[hidden]`: how far hidden states go towards a part's output, if that is learned.
    pub(super) fn rates(&self, part: Part) -> Option<&Tensor> {
        match &self.factors {
            Factors::Rates(rates) => rates[part as usize].as_ref(),
            Factors::Fixed(_) | Factors::Learned(_) | Factors::Affine(_) => None,
        }
    }
}

/// Loads what is added to and multiplies hidden states, and the same of a part's output.
fn affine(weights: &Weights, hidden: usize) -> Loaded<[Tensor; 4]> {
    let load = |name| weights.dense(name, &[hidden], DType::F32);
    Ok([
        load("residual_bias")?,
        load("residual_scale")?,
        load("hidden_states_bias")?,
        load("hidden_states_scale")?,
    ])
}
