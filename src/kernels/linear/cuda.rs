//! Linear layers on NVIDIA GPUs, for as few tokens as a step of decoding has: they are bound by
//! reading the weights once. cuBLAS multiplies for many tokens, unless results may not depend on how
//! many there are. Quantized weights are read as they are packed.

use candle_core::{DType, Result, Tensor, bail};

use super::args::{DeviceLayer, DeviceNorm, Elements};
use super::form::{FEW_TOKENS, Form, TILE_THREADS};
use super::packed;
use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, most_shared, multiprocessors, narrow, output_buffer,
    source,
};
use crate::cuda::settings;
use crate::packed::quantize_rows;
use crate::pointwise::Gating;
use crate::pointwise::cuda::ElementwiseOp;

static SOURCE: Source = source!("linear/kernel");

/// Most layers of one launch.
pub(super) const MOST_LAYERS: usize = 3;
/// Bytes that a GPU reads from its memory while a kernel begins and ends.
const LAUNCH_BYTES: usize = 12 << 20;
/// Rows of a tile of half-precision weights; half of that in each of a gated pair.
const HALF_ROWS: usize = 16;
/// Rows of a tile of f32 weights.
const FLOAT_ROWS: usize = 4;
/// Inputs that are staged come in multiples of this.
const STAGE: usize = 512;
/// Least tokens whose inputs are rounded to the weights' type before the launch.
pub(super) const ROUND_FROM: usize = 8;
/// Most tokens that products normalize themselves.
const NORMED: usize = 3;
/// Least tiles of which two share a block.
const MANY_TILES: usize = 512;
/// Most blocks for few tokens that a multiprocessor has registers for.
const MOST_BLOCKS: usize = 3;
/// Shared memory that a GPU takes of each block for itself.
const RESERVED: usize = 1 << 10;

kernel_struct! {
    struct LinearMatrix {
        weight: Address,
        bias: Address,
        out: Address,
        rows: u32,
        stride: u32,
    }
}

kernel_struct! {
    struct Linear {
        matrices: [LinearMatrix; MOST_LAYERS],
        x: Address,
        residual: Address,
        factor: f32,
        count: u32,
        gated: u32,
        gating: ElementwiseOp,
        tokens: u32,
        inputs: u32,
        stage: u32,
        x_rounded: u32,
        out_rounded: u32,
        norm: Address,
        eps: f32,
    }
}

const NO_MATRIX: LinearMatrix = LinearMatrix {
    weight: Address::NONE,
    bias: Address::NONE,
    out: Address::NONE,
    rows: 0,
    stride: 0,
};

/// What is done with products before they are written.
enum Finish<'a> {
    Plain,
    /// `residual + factor * y`
    Add(&'a Tensor, f32),
    /// Gated outputs of the first two layers, f32 or of the weights' type.
    Gated(Gating, DType),
}

