//! A product of a tower's layer, whose inputs and outputs may be kept within bounds.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use crate::layers::linear::Linear;
use crate::weights::{Loaded, Weights};

/// A loaded product.
#[derive(Debug)]
pub(super) struct Product {
    linear: Linear,
    /// The smallest and the largest input, and those of outputs.
    bounds: Option<[[f32; 2]; 2]>,
}

/// The shape of a product.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) bias: bool,
}

impl Product {
    /// Loads the `rows` of a product, all of them by default, with its bounds if it is `bounded`.
    pub(super) fn load(
        weights: &Weights,
        Shape { inputs, outputs, bias }: Shape,
        rows: Option<&[Range<usize>]>,
        bounded: bool,
    ) -> Loaded<Self> {
        let own = if bounded { weights.scope("linear") } else { weights.clone() };
        let linear = match rows {
            Some(rows) => Linear::load_rows(&own, inputs, outputs, bias, rows)?,
            None => Linear::load(&own, inputs, outputs, bias)?,
        };
        let bound =
            |name| -> Loaded<f32> { Ok(weights.dense(name, &[], DType::F32)?.to_scalar::<f32>()?) };
        // Products without bounds have none in the checkpoint.
        let bounds = if bounded && weights.contains("input_min") {
            Some([
                [bound("input_min")?, bound("input_max")?],
                [bound("output_min")?, bound("output_max")?],
            ])
        } else {
            None
        };
        Ok(Self { linear, bounds })
    }

    /// The product, if it has no bounds.
    pub(super) fn unbounded(&self) -> Option<&Linear> {
        self.bounds.is_none().then_some(&self.linear)
    }

    /// `x [.., inputs]` to `[.., outputs]`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some([[low, high], [least, most]]) = self.bounds else { return self.linear.forward(x) };
        self.linear.forward(&x.clamp(low, high)?)?.clamp(least, most)
    }
}
