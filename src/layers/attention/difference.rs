//! The difference of two halves of heads, which takes away what both pay attention to.
//!
//! Ye et al., "Differential Transformer", 2024, section 2.1.

use candle_core::{DType, Result, Tensor};

use super::spec::{AttentionSpec, Difference};
use crate::layers::norm::{Norm, NormScale, NormSpec};
use crate::weights::{Loaded, Weights};

/// The learned part of a difference of heads.
#[derive(Clone, Debug)]
pub(super) struct Minus {
    /// Factor of the second half.
    factor: f64,
    /// Factor of normalized differences.
    scale: f64,
    norm: Norm,
}

impl Minus {
    /// Loads `lambda_q1`, `lambda_k1`, `lambda_q2` and `lambda_k2`, `[head_dim]` each: the factor is the
    /// exponential of the product of the first two, minus that of the others, plus its initial value.
    pub(super) fn load(
        weights: &Weights,
        spec: &AttentionSpec,
        Difference { initial, norm }: Difference,
    ) -> Loaded<Self> {
        let vector = |name: &str| weights.dense(name, &[spec.head_dim], DType::F32);
        let part = |query: &str, key: &str| {
            let product = (vector(query)? * vector(key)?)?.sum_all()?;
            Ok::<_, crate::weights::WeightError>(product.to_scalar::<f32>()?.exp())
        };
        let factor = part("lambda_q1", "lambda_k1")? - part("lambda_q2", "lambda_k2")? + initial;
        let norm = NormSpec { scale: NormScale::One, ..norm };
        Ok(Self {
            factor: f64::from(factor),
            scale: f64::from(1.0 - initial),
            norm: Norm::load(weights, spec.value_dim(), norm)?,
        })
    }

    /// What heads give, `[num_tokens, heads, value_dim]`, to `[num_tokens, heads / 2 * value_dim]`.
    pub(super) fn forward(&self, heads: &Tensor) -> Result<Tensor> {
        let (rows, count, _) = heads.dims3()?;
        let half = |first| heads.narrow(1, first, count / 2)?.contiguous();
        let difference = (half(0)? - (half(count / 2)? * self.factor)?)?;
        (self.norm.forward(&difference)? * self.scale)?.reshape((rows, ()))
    }
}
