//! The rotary embeddings that a `config.json` describes.

use serde_json::Value;

use super::hf_config::HfConfig;
use super::rope_parameters::RopeParameters;
use crate::layers::rope::{Axis, QueryScale, RopeScaling, RopeSpec};
use crate::models::error::{ModelError, Result, bad};

/// An architecture's defaults of a rotary embedding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RopeDefaults {
    /// Base of the geometric series of wavelengths.
    pub(crate) theta: f64,
    /// Share of a head that is rotated.
    pub(crate) share: f64,
    /// Whether the file may set another share.
    pub(crate) partial: bool,
}

impl HfConfig {
    /// The rotary embedding that all layers share.
    pub(crate) fn rope(&self, head_dim: usize, defaults: RopeDefaults) -> Result<RopeSpec> {
        let parameters = self.any_rope();
        let theta = parameters.and_then(|p| p.rope_theta).or(self.rope_theta);
        self.rope_spec(parameters, theta.unwrap_or(defaults.theta), defaults, head_dim)
    }

    /// The rotary embedding of layers with a `theta` of their own.
    pub(crate) fn rope_with_base(
        &self,
        head_dim: usize,
        defaults: RopeDefaults,
        theta: f64,
    ) -> Result<RopeSpec> {
        self.rope_spec(self.any_rope(), theta, defaults, head_dim)
    }

    /// The rotary embeddings of layers with full attention and of layers with a sliding window,
    /// whose heads have these sizes. The first kind is `proportional` by default: it keeps a share
    /// of the whole head's frequencies, by default this one, and rotates nothing by the others.
    pub(crate) fn proportional_ropes(
        &self,
        [global_dim, head_dim]: [usize; 2],
        default: f64,
    ) -> Result<[RopeSpec; 2]> {
        let whole = |theta| RopeDefaults { theta, share: 1.0, partial: true };
        let full = self.any_rope().and_then(|p| p.full_attention.as_deref());
        let sliding = self.any_rope().and_then(|p| p.sliding_attention.as_deref());
        let theta = |given: Option<&RopeParameters>, default| {
            given.and_then(|p| p.rope_theta).unwrap_or(default)
        };
        let proportional = full.is_none_or(|p| p.kind() == "proportional");
        let base = theta(full, 1_000_000.0);
        let parameters = full.filter(|_| !proportional);
        let mut global = self.rope_spec(parameters, base, whole(base), global_dim)?;
        if proportional {
            let share = full.map_or(Some(default), |p| p.partial_rotary_factor).unwrap_or(1.0);
            let factor = full.and_then(|p| p.factor).unwrap_or(1.0);
            let factor = positive("factor", Some(factor))?;
            let pairs = global_dim / 2;
            #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
            let rotated = |pair: usize| ((pair + 1) as f64) <= share * pairs as f64;
            let divisor = |pair| if rotated(pair) { factor } else { f32::INFINITY };
            global.scaling = RopeScaling::Factors((0..pairs).map(divisor).collect());
        }
        let local = theta(sliding, 10_000.0);
        Ok([global, self.rope_spec(sliding, local, whole(local), head_dim)?])
    }

    /// Whether layers with full attention and layers with a window have parameters of their own.
    pub(crate) fn has_rope_by_layer_type(&self) -> bool {
        self.any_rope().is_some_and(|p| p.full_attention.is_some() || p.sliding_attention.is_some())
    }

