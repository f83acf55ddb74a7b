//! The rotary embedding as `config.json` writes it, in the spelling of any version.

use serde::Deserialize;

use super::super::ModelError;
use super::{HfConfig, bad};
use crate::layers::rope::{QueryGrowth, RopeScaling, RopeSpec};

/// Rotary embedding as written in `rope_scaling` or `rope_parameters`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RopeParameters {
    /// Kind of stretching.
    pub rope_type: Option<String>,
    /// Kind of stretching, as older files spell it.
    #[serde(rename = "type")]
    pub old_type: Option<String>,
    /// Base.
    pub rope_theta: Option<f64>,
    /// Share of a head that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// Divisor of frequencies.
    pub factor: Option<f64>,
    /// Of `llama3`.
    pub low_freq_factor: Option<f64>,
    /// Of `llama3`.
    pub high_freq_factor: Option<f64>,
    /// Of `llama3`, `yarn` and `longrope`: context of the pretraining.
    pub original_max_position_embeddings: Option<usize>,
    /// Of `yarn` and `longrope`: factor of cosines and sines.
    pub attention_factor: Option<f64>,
    /// Of `yarn`: rotations in the pretraining's context from which on a frequency is kept.
    pub beta_fast: Option<f64>,
    /// Of `yarn`: rotations up to which a frequency is divided.
    pub beta_slow: Option<f64>,
    /// Of `yarn`: whether the bounds are rounded to whole dimensions.
    pub truncate: Option<bool>,
    /// Of `yarn`, in the formula of `attention_factor`.
    pub mscale: Option<f64>,
    /// Of `yarn`, in the formula of `attention_factor`.
    pub mscale_all_dim: Option<f64>,
    /// Of `longrope`: a divisor for each frequency in contexts as long as the pretraining's.
    pub short_factor: Option<Vec<f64>>,
    /// Of `longrope`: a divisor for each frequency in longer contexts.
    pub long_factor: Option<Vec<f64>>,
    /// Growth of queries' scale with their position, beyond the context of the pretraining.
    pub llama_4_scaling_beta: Option<f64>,
    /// Of `dynamic`: a factor of the base, whatever the context.
    pub alpha: Option<f64>,
    /// Of `factors`: a divisor for each frequency.
    pub factors: Option<Vec<f64>>,
    /// Of layers that see everything, where layers differ.
    pub full_attention: Option<Box<Self>>,
    /// Of layers with a window, where layers differ.
    pub sliding_attention: Option<Box<Self>>,
}

/// What an architecture takes where the file says nothing.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct RopeDefaults {
    pub(in crate::models) theta: f64,
    /// Share of a head that is rotated.
    pub(in crate::models) share: f64,
    /// Whether the file may say another share.
    pub(in crate::models) partial: bool,
}

impl HfConfig {
    /// The rotary embedding of all layers.
    pub(in crate::models) fn rope(
        &self,
        head_dim: usize,
        defaults: RopeDefaults,
    ) -> Result<RopeSpec, ModelError> {
        let parameters = self.any_rope();
        let theta = parameters.and_then(|p| p.rope_theta).or(self.rope_theta);
        self.rope_spec(parameters, theta.unwrap_or(defaults.theta), defaults, head_dim)
    }

