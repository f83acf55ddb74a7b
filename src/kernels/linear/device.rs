//! The product on a device that the packed kernels don't reach.

use candle_core::{Result, Tensor};

use super::super::portable;

/// `x [.., K]` in f32 times the transpose of `weight [N, K]`, plus `bias [N]`: `[.., N]` in f32.
///
/// On an NVIDIA GPU what meets bf16 or f16 weights is rounded to their type, as on the CPU;
/// elsewhere weights are widened.
pub fn linear_on_device(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    {
        use candle_core::DType;
        if weight.device().is_cuda() && matches!(weight.dtype(), DType::BF16 | DType::F16) {
            let y = super::super::cuda::linear(x, weight)?;
            return bias.map_or_else(|| Ok(y.clone()), |bias| y.broadcast_add(bias));
        }
    }
    portable::linear(x, weight, bias)
}