/// The outputs of up to three layers on the same `x [.., K]` in f32, which goes through a norm first if
/// there is one.
pub(super) fn linear_each(
    x: &Tensor,
    norm: Option<DeviceNorm<'_>>,
    layers: &[DeviceLayer<'_>],
) -> Result<Vec<Tensor>> {
    run(x, norm, layers, &Finish::Plain)
}

/// `residual + factor * layer(x)`, both f32 `[.., N]`.
pub(super) fn linear_add(
    x: &Tensor,
    layer: DeviceLayer<'_>,
    residual: &Tensor,
    factor: f32,
) -> Result<Tensor> {
    let residual = residual.contiguous()?;
    let outer = &x.dims()[..x.dims().len() - 1];
    if residual.dims() != [outer, &[layer.weight.dims()?.0]].concat() {
        bail!("linear_add: {:?} and {:?}", x.dims(), residual.dims());
    }
    Ok(run(x, None, &[layer], &Finish::Add(&residual, factor))?.remove(0))
}

/// The gated outputs of two layers, gate and up, rounded to a type; of `x`, or of what a norm makes of it.
pub(super) fn linear_gated(
    x: &Tensor,
    norm: Option<DeviceNorm<'_>>,
    gating: Gating,
    layers: [DeviceLayer<'_>; 2],
    dtype: DType,
) -> Result<Tensor> {
    let [gate, up] = layers.map(|layer| layer.weight.dims());
    let (gate, up) = (gate?, up?);
    if gate != up {
        bail!("linear_gated: {gate:?} and {up:?}");
    }
    let own = match layers[0].weight.elements() {
        Elements::Dense(own) if dtype == own => dtype,
        Elements::Dense(_) | Elements::Packed(_) => DType::F32,
    };
    run(x, norm, &layers, &Finish::Gated(gating, own))?.remove(0).to_dtype(dtype)
}

/// Whether these kernels multiply so many tokens with such weights; `saved` is how many kernels more
/// others take.
pub(super) fn takes(tokens: usize, layers: &[DeviceLayer<'_>], saved: usize) -> Result<bool> {
    let weight = layers[0].weight;
    let device = weight.device();
    let dtype = match weight.elements() {
        Elements::Dense(dtype @ (DType::BF16 | DType::F16 | DType::F32)) => Some(dtype),
        Elements::Dense(_) => return Ok(false),
        Elements::Packed(_) => None,
    };
    if device.is_cpu() || settings::deterministic() {
        return Ok(true);
    }
    let Some(dtype) = dtype else { return Ok(tokens <= packed::MOST_TOKENS) };
    if tokens > FEW_TOKENS || dtype == DType::F32 {
        return Ok(tokens <= FEW_TOKENS);
    }
    let rows = layers.iter().map(|layer| Ok(layer.weight.dims()?.0)).collect::<Result<Vec<_>>>()?;
    let (inputs, most_shared) = (weight.dims()?.1, most_shared(device));
    let aligned = inputs % 8 == 0;
    let shape = Shape { dtype, tokens, inputs, aligned, most_shared };
    Ok(shape.is_for_few(&rows, saved))
}

/// Whether these kernels normalize so many tokens themselves, where they multiply them.
pub(super) fn normalizes(tokens: usize, layer: &DeviceLayer<'_>) -> Result<bool> {
    let (rows, inputs) = layer.weight.dims()?;
    let most_shared = most_shared(layer.weight.device());
    let stage = match layer.weight.elements() {
        Elements::Dense(dtype @ (DType::BF16 | DType::F16)) => {
            let aligned = inputs % 8 == 0;
            Shape { dtype, tokens, inputs, aligned, most_shared }.form(&[rows]).stage
        }
        Elements::Dense(_) => return Ok(false),
        Elements::Packed(kind) => packed::form(kind, (tokens, inputs), &[rows], most_shared).stage,
    };
    Ok(tokens <= NORMED && inputs <= stage)
}

/// The form in which tokens `[tokens, inputs]` meet weights, and whether it is not f32.
fn operand(x: &Tensor, elements: Elements, tokens: usize, inputs: usize) -> Result<(Tensor, bool)> {
    match elements {
        // Blocks would each round what they stage of many tokens.
        Elements::Dense(dtype) if tokens >= ROUND_FROM => {
            Ok((x.to_dtype(dtype)?.contiguous()?, dtype != DType::F32))
        }
        Elements::Packed(_) if tokens >= packed::QUANTIZE_FROM => {
            let x = x.to_dtype(DType::F32)?.reshape((tokens, inputs))?;
            Ok((quantize_rows(&x, None)?, true))
        }
        Elements::Dense(_) | Elements::Packed(_) => {
            Ok((x.to_dtype(DType::F32)?.contiguous()?, false))
        }
    }
}

/// The matrices of layers, of which those have an output that have one of their own.
fn matrices(
    layers: &[DeviceLayer<'_>],
    inputs: usize,
    outputs: &[Tensor],
) -> Result<[LinearMatrix; MOST_LAYERS]> {
    let mut matrices = [NO_MATRIX; MOST_LAYERS];
    for (index, (layer, to)) in layers.iter().zip(&mut matrices).enumerate() {
        let (rows, own) = layer.weight.dims()?;
        if own != inputs || layer.bias.is_some_and(|bias| bias.dims() != [rows]) {
            bail!("linear: {inputs} inputs for a weight [{rows}, {own}]");
        }
        let (memory, out) = (layer.weight.memory(), outputs.get(index));
        *to = LinearMatrix {
            weight: Address::of(memory, memory.dtype())?,
            bias: Address::of_some(layer.bias, DType::F32)?,
            out: out.map_or(Ok(Address::NONE), |out| Address::to_write(out, out.dtype()))?,
            rows: narrow(rows)?,
            stride: narrow(rows)?,
        };
    }
    Ok(matrices)
}

fn run(
    x: &Tensor,
    norm: Option<DeviceNorm<'_>>,
    layers: &[DeviceLayer<'_>],
    finish: &Finish<'_>,
) -> Result<Vec<Tensor>> {
    let device = x.device();
    let [outer @ .., inputs] = x.dims() else { bail!("linear: a scalar has no rows") };
    let (tokens, inputs) = (outer.iter().product::<usize>(), *inputs);
    let elements = layers[0].weight.elements();
    let (gated, out_type) = match finish {
        Finish::Gated(_, dtype) => (true, *dtype),
        Finish::Plain | Finish::Add(..) => (false, DType::F32),
    };
    let (rounded_x, x_rounded) = operand(x, elements, tokens, inputs)?;
    let outputs = layers[..if gated { 1 } else { layers.len() }].iter().map(|layer| {
        let shape = [outer, &[layer.weight.dims()?.0]].concat();
        output_buffer(shape, out_type, device)
    });
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    let matrices = matrices(layers, inputs, &outputs)?;
    let sizes: Vec<usize> = matrices.iter().map(|matrix| matrix.rows as usize).collect();
    let aligned = inputs % 8 == 0 && matrices.iter().all(|matrix| matrix.weight.is_aligned());
    let most_shared = most_shared(device);
    let (source, form) = match elements {
        Elements::Dense(dtype) => {
            let shape = Shape { dtype, tokens, inputs, aligned, most_shared };
            (&SOURCE, shape.form(&sizes))
        }
        Elements::Packed(kind) => {
            (&packed::SOURCE, packed::form(kind, (tokens, inputs), &sizes, most_shared))
        }
    };
    if let Some(norm) = norm
        && (norm.weight.dims() != [inputs] || tokens > NORMED || form.stage < inputs)
    {
        bail!("linear: a norm {:?} of {tokens} rows of {inputs}", norm.weight.dims());
    }
    let (residual, factor) = match finish {
        Finish::Add(residual, factor) => (Address::of(residual, DType::F32)?, *factor),
        Finish::Plain | Finish::Gated(..) => (Address::NONE, 1.0),
    };
    let arguments = Linear {
        matrices,
        x: Address::of(&rounded_x, rounded_x.dtype())?,
        residual,
        factor,
        count: narrow(layers.len())?,
        gated: u32::from(gated),
        gating: match finish {
            Finish::Gated(gating, _) => (*gating).into(),
            Finish::Plain | Finish::Add(..) => ElementwiseOp::default(),
        },
        tokens: narrow(tokens)?,
        inputs: narrow(inputs)?,
        stage: narrow(form.stage)?,
        x_rounded: u32::from(x_rounded),
        out_rounded: u32::from(out_type != DType::F32),
        norm: Address::of_some(norm.map(|norm| norm.weight), DType::F32)?,
        eps: norm.map_or(0.0, |norm| norm.eps),
    };
    let mut kernel = format!("linear_{}", form.kind);
    let (mut grid, mut shared) = (form.grid((tokens, gated), &sizes), form.shared);
    if let Some(own) = form.shared_in_rounds.filter(|own| *own <= most_shared) {
        let rounds = in_rounds(grid, multiprocessors(device), most_shared / own);
        if rounds != grid {
            (grid, shared) = (rounds, own);
            kernel.push_str("_rounds");
        }
    }
    let launch = Launch { source, kernel: &kernel, grid, threads: form.threads, shared };
    // SAFETY: shapes were checked, and the grid is the one that the kernel's source asks for.
    unsafe { launch.run(device, arguments)? };
    Ok(outputs)
}

/// A grid whose blocks take as many rounds of tiles as there are, each as many as any other: where some had
/// one more, all would wait for them. At most so many blocks are on a multiprocessor at once.
fn in_rounds(grid: [usize; 3], multiprocessors: usize, blocks: usize) -> [usize; 3] {
    let [x, y, z] = grid;
    if x != 1 {
        return grid;
    }
    let rounds = (y * z).div_ceil(multiprocessors * blocks.clamp(1, MOST_BLOCKS));
    [x, (y * z).div_ceil(rounds.max(1)), 1]
}

/// The measures of a product, which decide about its form.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The type of the weights.
    pub(crate) dtype: DType,
    pub(crate) tokens: usize,
    pub(crate) inputs: usize,
    /// Whether 16 bytes of a weight can be read at once.
    pub(crate) aligned: bool,
    /// Bytes of shared memory that a block can have.
    pub(crate) most_shared: usize,
}

impl Shape {
    /// Whether a product with half-precision matrices of these many rows is better done by these
    /// kernels than by cuBLAS and `saved` kernels more.
    ///
    /// A block reads all tokens for its few rows of weights: what it moves through the L2 cache grows
    /// with their number, until that takes longer than reading the weights from memory. cuBLAS has
    /// larger tiles, and of few tokens 85 % of the memory's rate. The cache is taken to be 4/3 as fast
    /// as the memory.
    fn is_for_few(self, rows: &[usize], saved: usize) -> bool {
        let Form { capacity, tiles_at_once, .. } = self.form(rows);
        let weights = 2 * self.inputs * rows.iter().sum::<usize>();
        let own = self.tokens.min(capacity);
        let moved = weights + weights * own / (HALF_ROWS * tiles_at_once);
        weights.max(moved / 4 * 3) <= weights / 17 * 20 + saved * LAUNCH_BYTES
    }

    /// The form of the kernel, which those for experts have too.
    pub(crate) fn form(self, rows: &[usize]) -> Form {
        let Self { dtype, tokens, inputs, aligned, most_shared, .. } = self;
        let name = match dtype {
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            _ => {
                let capacity = if tokens == 1 { 1 } else { 8 };
                return Form {
                    kind: format!("f32_{capacity}"),
                    capacity,
                    tile_rows: FLOAT_ROWS,
                    tiles_at_once: 1,
                    threads: TILE_THREADS,
                    shared: 0,
                    stage: 0,
                    shared_in_rounds: None,
                };
            }
        };
        let mut capacity =
            if aligned { tokens.next_power_of_two().clamp(8, FEW_TOKENS) } else { 8 };
        let padded = inputs.next_multiple_of(STAGE);
        // All inputs of so many tokens; or two stages of them by turns.
        let whole = |own: usize| own * (2 * padded + 64);
        let staged = |own: usize, stage: usize| 2 * own * (2 * stage + 64);
        let fits = |own: usize| whole(own).min(staged(own, STAGE)) <= most_shared;
        while capacity > 8 && !fits(tokens.min(capacity)) {
            capacity /= 2;
        }
        let suffix = if aligned { capacity.to_string() } else { "any".to_owned() };
        let many = rows.iter().sum::<usize>() / HALF_ROWS >= MANY_TILES;
        let tiles_at_once = if many && capacity > 8 { 2 } else { 1 };
        let own = tokens.min(capacity);
        let sums = STAGE * capacity * tiles_at_once;
        // One block of 8 warps has too few loads under way to keep up with the memory: others find room
        // beside it where inputs come in stages, which are copied without a wait if they are rounded already.
        let share = |blocks: usize| (most_shared + RESERVED) / blocks - RESERVED;
        let stage_in = |room: usize| (room / (2 * own)).saturating_sub(64) / 2 / STAGE * STAGE;
        let most_blocks = if capacity == 8 { MOST_BLOCKS } else { 2 / tiles_at_once };
        let beside_others =
            || (2..=most_blocks).rev().map(|blocks| stage_in(share(blocks))).find(|at| *at > STAGE);
        let alone = tokens >= ROUND_FROM && whole(own) > share(2);
        let stage = match alone.then(beside_others).flatten() {
            Some(stage) => stage,
            None if whole(own) <= most_shared => padded,
            None => stage_in(most_shared),
        };
        let shared = if stage == padded { whole(own) } else { staged(own, stage) };
        let takes_rounds = aligned && capacity == 8 && stage == padded;
        Form {
            kind: format!("{name}_{suffix}"),
            capacity,
            tile_rows: HALF_ROWS,
            tiles_at_once,
            threads: TILE_THREADS * tiles_at_once,
            shared: shared.max(sums),
            stage,
            shared_in_rounds: takes_rounds.then_some(whole(own) + sums),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::launch::LEAST_SHARED;

    /// The products of a layer: rows of matrices, inputs, kernels saved.
    const LARGE: [(&[usize], usize, usize); 4] = [
        (&[4096, 1024, 1024], 4096, 3),
        (&[4096], 4096, 2),
        (&[14_336; 2], 4096, 3),
        (&[4096], 14_336, 2),
    ];
    const SMALL: [(&[usize], usize, usize); 4] = [
        (&[2048, 1024, 1024], 1024, 3),
        (&[1024], 2048, 2),
        (&[3072; 2], 1024, 3),
        (&[1024], 3072, 2),
    ];

    #[test]
    fn many_tokens_of_large_matrices_are_for_cublas() {
        let few = |tokens, (rows, inputs, saved): (&[usize], usize, usize)| {
            let (dtype, most_shared) = (DType::BF16, 227 << 10);
            let shape = Shape { dtype, tokens, inputs, aligned: true, most_shared };
            shape.is_for_few(rows, saved)
        };
        for (large, small) in LARGE.into_iter().zip(SMALL) {
            assert!((1..=8).all(|tokens| few(tokens, large)), "{large:?}");
            assert!((1..=FEW_TOKENS).all(|tokens| few(tokens, small)), "{small:?}");
        }
        // Gate and up, and a head.
        assert!(!few(32, LARGE[2]) && !few(64, LARGE[2]));
        assert!(!few(64, (&[128_256], 4096, 1)));
    }

    #[test]
    fn blocks_take_the_same_number_of_tiles_each() {
        assert_eq!(in_rounds([1, 384, 1], 132, 3), [1, 384, 1]);
        // Five rounds, not four of 396 blocks and a fifth of 208.
        assert_eq!(in_rounds([1, 1792, 1], 132, 3), [1, 359, 1]);
        assert_eq!(in_rounds([1, 65_535, 2], 132, 20), [1, 396, 1]);
        assert_eq!(in_rounds([2, 1792, 1], 132, 3), [2, 1792, 1]);
    }

    #[test]
    fn inputs_come_in_stages_where_a_block_with_all_of_them_would_be_alone() {
        let stage = |tokens, inputs, most_shared| {
            let shape = Shape { dtype: DType::BF16, tokens, inputs, aligned: true, most_shared };
            let form = shape.form(&[4096]);
            let blocks = (most_shared + RESERVED) / (form.shared + RESERVED);
            (form.stage, blocks, form.shared_in_rounds.is_some())
        };
        let (large, small) = (227 << 10, LEAST_SHARED);
        assert_eq!(stage(8, 14_336, large), (2048, 3, false));
        assert_eq!(stage(16, 4096, large), (1536, 2, false));
        assert_eq!(stage(8, 4096, small), (1536, 2, false));
        // Three or two have all inputs, or they are rounded as they come.
        assert_eq!(stage(8, 4096, large), (4096, 3, true));
        assert_eq!(stage(8, 6144, large), (6144, 2, true));
        assert_eq!(stage(7, 14_336, large), (14_336, 1, true));
        // A third of the memory has too little of each token.
        assert_eq!(stage(64, 4096, large).0, 512);
    }

    #[test]
    fn blocks_fit_into_shared_memory_whatever_the_shape() {
        for dtype in [DType::BF16, DType::F32] {
            for tokens in [1, 7, 8, 9, 31, 64, 4000] {
                for inputs in [8, 512, 520, 4096, 28_672, 200_000] {
                    let most_shared = LEAST_SHARED;
                    let aligned = true;
                    let shape = Shape { dtype, tokens, inputs, aligned, most_shared };
                    for rows in [[16, 0, 0], [4096, 1024, 1024], [150_000, 0, 0]] {
                        let block = shape.form(&rows);
                        assert!(block.shared <= LEAST_SHARED, "{tokens} {inputs} {rows:?}");
                        let staged = dtype == DType::F32 || block.stage >= STAGE;
                        assert!(
                            staged && block.stage.is_multiple_of(STAGE),
                            "{tokens} {inputs} {rows:?}"
                        );
                    }
                }
            }
        }
    }
}
