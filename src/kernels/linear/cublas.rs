//! Products with half-precision weights whose results are f32, by cuBLAS.
//!
//! candle's product of bf16 gives bf16: hidden states would be rounded behind every layer, and
//! logits too.

use std::ffi::c_int;

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::CudaStorageSlice as Slice;
use candle_core::cuda_backend::cudarc::cublas::{result::gemm_ex, sys};
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaView, DevicePtr, DevicePtrMut};
use candle_core::{
    CpuStorage, CudaDevice, CudaStorage, CustomOp2, DType, Error, Layout, Result, Shape, Tensor,
    bail,
};

/// `x [.., K]` times the transpose of `weight [N, K]` (both bf16 or both f16): `[.., N]` in f32,
/// the type of the sums.
pub(super) fn half_product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.apply_op2_no_bwd(&weight.contiguous()?, &HalfProduct)
}

struct HalfProduct;

impl CustomOp2 for HalfProduct {
    fn name(&self) -> &'static str {
        "half_product"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        bail!("half_product is for GPUs; the CPU has kernels of its own")
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (outputs, inputs) = weight_layout.shape().dims2()?;
        let (rows, own) = match x_layout.dims() {
            [outer @ .., own] => (outer.iter().product::<usize>(), *own),
            [] => bail!("half_product: x has no dimensions"),
        };
        if own != inputs {
            bail!("half_product: x has {own} columns, the weight {inputs}");
        }
        let mut dims = x_layout.dims().to_vec();
        *dims.last_mut().expect("x has dimensions") = outputs;
        let device = x.device().clone();
        // SAFETY: all of it is written by the product, which has no other term.
        let mut sums = unsafe { device.alloc::<f32>(rows * outputs)? };
        let (x_start, weight_start) = (x_layout.start_offset(), weight_layout.start_offset());
        let sizes = [outputs, rows, inputs];
        match (&x.slice, &weight.slice) {
            _ if rows == 0 => {}
            (Slice::BF16(x), Slice::BF16(weight)) => {
                let operands = [x.slice(x_start..), weight.slice(weight_start..)];
                multiply(&device, operands, &mut sums, sizes, sys::cudaDataType_t::CUDA_R_16BF)?;
            }
            (Slice::F16(x), Slice::F16(weight)) => {
                let operands = [x.slice(x_start..), weight.slice(weight_start..)];
                multiply(&device, operands, &mut sums, sizes, sys::cudaDataType_t::CUDA_R_16F)?;
            }
            _ => {
                let kinds: [DType; 2] = [x.dtype(), weight.dtype()];
                bail!("half_product: {kinds:?}; both must be bf16 or both f16");
            }
        }
        let sums = CudaStorage::wrap_cuda_slice(sums, device);
        Ok((sums, Shape::from(dims)))
    }
}

/// Writes the products of rows `x [n, k]` and rows `weight [m, k]` to `to [n, m]`; sizes are m, n, k.
fn multiply<T>(
    device: &CudaDevice,
    [x, weight]: [CudaView<'_, T>; 2],
    to: &mut CudaSlice<f32>,
    sizes: [usize; 3],
    kind: sys::cudaDataType,
) -> Result<()> {
    let [Ok(m), Ok(n), Ok(k)] = sizes.map(c_int::try_from) else {
        bail!("half_product: {sizes:?} is too large");
    };
    let stream = device.cuda_stream();
    let ((x, _x), (weight, _weight)) = (x.device_ptr(&stream), weight.device_ptr(&stream));
    let (to, _to) = to.device_ptr_mut(&stream);
    let (one, zero) = (1f32, 0f32);
    // A row of ours is a column of cuBLAS: y^T = W x^T, where W is stored transposed.
    // SAFETY: the three buffers have m * k, k * n and m * n elements of these kinds.
    let done = unsafe {
        gemm_ex(
            *device.cublas_handle().handle(),
            sys::cublasOperation_t::CUBLAS_OP_T,
            sys::cublasOperation_t::CUBLAS_OP_N,
            m,
            n,
            k,
            (&raw const one).cast(),
            weight as *const _,
            kind,
            k,
            x as *const _,
            kind,
            k,
            (&raw const zero).cast(),
            to as *mut _,
            sys::cudaDataType_t::CUDA_R_32F,
            m,
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    };
    done.map_err(Error::wrap)
}
