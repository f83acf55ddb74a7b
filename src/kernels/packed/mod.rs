//! A weight matrix in our own memory, laid out for products.
//!
//! It answers for the bytes: aligned, on huge pages where the system has them, packed in parallel
//! from the file's bytes. Rows (output features) stand as columns in panels of 64, so that sixteen
//! of them lie along the lanes of a vector and a kernel reads memory in order:
//!
//! - f32, f16: `[N / 64][K][64]`
//! - bf16: `[N / 64][K / 2][64][2]`, K padded to even; in twelve bits each where its numbers allow it, see
//!   `twelve_bits`
//! - quantized: `[N / 64][K / block]` cells, see `formats`
//! - quantized in a kind without a packed form: rows as in the file, widened for each product
//!
//! It refuses to know what the matrix is multiplied with.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Result, Tensor, bail};
use sconce_blocks::Kind;

use self::buffer::Buffer;
use self::formats::{Format, PANEL, with_format};
use self::stored::Stored;
use self::twelve_bits::{Encode, ROW_BYTES, Row, TwelveBitPanel, TwelveBits};
use super::backend::{cpu_level, twelve_bits_for_bf16};
use super::cpu::Level;
use super::fresh::Parts;
use super::pool;

pub use self::cuda::PackedOnDevice;
pub(super) use self::cuda::quantize_rows;

pub(super) mod buffer;
mod cuda;
mod dense;
pub(super) mod formats;
mod stored;
#[cfg(test)]
mod tests;
pub(super) mod twelve_bits;
mod unpack;

/// A matrix `[rows, columns]` of which every row meets an activation row in a product.
pub struct PackedMatrix {
    buffer: Buffer,
    kind: Kind,
    rows: usize,
    columns: usize,
    panel_bytes: usize,
    /// Of bf16 in twelve bits each.
    twelve_bits: Option<TwelveBits>,
}

impl std::fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedMatrix[{}, {}; {:?}]", self.rows, self.columns, self.kind)
    }
}

impl PackedMatrix {
    /// Packs a matrix of `kind`, row after row in `bytes` as a file stores it, on all threads.
    /// With `target` its elements are rounded to that kind first, or to the nearest kind that
    /// rows of this length divide into (see [`PackedMatrix::kind`] for the outcome).
    ///
    /// # Errors
    ///
    /// A length of `bytes` that doesn't fit, rows that don't divide into blocks, no memory.
    pub fn pack(
        kind: impl Into<Kind>,
        rows: usize,
        columns: usize,
        bytes: &[u8],
        target: Option<GgmlDType>,
    ) -> Result<Self> {
        Self::pack_kind(kind.into(), rows, columns, bytes, target)
    }

    fn pack_kind(
        kind: Kind,
        rows: usize,
        columns: usize,
        bytes: &[u8],
        target: Option<GgmlDType>,
    ) -> Result<Self> {
        let row_bytes = stored::row_bytes(kind, columns)?;
        if bytes.len() != rows * row_bytes {
            let expected = rows * row_bytes;
            bail!(
                "a {rows} x {columns} matrix of {kind:?} is {expected} bytes, not {}",
                bytes.len()
            );
        }
        let packed_kind = Self::kind_of(kind, columns, target);
        // Bytes of one kind of the tensor library are the same, as those of W8A8 are Q8_0's.
        let rounded = target.filter(|_| packed_kind.ggml() != kind.ggml());
        let rounded = rounded.map(|target| fitting(target, columns));
        let from = Stored { kind, rounded, rows, columns, bytes };
        if packed_kind == GgmlDType::BF16
            && columns.is_multiple_of(2)
            && twelve_bits_for_bf16()
            && let Some(packed) = Self::pack_in_twelve_bits(&from)?
        {
            return Ok(packed);
        }
        Self::pack_whole(packed_kind, &from)
    }

    /// All bits of all elements.
    fn pack_whole(kind: Kind, from: &Stored<'_>) -> Result<Self> {
        let Stored { rows, columns, .. } = *from;
        let panels = rows.div_ceil(PANEL);
        let panel_bytes = panel_bytes(kind, columns)?;
        // Rows that are stored as in the file are not padded to a whole last panel.
        let len = if is_packed(kind) { panels * panel_bytes } else { rows * panel_bytes / PANEL };
        let mut buffer = Buffer::zeroed(len)?;
        let parts = Parts::new(buffer.bytes_mut());
        pool::for_each_chunk(panels, |panel| {
            let to = panel * panel_bytes..len.min((panel + 1) * panel_bytes);
            // SAFETY: the ranges of different panels don't overlap.
            let to = unsafe { parts.part(to) };
            from.panel(panel, |rows| pack_panel(kind, columns, rows, to));
        });
        Ok(Self { buffer, kind, rows, columns, panel_bytes, twelve_bits: None })
    }