    /// The rotary embeddings of Gemma 4's layers, whose heads have these sizes: of layers that see
    /// everything, where a share of the frequencies of the whole head is used and the others turn
    /// nothing, and of layers with a window.
    pub(in crate::models) fn gemma4_ropes(
        &self,
        [global_dim, head_dim]: [usize; 2],
    ) -> Result<[RopeSpec; 2], ModelError> {
        let whole = |theta| RopeDefaults { theta, share: 1.0, partial: true };
        let full = self.any_rope().and_then(|p| p.full_attention.as_deref());
        let sliding = self.any_rope().and_then(|p| p.sliding_attention.as_deref());
        let theta = |given: Option<&RopeParameters>, default| {
            given.and_then(|p| p.rope_theta).unwrap_or(default)
        };
        let proportional = full.is_none_or(|p| p.kind() == "proportional");
        let mut of_all = if proportional {
            let whole = whole(theta(full, 1_000_000.0));
            self.rope_spec(None, whole.theta, whole, global_dim)?
        } else {
            self.rope_spec(full, theta(full, 1_000_000.0), whole(1.0), global_dim)?
        };
        if proportional {
            let share = full.map_or(Some(0.25), |p| p.partial_rotary_factor).unwrap_or(1.0);
            let factor = full.and_then(|p| p.factor).unwrap_or(1.0);
            let factor = positive("factor", Some(factor))?;
            let pairs = global_dim / 2;
            #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
            let turning = |pair: usize| ((pair + 1) as f64) <= share * pairs as f64;
            let divisor = |pair| if turning(pair) { factor } else { f32::INFINITY };
            of_all.scaling = RopeScaling::Factors((0..pairs).map(divisor).collect());
        }
        let near = theta(sliding, 10_000.0);
        Ok([of_all, self.rope_spec(sliding, near, whole(near), head_dim)?])
    }

    /// Whether layers that see everything and layers with a window have their own parameters.
    pub(in crate::models) fn has_rope_by_layer_type(&self) -> bool {
        self.any_rope().is_some_and(|p| p.full_attention.is_some() || p.sliding_attention.is_some())
    }

    /// The rotary embeddings of layers that see everything and of layers with a window. Parameters
    /// that are not for one kind belong to the first kind; layers with a window then have
    /// `sliding_theta` and no stretching.
    pub(in crate::models) fn ropes_by_layer_type(
        &self,
        head_dim: usize,
        defaults: RopeDefaults,
        sliding_theta: f64,
    ) -> Result<[RopeSpec; 2], ModelError> {
        let (full, sliding) = match self.any_rope().filter(|_| self.has_rope_by_layer_type()) {
            Some(all) => (all.full_attention.as_deref(), all.sliding_attention.as_deref()),
            None => (self.any_rope(), None),
        };
        let theta = full.and_then(|p| p.rope_theta).or(self.rope_theta).unwrap_or(defaults.theta);
        let sliding_theta = sliding.and_then(|p| p.rope_theta).unwrap_or(sliding_theta);
        Ok([
            self.rope_spec(full, theta, defaults, head_dim)?,
            self.rope_spec(sliding, sliding_theta, defaults, head_dim)?,
        ])
    }

    /// The factor of scores that `yarn` has where the file says `mscale_all_dim`.
    pub(in crate::models) fn attention_stretch(&self) -> f32 {
        let Some(parameters) = self.any_rope() else { return 1.0 };
        let all = parameters.mscale_all_dim.filter(|_| parameters.kind() != "default");
        match (all, parameters.factor) {
            (Some(all), Some(factor)) if factor > 1.0 && all != 0.0 => {
                #[expect(clippy::cast_possible_truncation, reason = "a factor near one")]
                let magnitude = (0.1 * all * factor.ln() + 1.0) as f32;
                magnitude * magnitude
            }
            _ => 1.0,
        }
    }

    fn any_rope(&self) -> Option<&RopeParameters> {
        self.rope_scaling.as_ref().or(self.rope_parameters.as_ref())
    }

