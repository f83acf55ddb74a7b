//! Packed quantized matrices in the memory of NVIDIA GPUs: as they are on the host, with kernels that
//! read the same cells.

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Result, Tensor, bail};
use sconce_blocks::{Coded, Kind};

use super::formats::SUB_BLOCK;
use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, narrow, output_buffer, output_type, source,
};

static SOURCE: Source = source!("packed/kernel");

/// Rows that a block of threads widens.
const RUN: usize = 16;
/// Inputs that a block of threads widens.
const WIDE: usize = 8 * SUB_BLOCK;
/// Bytes of what is known of 32 quantized inputs together.
const HEAD: usize = 8;

kernel_struct! {
    struct QuantizeRows {
        x: Address,
        factors: Address,
        out: Address,
        inputs: u32,
        per_row: u32,
    }
}

kernel_struct! {
    struct Widen {
        matrix: Address,
        ids: Address,
        out: Address,
        out_type: u32,
        rows: u32,
        inputs: u32,
    }
}

/// A quantized matrix `[rows, columns]` on a device that has kernels for its kind.
#[derive(Clone, Debug)]
pub struct PackedOnDevice {
    /// The panels, as they are in host memory.
    bytes: Tensor,
    kind: Kind,
    rows: usize,
    columns: usize,
}

/// How kernels for a kind are named; `None` if there are none.
fn name_of(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Ggml(kind) => match kind {
            GgmlDType::Q8_0 => Some("q8_0"),
            GgmlDType::Q4_0 => Some("q4_0"),
            GgmlDType::Q4_1 => Some("q4_1"),
            GgmlDType::Q5_0 => Some("q5_0"),
            GgmlDType::Q5_1 => Some("q5_1"),
            GgmlDType::Q4K => Some("q4_k"),
            GgmlDType::Q5K => Some("q5_k"),
            GgmlDType::Q6K => Some("q6_k"),
            _ => None,
        },
        // The same bytes; these kernels have a scale for 32 inputs of a token.
        Kind::W8A8 => Some("q8_0"),
        Kind::Coded(kind) => match kind {
            Coded::Iq4Nl => Some("iq4_nl"),
            Coded::Iq4Xs => Some("iq4_xs"),
            Coded::Nvfp4 => Some("nvfp4"),
            Coded::Mxfp4 => Some("mxfp4"),
            Coded::Tq1_0 | Coded::Tq2_0 => Some("ternary"),
            _ => None,
        },
    }
}

impl PackedOnDevice {
    /// Whether there are kernels for quantized matrices of this kind.
    pub fn has_kernels(kind: Kind) -> bool {
        name_of(kind).is_some()
    }

    /// Moves the panels `bytes` of a matrix `[rows, columns]` to `device`.
    ///
    /// # Errors
    ///
    /// A kind without kernels; no memory.
    pub(super) fn new(
        kind: Kind,
        (rows, columns): (usize, usize),
        bytes: &[u8],
        device: &Device,
    ) -> Result<Self> {
        if !Self::has_kernels(kind) {
            bail!("there are no kernels for matrices of {kind:?}");
        }
        let bytes = Tensor::from_slice(bytes, bytes.len(), device)?;
        Ok(Self { bytes, kind, rows, columns })
    }

    /// Rows and columns.
    pub fn dims(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Where the matrix is.
    pub fn device(&self) -> &Device {
        self.bytes.device()
    }

    /// The name of the kind in names of kernels.
    pub(crate) fn name(&self) -> &'static str {
        name_of(self.kind).expect("there are kernels")
    }

    /// The memory that [`address`](Self::address) is of.
    pub(crate) fn memory(&self) -> &Tensor {
        &self.bytes
    }

    pub(crate) fn address(&self) -> Result<Address> {
        Address::of(&self.bytes, DType::U8)
    }

    /// The rows `ids [n]` (u32) as numbers: `[n, columns]` in f32.
    pub fn embed(&self, ids: &Tensor) -> Result<Tensor> {
        let count = ids.dims1()?;
        self.numbers(Some(ids), (count, self.columns), DType::F32)
    }

    /// All numbers, `[rows, columns]`, rounded to a type.
    pub fn widen(&self, dtype: DType) -> Result<Tensor> {
        self.numbers(None, (self.rows, self.columns), dtype)
    }

    fn numbers(
        &self,
        ids: Option<&Tensor>,
        (count, columns): (usize, usize),
        dtype: DType,
    ) -> Result<Tensor> {
        let device = self.device();
        let out = output_buffer((count, columns), dtype, device)?;
        let ids = ids.map(Tensor::contiguous).transpose()?;
        let arguments = Widen {
            matrix: self.address()?,
            ids: Address::of_some(ids.as_ref(), DType::U32)?,
            out: Address::to_write(&out, dtype)?,
            out_type: output_type(dtype)?,
            rows: narrow(self.rows)?,
            inputs: narrow(columns)?,
        };
        let blocks = if ids.is_some() { count } else { count.div_ceil(RUN) };
        let kernel = format!("widen_{}", self.name());
        let grid = [blocks, columns.div_ceil(WIDE), 1];
        let launch = Launch { source: &SOURCE, kernel: &kernel, grid, threads: 256, shared: 0 };
        // SAFETY: the matrix has so many rows, to which the kernel bounds ids, and the output a row for
        // each id.
        unsafe { launch.run(device, arguments)? };
        Ok(out)
    }
}

/// Tokens `x [n, inputs]` (f32) in the form that packed matrices are multiplied with. With factors
/// `[n * per_row]` there are as many rows, `per_row` of each token, else one of each.
pub(crate) fn quantize_rows(x: &Tensor, factors: Option<(&Tensor, usize)>) -> Result<Tensor> {
    let (tokens, inputs) = x.dims2()?;
    let per_row = factors.map_or(1, |(_, per_row)| per_row);
    let rows = tokens * per_row;
    if !inputs.is_multiple_of(SUB_BLOCK) {
        bail!("{inputs} inputs are no multiple of {SUB_BLOCK}");
    }
    let factors = factors.map(|(factors, _)| factors.contiguous()).transpose()?;
    if factors.as_ref().is_some_and(|factors| factors.elem_count() != rows) {
        bail!("{:?} factors of {rows} rows", factors.map(|factors| factors.dims().to_vec()));
    }
    let heads = (inputs / SUB_BLOCK).next_multiple_of(2);
    let out = output_buffer((rows, inputs + HEAD * heads), DType::U8, x.device())?;
    let x = x.contiguous()?;
    let arguments = QuantizeRows {
        x: Address::of(&x, DType::F32)?,
        factors: Address::of_some(factors.as_ref(), DType::F32)?,
        out: Address::to_write(&out, DType::U8)?,
        inputs: narrow(inputs)?,
        per_row: narrow(per_row)?,
    };
    let launch = Launch {
        source: &SOURCE,
        kernel: "quantize_rows",
        grid: [rows, 1, 1],
        threads: 256,
        shared: 0,
    };
    // SAFETY: shapes were checked, and the output has room for all values and heads.
    unsafe { launch.run(x.device(), arguments)? };
    Ok(out)
}