    /// The rotary embeddings of layers with full attention and of layers with a sliding window.
    /// Parameters that name neither kind belong to the first; layers with a window then have
    /// `sliding_theta` and no scaling.
    pub(crate) fn ropes_by_layer_type(
        &self,
        head_dim: usize,
        defaults: RopeDefaults,
        sliding_theta: f64,
    ) -> Result<[RopeSpec; 2]> {
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

    /// The factor of the attention scale that `yarn` derives from `mscale_all_dim`.
    pub(crate) fn yarn_attention_scale(&self) -> f32 {
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
    ) -> Result<RopeSpec> {
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
        let theta = parameters.map_or(theta, |p| p.ntk_base(theta, rotary_dim));
        let query_scale = parameters.map(|p| p.query_scale(self)).transpose()?.flatten();
        let (scaling, magnitude) = match parameters {
            Some(parameters) => parameters.scaling(self, rotary_dim)?,
            None => (RopeScaling::None, 1.0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Ok(RopeSpec {
            theta: theta as f32,
            rotary_dim,
            scaling,
            magnitude,
            query_scale,
            axes: Vec::new(),
        })
    }

    /// By which of a token's three positions each pair of `rotary_dim` elements is rotated, by
    /// `mrope_section`, else by the `default` numbers of pairs. Interleaved pairs begin with time and
    /// take turns as long as there are rows and columns left.
    pub(crate) fn rope_axes(
        &self,
        rotary_dim: usize,
        default: [usize; 3],
        interleaved: bool,
    ) -> Result<Vec<Axis>> {
        const FIELD: &str = "mrope_section";
        let pairs = rotary_dim / 2;
        let parameters = self.any_rope();
        let interleaved = parameters.and_then(|p| p.mrope_interleaved).unwrap_or(interleaved);
        let given = parameters.and_then(|p| p.mrope_section.as_ref());
        if let Some(sections) = given {
            let sum = sections.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
            // Interleaved ones may be of a larger model: what is beyond the last pair is left out.
            if sections.len() != 3 || (sum != pairs && !interleaved) {
                let bound =
                    format!("must be three numbers, in sum the {pairs} pairs that are rotated");
                return Err(bad(FIELD, format!("{sections:?}"), bound));
            }
        }
        let sections = given.map_or(&default[..], Vec::as_slice);
        let [time, rows, columns] = [0, 1, 2].map(|axis| sections[axis]);
        let axis = |pair: usize| match (interleaved, pair % 3) {
            (true, 1) if pair < 3 * rows => Axis::Row,
            (true, 2) if pair < 3 * columns => Axis::Column,
            (true, _) => Axis::Time,
            (false, _) if pair < time => Axis::Time,
            (false, _) if pair < time + rows => Axis::Row,
            (false, _) => Axis::Column,
        };
        Ok((0..pairs).map(axis).collect())
    }
}

impl RopeParameters {
    /// The scaling of frequencies, and the factor of cosines and sines.
    fn scaling(&self, config: &HfConfig, rotary_dim: usize) -> Result<(RopeScaling, f32)> {
        let frequencies = rotary_dim / 2;
        match self.kind() {
            // `dynamic` changes the base of sequences beyond `max_position_embeddings` only, and
            // the engine admits none.
            // `mrope` says in old files that there are sections.
            "default" | "dynamic" | "mrope" => Ok((RopeScaling::None, 1.0)),
            "linear" => Ok((RopeScaling::Linear { factor: positive("factor", self.factor)? }, 1.0)),
            "llama3" => Ok((self.llama3(config.max_position_embeddings)?, 1.0)),
            "factors" => {
                let factors = divisors("factors", self.factors.as_ref(), frequencies)?;
                Ok((RopeScaling::Factors(factors), 1.0))
            }
            "yarn" | "deepseek_yarn" => self.yarn(config),
            "longrope" | "su" => self.longrope(config, frequencies),
            other => Err(ModelError::Unsupported {
                what: format!("rope type `{other}`"),
                supported: "supported are default, linear, dynamic, llama3, yarn and longrope"
                    .to_owned(),
            }),
        }
    }

    /// The base, which `dynamic` with an `alpha` enlarges at every context length.
    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
    fn ntk_base(&self, theta: f64, rotary_dim: usize) -> f64 {
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

    /// The position-dependent scale of queries, if there is one.
    fn query_scale(&self, config: &HfConfig) -> Result<Option<QueryScale>> {
        let Some(beta) = self.llama_4_scaling_beta.filter(|beta| *beta != 0.0) else {
            return Ok(None);
        };
        let beta = positive("llama_4_scaling_beta", Some(beta))?;
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        let interval = self.original_context(config)? as f32;
        Ok(Some(QueryScale::Logarithm { beta, interval, offset: 0.0 }))
    }

    fn original_context(&self, config: &HfConfig) -> Result<f64> {
        let field = "original_max_position_embeddings";
        let original = self.original_max_position_embeddings;
        let original = original.or(config.field(field)?).or(config.max_position_embeddings);
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        positive(field, original.map(|original| original as f64)).map(f64::from)
    }

    /// `factor`, else the ratio of the context to the `original` one.
    fn extension(&self, config: &HfConfig, original: f64) -> Result<f64> {
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        let ratio = config.max_position_embeddings.map(|context| context as f64 / original);
        positive("factor", self.factor.or(ratio))?;
        Ok(self.factor.or(ratio).unwrap_or(1.0))
    }

    /// Peng et al., "YaRN", 2023.
    fn yarn(&self, config: &HfConfig) -> Result<(RopeScaling, f32)> {
        let original = self.original_context(config)?;
        let factor = self.extension(config, original)?;
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

    /// Ding et al., "LongRoPE", 2024. A sequence has the short factors up to the original context;
    /// once it is longer, all of its tokens have the long ones.
    fn longrope(&self, config: &HfConfig, frequencies: usize) -> Result<(RopeScaling, f32)> {
        let original = self.original_context(config)?;
        let factor = self.extension(config, original)?;
        let (given, long) = (self.short_mscale, self.long_mscale);
        if given != long {
            let [given, long] = [given, long].map(|scale| scale.map_or(Value::Null, Value::from));
            return Err(bad("long_mscale", long, format!("must be `short_mscale` = {given}")));
        }
        let attention_factor = self.attention_factor.or(given).unwrap_or_else(|| {
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

    fn llama3(&self, max_positions: Option<usize>) -> Result<RopeScaling> {
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

/// A list with one positive divisor for each frequency.
fn divisors(field: &'static str, given: Option<&Vec<f64>>, frequencies: usize) -> Result<Vec<f32>> {
    let factors = given.map(Vec::as_slice).unwrap_or_default();
    if factors.len() != frequencies {
        let bound = format!("must have one for each of {frequencies} frequencies");
        return Err(bad(field, factors.len(), bound));
    }
    factors.iter().map(|factor| positive(field, Some(*factor))).collect()
}

/// A parameter that must be there and be positive.
fn positive(field: &'static str, value: Option<f64>) -> Result<f32> {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Some(value) if value.is_finite() && value > 0.0 => Ok(value as f32),
        Some(value) => Err(bad(field, value, "must be a positive number")),
        None => Err(bad(field, "absent", "must be a positive number for this rope type")),
    }
}