    /// bf16 with all of their bits, whatever numbers they are.
    #[cfg(test)]
    pub(super) fn whole(rows: usize, columns: usize, bytes: &[u8]) -> Result<Self> {
        let kind = Kind::from(GgmlDType::BF16);
        Self::pack_whole(kind, &Stored { kind, rounded: None, rows, columns, bytes })
    }

    /// As [`Self::whole`], but in twelve bits each if they can be.
    #[cfg(test)]
    pub(super) fn compressed(rows: usize, columns: usize, bytes: &[u8]) -> Result<Option<Self>> {
        let kind = Kind::from(GgmlDType::BF16);
        Self::pack_in_twelve_bits(&Stored { kind, rounded: None, rows, columns, bytes })
    }

    /// bf16 in twelve bits each; nothing if too many of the numbers are unlike the others.
    fn pack_in_twelve_bits(from: &Stored<'_>) -> Result<Option<Self>> {
        let kind = Kind::from(GgmlDType::BF16);
        let Stored { rows, columns, .. } = *from;
        let Some(least) = TwelveBits::least_of(&from.sample()) else { return Ok(None) };
        let panel_bytes = columns / 2 * ROW_BYTES;
        let mut exceptions = vec![Vec::new(); rows.div_ceil(PANEL)];
        let mut buffer = Buffer::zeroed(exceptions.len() * panel_bytes)?;
        let (to, beside) = (Parts::new(buffer.bytes_mut()), Parts::new(&mut exceptions));
        pool::for_each_chunk(rows.div_ceil(PANEL), |panel| {
            // SAFETY: the ranges of different panels don't overlap.
            let (to, beside) = unsafe {
                let bytes = panel * panel_bytes..(panel + 1) * panel_bytes;
                (to.part(bytes), beside.part(panel..panel + 1))
            };
            let mut whole = vec![0; columns * 2 * PANEL];
            from.panel(panel, |rows| pack_panel(kind, columns, rows, &mut whole));
            let columns = PANEL.min(rows - panel * PANEL);
            let exceptions = &mut beside[0];
            cpu_level().run(Encode { least, columns, from: &whole, to, exceptions });
        });
        let twelve_bits = TwelveBits::new(least, exceptions, rows * columns);
        Ok(twelve_bits.map(|twelve_bits| {
            let twelve_bits = Some(twelve_bits);
            Self { buffer, kind, rows, columns, panel_bytes, twelve_bits }
        }))
    }

    /// The kind that a matrix of `kind` with rows of `columns` elements is packed in, rounded to `target`
    /// if there is one.
    pub fn kind_of(kind: Kind, columns: usize, target: Option<GgmlDType>) -> Kind {
        target.map_or(kind, |target| fitting(target, columns).into())
    }

    /// Takes over a matrix of bf16, f16 or f32 on the CPU.
    pub fn from_dense(tensor: &Tensor) -> Result<Self> {
        let kind = match tensor.dtype() {
            DType::F32 => GgmlDType::F32,
            DType::BF16 => GgmlDType::BF16,
            DType::F16 => GgmlDType::F16,
            other => bail!("a weight matrix can't be stored as {other:?}; bf16, f16 or f32 can"),
        };
        let (rows, columns) = tensor.dims2()?;
        let values = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all()?;
        let mut bytes = Vec::with_capacity(rows * columns * kind.type_size());
        // Exact: the values came from this kind.
        stored::narrow(kind, &values.to_vec1()?, &mut bytes);
        Self::pack(kind, rows, columns, &bytes, None)
    }

    /// Takes over a quantized matrix on the CPU.
    pub fn from_quantized(tensor: &QTensor) -> Result<Self> {
        let (rows, columns) = tensor.shape().dims2()?;
        Self::pack(tensor.dtype(), rows, columns, &tensor.data()?, None)
    }

    /// A copy on a device that has kernels for matrices of this kind.
    ///
    /// # Errors
    ///
    /// A kind without kernels; no memory.
    pub fn to_device(&self, device: &Device) -> Result<PackedOnDevice> {
        PackedOnDevice::new(self.kind, (self.rows, self.columns), self.buffer.bytes(), device)
    }

    /// Number of rows: output features of a linear layer, entries of an embedding.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: input features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The kind of the stored elements.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How the elements lie in memory, as users read it: the kind, and in how many bits where that is not all of them.
    pub fn form(&self) -> String {
        let bits = self.twelve_bits.as_ref().map_or("", |_| " in 12 bits");
        format!("{:?}{bits}", self.kind)
    }

    /// Bytes of memory, padding included.
    pub fn size_in_bytes(&self) -> usize {
        let beside = self.twelve_bits.as_ref().map_or(0, TwelveBits::size_in_bytes);
        self.buffer.bytes().len() + beside
    }

