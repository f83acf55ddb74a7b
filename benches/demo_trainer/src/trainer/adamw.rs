//! AdamW (Loshchilov and Hutter 2019) with gradients clipped by their common norm. Matrices decay, norms
//! and embeddings don't. Refuses to know what the parameters are for.

use super::ops::dot;

const BETAS: (f32, f32) = (0.9, 0.98);
const DECAY: f32 = 0.05;
const CLIP: f64 = 1.0;
const EPSILON: f32 = 1e-8;

/// The running means of every parameter.
#[derive(Debug)]
pub(crate) struct AdamW {
    pub(crate) step: i32,
    pub(crate) means: Vec<Vec<f32>>,
    pub(crate) squares: Vec<Vec<f32>>,
    decays: Vec<bool>,
}

impl AdamW {
    /// `decays` says for each parameter, of the given size, whether it decays.
    pub(crate) fn new(sizes: &[usize], decays: Vec<bool>) -> Self {
        let zeros = || sizes.iter().map(|&size| vec![0f32; size]).collect();
        Self { step: 0, means: zeros(), squares: zeros(), decays }
    }

    /// Moves `values` against `grads`; gives the norm of the gradient before clipping.
    pub(crate) fn update(&mut self, values: &mut [Vec<f32>], grads: &[Vec<f32>], rate: f32) -> f64 {
        let squares = grads.iter().map(|grad| f64::from(dot(grad, grad)));
        let norm = squares.sum::<f64>().sqrt();
        let clip = (CLIP / norm.max(CLIP)) as f32;
        self.step += 1;
        let (one, two) = BETAS;
        let correct = (1.0 - two.powi(self.step)).sqrt() / (1.0 - one.powi(self.step));
        let epsilon = EPSILON * (1.0 - two.powi(self.step)).sqrt();
        for index in 0..values.len() {
            let keep = if self.decays[index] { 1.0 - rate * DECAY } else { 1.0 };
            let means = self.means[index].iter_mut().zip(&mut self.squares[index]);
            for ((value, grad), (mean, square)) in
                values[index].iter_mut().zip(&grads[index]).zip(means)
            {
                let grad = grad * clip;
                *mean = one * *mean + (1.0 - one) * grad;
                *square = two * *square + (1.0 - two) * grad * grad;
                *value = *value * keep - rate * correct * *mean / (square.sqrt() + epsilon);
            }
        }
        norm
    }
}