    fn rope_spec(
        &self,
        parameters: Option<&RopeParameters>,
        theta: f64,
        defaults: RopeDefaults,
        head_dim: usize,
    ) -> Result<RopeSpec, ModelError> {
        let share = parameters.and_then(|p| p.partial_rotary_factor);
        let share = share.or(self.partial_rotary_factor).unwrap_or(defaults.share);
        if !defaults.partial && (share - defaults.share).abs() > 0.0 {
            let bound = format!("must be {} for this architecture", defaults.share);
            return Err(bad("partial_rotary_factor", share, bound));
        }
        if !head_dim.is_multiple_of(2) {
            return Err(bad("head_dim", head_dim, "must be even for a rotary embedding"));
        }
        if !(theta.is_finite() && theta > 0.0) {
            return Err(bad("rope_theta", theta, "must be a positive number"));
        }
        #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
        let rotated = head_dim as f64 * share;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let rotary_dim = rotated as usize;
        if !(share > 0.0 && share <= 1.0) || rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            let bound = format!("must leave an even number of the {head_dim} elements of a head");
            return Err(bad("partial_rotary_factor", share, bound));
        }
        let theta = parameters.map_or(theta, |p| p.stretched_base(theta, rotary_dim));
        let query_growth = parameters.map(|p| p.query_growth(self)).transpose()?.flatten();
        let (scaling, magnitude) = match parameters {
            Some(parameters) => parameters.scaling(self, rotary_dim)?,
            None => (RopeScaling::None, 1.0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Ok(RopeSpec { theta: theta as f32, rotary_dim, scaling, magnitude, query_growth })
    }
}

impl RopeParameters {
    /// The stretching, and the factor of cosines and sines.
    fn scaling(
        &self,
        config: &HfConfig,
        rotary_dim: usize,
    ) -> Result<(RopeScaling, f32), ModelError> {
        let frequencies = rotary_dim / 2;
        match self.kind() {
            // A base that grows with a sequence is as it was up to `max_position_embeddings`, and
            // no sequence is longer here.
            "default" | "dynamic" => Ok((RopeScaling::None, 1.0)),
            "linear" => Ok((RopeScaling::Linear { factor: positive("factor", self.factor)? }, 1.0)),
            "llama3" => Ok((self.llama3(config.max_position_embeddings)?, 1.0)),
            "factors" => {
                let factors = divisors("factors", self.factors.as_ref(), frequencies)?;
                Ok((RopeScaling::Factors(factors), 1.0))
            }
            "yarn" => self.yarn(config),
            "longrope" | "su" => self.longrope(config, frequencies),
            other => Err(ModelError::Unsupported {
                what: format!("rope type `{other}`"),
                supported: "supported are default, linear, dynamic, llama3, yarn and longrope"
                    .to_owned(),
            }),
        }
    }

    /// The base: with an `alpha`, `dynamic` means a larger one whatever the context.
    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
    fn stretched_base(&self, theta: f64, rotary_dim: usize) -> f64 {
        match (self.kind(), self.alpha) {
            ("dynamic", Some(alpha)) if alpha > 0.0 && rotary_dim > 2 => {
                let dim = rotary_dim as f64;
                theta * alpha.powf(dim / (dim - 2.0))
            }
            _ => theta,
        }
    }

    fn kind(&self) -> &str {
        self.rope_type.as_deref().or(self.old_type.as_deref()).unwrap_or("default")
    }

    /// Growth of queries, if there is any.
    fn query_growth(&self, config: &HfConfig) -> Result<Option<QueryGrowth>, ModelError> {
        let Some(beta) = self.llama_4_scaling_beta.filter(|beta| *beta != 0.0) else {
            return Ok(None);
        };
        let beta = positive("llama_4_scaling_beta", Some(beta))?;
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        let every = self.original_context(config)? as f32;
        Ok(Some(QueryGrowth { beta, every, first: 0.0 }))
    }

    fn original_context(&self, config: &HfConfig) -> Result<f64, ModelError> {
        let field = "original_max_position_embeddings";
        let original = self.original_max_position_embeddings;
        let original = original.or(config.field(field)?).or(config.max_position_embeddings);
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        positive(field, original.map(|original| original as f64)).map(f64::from)
    }

    /// `factor`, or by how much the context is longer than the pretraining's.
    fn stretch(&self, config: &HfConfig, original: f64) -> Result<f64, ModelError> {
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        let ratio = config.max_position_embeddings.map(|context| context as f64 / original);
        positive("factor", self.factor.or(ratio))?;
        Ok(self.factor.or(ratio).unwrap_or(1.0))
    }