    /// Panels of 64 rows; the last may be partly padding.
    pub(super) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// The bytes of one panel; of an unpacked kind, the rows it stands for.
    pub(super) fn panel(&self, panel: usize) -> &[u8] {
        let bytes = self.buffer.bytes();
        let start = panel * self.panel_bytes;
        &bytes[start..bytes.len().min(start + self.panel_bytes)]
    }

    /// The panel, of bf16 in twelve bits each.
    pub(super) fn twelve_bit_panel(&self, panel: usize) -> Option<TwelveBitPanel<'_>> {
        Some(self.twelve_bits.as_ref()?.panel(panel, self.panel(panel)))
    }

    /// Where a panel of bf16 goes on with element `element` of K, an even one.
    pub(super) fn offset_of(&self, element: usize) -> usize {
        element / 2 * self.twelve_bits.as_ref().map_or(size_of::<Row>(), |_| ROW_BYTES)
    }

    /// Row `row` as f32, exactly. `out` has one element per column.
    pub(super) fn widen_row(&self, level: Level, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.columns, "a row outside of the matrix");
        if let Some(panel) = self.twelve_bit_panel(row / PANEL) {
            return panel.column(row % PANEL, out);
        }
        unpack::row(level, self.kind, self.panel(row / PANEL), row % PANEL, out);
    }

    /// A panel of a kind without a packed form, as a panel of f32: `[K][64]`.
    pub(super) fn widen_panel(&self, panel: usize, out: &mut [f32]) {
        let from = self.panel(panel);
        stored::with_rounded(self.kind, GgmlDType::F32, self.columns, from, |rows| {
            // SAFETY: floats are four bytes without padding, and the borrow is exclusive.
            let out = unsafe {
                std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), size_of_val(out))
            };
            out.fill(0);
            pack_panel(GgmlDType::F32.into(), self.columns, rows, out);
        });
    }
}

/// Bits that an element of a matrix of bf16 takes on this CPU, if its numbers are like those of most.
pub fn bits_of_bf16() -> usize {
    if twelve_bits_for_bf16() { 12 } else { 16 }
}

/// Whether products run on `kind` as it is packed.
pub(super) fn is_packed(kind: Kind) -> bool {
    let dense = matches!(kind, Kind::Ggml(GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16));
    dense || with_format!(kind, _F => true, false)
}

/// The kind nearest to `target` whose blocks divide rows of `columns` elements.
fn fitting(target: GgmlDType, columns: usize) -> GgmlDType {
    let smaller = match target {
        GgmlDType::Q2K | GgmlDType::Q3K | GgmlDType::Q4K => GgmlDType::Q5_0,
        GgmlDType::Q5K => GgmlDType::Q5_1,
        GgmlDType::Q6K | GgmlDType::Q8K => GgmlDType::Q8_0,
        other => other,
    };
    [target, smaller]
        .into_iter()
        .find(|kind| columns.is_multiple_of(kind.block_size()))
        .unwrap_or(GgmlDType::BF16)
}

fn panel_bytes(kind: Kind, columns: usize) -> Result<usize> {
    Ok(match kind {
        Kind::Ggml(GgmlDType::BF16) => columns.next_multiple_of(2) * 2 * PANEL,
        _ => with_format!(
            kind,
            F => columns / kind.block_size() * F::CELL,
            PANEL * stored::row_bytes(kind, columns)?
        ),
    })
}

/// Lays out up to 64 rows as a panel; `to` is zeroed.
fn pack_panel(kind: Kind, columns: usize, from: &[u8], to: &mut [u8]) {
    match kind {
        Kind::Ggml(GgmlDType::F32 | GgmlDType::BF16) => {
            // bf16 pairs move as words; with an odd number of columns the last one has no partner.
            let words = columns * kind.type_size() / 4;
            dense::transpose_words(cpu_level(), words, from, columns * kind.type_size(), to);
            if !(columns * kind.type_size()).is_multiple_of(4) {
                dense::put_last_halves(words, from, columns * 2, to);
            }
        }
        Kind::Ggml(GgmlDType::F16) => dense::transpose_halves(columns, from, to),
        _ => with_format!(kind, F => pack_cells::<F>(columns / kind.block_size(), from, to), {
            to.copy_from_slice(from);
        }),
    }
}

fn pack_cells<F: Format>(blocks: usize, from: &[u8], to: &mut [u8]) {
    for (column, row) in from.chunks_exact(blocks * F::BLOCK).enumerate() {
        for (block, cell) in row.chunks_exact(F::BLOCK).zip(to.chunks_exact_mut(F::CELL)) {
            F::put(block, column, cell);
        }
    }
}
