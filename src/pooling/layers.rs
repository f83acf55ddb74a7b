//! The layers of a head, each from a vector to a vector. Sums are taken in f64.

/// One step from a hidden state to a vector.
#[derive(Clone, Debug, PartialEq)]
pub enum HeadLayer {
    /// A linear layer.
    Dense(Dense),
    /// A layer norm.
    LayerNorm(LayerNorm),
    /// Scale to length 1.
    Normalize,
}

/// A linear layer, `activation(W x + b)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Rows of the matrix, each as long as the input.
    pub weight: Vec<Vec<f32>>,
    /// The bias of each row, or empty.
    pub bias: Vec<f32>,
    /// Applied to each element.
    pub activation: DenseActivation,
}

/// The activation of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseActivation {
    /// No activation.
    Identity,
    /// Hyperbolic tangent.
    Tanh,
    /// Zero below zero.
    Relu,
    /// `x` times the normal distribution up to `x`.
    Gelu,
}

/// A layer norm, `(x - mean) / sqrt(variance + eps) * weight + bias`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// The factor of each element.
    pub weight: Vec<f32>,
    /// What is added to each element, or empty.
    pub bias: Vec<f32>,
    /// Added to the variance.
    pub eps: f64,
}

impl HeadLayer {
    pub(super) fn forward(&self, mut x: Vec<f32>) -> Vec<f32> {
        match self {
            Self::Dense(dense) => dense.forward(&x),
            Self::LayerNorm(norm) => norm.forward(&x),
            Self::Normalize => {
                normalize(&mut x);
                x
            }
        }
    }
}

impl Dense {
    pub(super) fn forward(&self, x: &[f32]) -> Vec<f32> {
        let outputs = self.weight.iter().enumerate().map(|(at, row)| {
            let sum = dot(row, x) + self.bias.get(at).copied().map_or(0.0, f64::from);
            narrow(match self.activation {
                DenseActivation::Identity => sum,
                DenseActivation::Tanh => sum.tanh(),
                DenseActivation::Relu => sum.max(0.0),
                DenseActivation::Gelu => {
                    0.5 * sum * (1.0 + libm::erf(sum * std::f64::consts::FRAC_1_SQRT_2))
                }
            })
        });
        outputs.collect()
    }
}

impl LayerNorm {
    #[expect(clippy::cast_precision_loss, reason = "vectors are shorter than 2^52")]
    fn forward(&self, x: &[f32]) -> Vec<f32> {
        let count = x.len().max(1) as f64;
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
        let squares = x.iter().map(|x| (f64::from(*x) - mean).powi(2));
        let factor = 1.0 / (squares.sum::<f64>() / count + self.eps).sqrt();
        let scaled = x.iter().zip(&self.weight).enumerate().map(|(at, (x, weight))| {
            let bias = self.bias.get(at).copied().map_or(0.0, f64::from);
            narrow((f64::from(*x) - mean) * factor * f64::from(*weight) + bias)
        });
        scaled.collect()
    }
}

/// The sum of products. A head is applied to every token where each has a vector, so it is taken in
/// parts that a processor adds beside each other.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const PARTS: usize = 8;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<PARTS>(), b.as_chunks::<PARTS>());
    let mut sums = [0.0; PARTS];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += f64::from(*a) * f64::from(*b);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Scales a vector to length 1; one of zeros stays as it is.
pub fn normalize(vector: &mut [f32]) {
    let squares = vector.iter().map(|x| f64::from(*x) * f64::from(*x));
    // As in torch, which divides by no less.
    let length = squares.sum::<f64>().sqrt().max(1e-12);
    for x in vector {
        *x = narrow(f64::from(*x) / length);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "vectors are f32")]
pub(super) fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_that_of_all_elements() {
        let (a, b): (Vec<f32>, Vec<f32>) =
            (1..20_u8).map(|x| (f32::from(x), 1.0 / f32::from(x))).unzip();
        for length in [0_u8, 1, 7, 8, 9, 16, 19] {
            let [a, b] = [&a, &b].map(|vector| &vector[..length.into()]);
            assert!((dot(a, b) - f64::from(length)).abs() < 1e-6, "{length}");
        }
    }

    #[test]
    fn a_layer_norm_and_a_gelu_are_those_of_torch() {
        let norm = LayerNorm { weight: vec![1.0, 2.0], bias: vec![0.0, 0.5], eps: 0.0 };
        assert_eq!(norm.forward(&[1.0, 3.0]), [-1.0, 2.5]);
        let gelu =
            Dense { weight: vec![vec![1.0]], bias: Vec::new(), activation: DenseActivation::Gelu };
        let y = gelu.forward(&[1.5])[0];
        assert!((y - 1.399_789_3).abs() < 1e-6, "{y}");
    }
}