    /// Peng et al., "YaRN", 2023.
    fn yarn(&self, config: &HfConfig) -> Result<(RopeScaling, f32), ModelError> {
        let original = self.original_context(config)?;
        let factor = self.stretch(config, original)?;
        let magnitude = |scale: f64| match factor {
            factor if factor <= 1.0 => 1.0,
            factor => 0.1 * scale * factor.ln() + 1.0,
        };
        let attention_factor = match (self.attention_factor, self.mscale, self.mscale_all_dim) {
            (Some(given), ..) => given,
            (None, Some(one), Some(all)) if one != 0.0 && all != 0.0 => {
                magnitude(one) / magnitude(all)
            }
            _ => magnitude(1.0),
        };
        let nonzero = |beta: Option<f64>, default| beta.filter(|b| *b != 0.0).unwrap_or(default);
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        let scaling = RopeScaling::Yarn {
            factor: factor as f32,
            original_context: original,
            beta_fast: nonzero(self.beta_fast, 32.0),
            beta_slow: nonzero(self.beta_slow, 1.0),
            truncate: self.truncate.unwrap_or(true),
        };
        Ok((scaling, positive("attention_factor", Some(attention_factor))?))
    }

    /// Ding et al., "LongRoPE", 2024. Each sequence has the short factors up to the pretraining's
    /// context, and the long ones from its first token on once it is longer.
    fn longrope(
        &self,
        config: &HfConfig,
        frequencies: usize,
    ) -> Result<(RopeScaling, f32), ModelError> {
        let original = self.original_context(config)?;
        let factor = self.stretch(config, original)?;
        let attention_factor = self.attention_factor.unwrap_or_else(|| {
            if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() }
        });
        let long = divisors("long_factor", self.long_factor.as_ref(), frequencies)?;
        let short = divisors("short_factor", self.short_factor.as_ref(), frequencies)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a context")]
        let longest_short = original as usize;
        let all_short = config.max_position_embeddings.is_some_and(|most| most <= longest_short);
        let scaling = if all_short || short == long {
            RopeScaling::Factors(short)
        } else {
            RopeScaling::FactorsByLength { longest_short, short, long }
        };
        Ok((scaling, positive("attention_factor", Some(attention_factor))?))
    }

    fn llama3(&self, max_positions: Option<usize>) -> Result<RopeScaling, ModelError> {
        let original = self.original_max_position_embeddings.or(max_positions);
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        let original = original.map(|original| original as f64);
        let low_freq_factor = positive("low_freq_factor", self.low_freq_factor)?;
        let high_freq_factor = positive("high_freq_factor", self.high_freq_factor)?;
        if high_freq_factor <= low_freq_factor {
            let bound = format!("must be more than `low_freq_factor` = {low_freq_factor}");
            return Err(bad("high_freq_factor", high_freq_factor, bound));
        }
        Ok(RopeScaling::Llama3 {
            factor: positive("factor", self.factor)?,
            low_freq_factor,
            high_freq_factor,
            original_context: positive("original_max_position_embeddings", original)?,
        })
    }
}

fn divisors(
    field: &'static str,
    given: Option<&Vec<f64>>,
    frequencies: usize,
) -> Result<Vec<f32>, ModelError> {
    let factors = given.map(Vec::as_slice).unwrap_or_default();
    if factors.len() != frequencies {
        let bound = format!("must have one for each of {frequencies} frequencies");
        return Err(bad(field, factors.len(), bound));
    }
    factors.iter().map(|factor| positive(field, Some(*factor))).collect()
}

/// A rope parameter that must be there and be positive.
fn positive(field: &'static str, value: Option<f64>) -> Result<f32, ModelError> {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Some(value) if value.is_finite() && value > 0.0 => Ok(value as f32),
        Some(value) => Err(bad(field, value, "must be a positive number")),
        None => Err(bad(field, "absent", "must be a positive number for this rope type")),
    }
}
