//! Experts on NVIDIA GPUs, without the host knowing their tokens: experts are chosen for each token,
//! tokens are listed by expert, and one launch multiplies with the weights of all experts.

use candle_core::{DType, Result, Tensor, bail};

use super::args::ExpertLayers;
use super::routing::{Groups, Routing, Score};
use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, most_shared, narrow, output_buffer, source,
};
use crate::cuda::settings;
use crate::linear::DeviceLayer;
use crate::linear::cuda::{FEW_TOKENS, Form, Shape};
use crate::pointwise::Gating;
use crate::pointwise::cuda::ElementwiseOp;

static SOURCE: Source = source!("experts/kernel");
static ROUTING: Source = source!("experts/routing");

/// Experts that the kernels can choose from.
const MOST_EXPERTS: usize = 1024;
/// Experts of a token that the kernels can choose.
const MOST_CHOSEN: usize = 32;
/// Tokens whose experts are chosen and listed by one block of threads.
const TOKENS_AT_ONCE: usize = 8;

kernel_struct! {
    struct Route {
        scores: Address,
        bias: Address,
        expert_scale: Address,
        ids: Address,
        weights: Address,
        experts: u32,
        per_token: u32,
        score: u32,
        groups: u32,
        groups_chosen: u32,
        groups_best: u32,
        renormalize: u32,
        scale: f32,
    }
}

kernel_struct! {
    struct Group points to PairTile {
        ids: Address,
        offsets: Address,
        pairs: Address,
        tiles: Address,
        count: u32,
        experts: u32,
        capacity: u32,
        most_tiles: u32,
    }
}

kernel_struct! {
    struct RouteAndGroup points to PairTile {
        route: Route,
        group: Group,
    }
}

kernel_struct! {
    /// Some pairs of one expert, which kernels alone read and write.
    struct PairTile {
        expert: u32,
        first: u32,
        last: u32,
    }
}

kernel_struct! {
    struct Experts {
        weight: Address,
        up: Address,
        bias: Address,
        up_bias: Address,
        x: Address,
        factors: Address,
        pairs: Address,
        tiles: Address,
        out: Address,
        rows: u32,
        inputs: u32,
        per_row: u32,
        stage: u32,
        x_rounded: u32,
        out_rounded: u32,
        gated: u32,
        gating: ElementwiseOp,
    }
}

kernel_struct! {
    struct Combine {
        y: Address,
        weights: Address,
        residual: Address,
        out: Address,
        width: u32,
        per_token: u32,
        factor: f32,
    }
}

/// One layer of all experts: addresses `[E]` of their weights.
#[derive(Debug)]
struct Matrices {
    weights: Tensor,
    biases: Option<Tensor>,
    /// `[rows, inputs]` of each.
    shape: (usize, usize),
    dtype: DType,
    aligned: bool,
    /// Keeps the memory that the addresses are of.
    _kept: Vec<Tensor>,
}

/// The weights of all experts of a layer.
#[derive(Debug)]
pub(super) struct OnDevice {
    gate: Option<Matrices>,
    up: Matrices,
    down: Matrices,
    count: usize,
    /// `[E]`
    correction_bias: Option<Tensor>,
    /// `[E]`
    expert_scale: Option<Tensor>,
}

/// Shared memory that the kernels have besides what their launches ask for: the pairs and the rows of
/// inputs of as many tokens as a block takes.
const fn own_shared(capacity: usize) -> usize {
    2 * size_of::<u32>() * capacity
}

impl Shape {
    /// The form of a product with `rows` rows, which takes as many tokens at a time as fit beside the
    /// `most_inputs` of the products of a step.
    fn form_for_experts(self, rows: usize, most_inputs: usize) -> Form {
        let most_shared = self.most_shared.saturating_sub(own_shared(FEW_TOKENS));
        let shape = Self { most_shared, ..self };
        let capacity = Self { inputs: most_inputs, ..shape }.form(&[rows]).capacity;
        Self { tokens: self.tokens.min(capacity), ..shape }.form(&[rows])
    }
}

/// The chosen experts of all tokens. A pair is a token and one of its experts.
pub(super) struct Chosen {
    /// `[T, P]`
    weights: Tensor,
    /// `[T * P]`: pairs by expert.
    pairs: Tensor,
    /// `[most_tiles, 3]`: each a [`PairTile`].
    tiles: Tensor,
    most_tiles: usize,
    tokens: usize,
    per_token: usize,
    /// What only the kernels that choose write and read.
    _kept: [Tensor; 2],
}

impl Matrices {
    fn of(layers: &[DeviceLayer<'_>]) -> Result<Option<Self>> {
        let first = layers[0];
        let (dtype, shape) = (first.weight.dtype(), first.weight.dims2()?);
        let alike = |layer: &DeviceLayer<'_>| {
            layer.weight.dtype() == dtype
                && layer.weight.dims() == first.weight.dims()
                && layer.bias.is_some() == first.bias.is_some()
        };
        if !matches!(dtype, DType::BF16 | DType::F16 | DType::F32) || !layers.iter().all(alike) {
            return Ok(None);
        }
        let device = first.weight.device();
        let weights = layers.iter().map(|layer| Address::of(layer.weight, dtype));
        let weights = weights.collect::<Result<Vec<_>>>()?;
        let biases = layers.iter().filter_map(|layer| layer.bias);
        let kept: Vec<Tensor> =
            layers.iter().map(|layer| layer.weight).chain(biases.clone()).cloned().collect();
        let biases =
            biases.map(|bias| Address::of(bias, DType::F32)).collect::<Result<Vec<_>>>()?;
        Ok(Some(Self {
            aligned: shape.1 % 8 == 0 && weights.iter().all(|address| address.is_aligned()),
            weights: Address::list(&weights, device)?,
            biases: (!biases.is_empty()).then(|| Address::list(&biases, device)).transpose()?,
            shape,
            dtype,
            _kept: kept,
        }))
    }

    fn addresses(&self) -> Result<[Address; 2]> {
        let biases = Address::of_some(self.biases.as_ref(), DType::I64)?;
        Ok([Address::of(&self.weights, DType::I64)?, biases])
    }
}

impl OnDevice {
    /// `None` where the kernels don't know experts like these.
    pub(super) fn new(
        experts: &[ExpertLayers<'_>],
        vectors: [Option<&[f32]>; 2],
    ) -> Result<Option<Self>> {
        let count = experts.len();
        if let Some(length) = vectors.iter().flatten().map(|own| own.len()).find(|n| *n != count) {
            bail!("{length} biases or factors of {count} experts");
        }
        if count == 0 || count > MOST_EXPERTS {
            return Ok(None);
        }
        let gates: Vec<_> = experts.iter().filter_map(|expert| expert.gate).collect();
        if !gates.is_empty() && gates.len() < count {
            return Ok(None);
        }
        let gate = if gates.is_empty() { None } else { Matrices::of(&gates)? };
        let up = Matrices::of(&experts.iter().map(|expert| expert.up).collect::<Vec<_>>())?;
        let down = Matrices::of(&experts.iter().map(|expert| expert.down).collect::<Vec<_>>())?;
        let (Some(up), Some(down)) = (up, down) else { return Ok(None) };
        let fits = match &gate {
            Some(gate) => gate.dtype == up.dtype && gate.shape == up.shape,
            None => gates.is_empty(),
        };
        let known = fits && up.dtype == down.dtype && up.shape.0 == down.shape.1;
        let device = up.weights.device();
        let [correction_bias, expert_scale] =
            vectors.map(|own| own.map(|own| Tensor::new(own, device)).transpose());
        let (correction_bias, expert_scale) = (correction_bias?, expert_scale?);
        Ok(known.then_some(Self { gate, up, down, count, correction_bias, expert_scale }))
    }

    /// Whether the experts have gates.
    pub(super) fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// Whether experts get so few tokens each that these products are the better ones.
    pub(super) fn takes(&self, tokens: usize, routing: Routing) -> bool {
        let few = tokens * routing.experts_per_token <= FEW_TOKENS * self.count;
        let device = self.up.weights.device();
        let known = tokens > 0 && routing.experts_per_token <= MOST_CHOSEN.min(self.count);
        let known = known && !matches!(routing.score, Score::SparseMixer { .. });
        known && (few || device.is_cpu() || settings::deterministic())
    }

    /// Chooses experts by the router's `scores [T, E]`.
    pub(super) fn choose(&self, scores: &Tensor, routing: Routing) -> Result<Chosen> {
        let (tokens, experts) = scores.dims2()?;
        let (per_token, device) = (routing.experts_per_token, scores.device());
        if experts != self.count {
            bail!("scores of {experts} experts for {}", self.count);
        }
        let ids = output_buffer((tokens, per_token), DType::U32, device)?;
        let weights = output_buffer((tokens, per_token), DType::F32, device)?;
        let none = Groups { count: 0, chosen: 0, best: 0 };
        let Groups { count: groups, chosen, best } = routing.groups.unwrap_or(none);
        let scores = scores.contiguous()?;
        let arguments = Route {
            scores: Address::of(&scores, DType::F32)?,
            bias: Address::of_some(self.correction_bias.as_ref(), DType::F32)?,
            expert_scale: Address::of_some(self.expert_scale.as_ref(), DType::F32)?,
            ids: Address::to_write(&ids, DType::U32)?,
            weights: Address::to_write(&weights, DType::F32)?,
            experts: narrow(experts)?,
            per_token: narrow(per_token)?,
            score: match routing.score {
                Score::Softmax => 0,
                Score::Sigmoid => 1,
                Score::SigmoidOfChosen => 2,
                Score::SparseMixer { .. } => bail!("a sparse mixer chooses on the host"),
            },
            groups: narrow(groups)?,
            groups_chosen: narrow(chosen)?,
            groups_best: narrow(best)?,
            renormalize: u32::from(routing.renormalize),
            scale: routing.scale,
        };
        let (chosen, to_group) = self.lists(&ids, weights, (tokens, per_token))?;
        let (to_route, to_list) = (8 * experts + 4 * groups, 32 * experts);
        let most_shared = most_shared(device);
        let launch = |kernel, grid, threads, shared| Launch {
            source: &ROUTING,
            kernel,
            grid: [grid, 1, 1],
            threads,
            shared,
        };
        let together = (tokens * to_route).max(to_list);
        if tokens <= TOKENS_AT_ONCE && together <= most_shared {
            let both = RouteAndGroup { route: arguments, group: to_group };
            // SAFETY: shapes were checked, and a warp takes each token; the output buffers hold all pairs
            // and the tiles that there can be at most.
            unsafe { launch("route_and_group", 1, 256, together).run(device, both)? };
            return Ok(chosen);
        }
        // SAFETY: as above.
        unsafe { launch("route", tokens, 32, to_route).run(device, arguments)? };
        // SAFETY: as above.
        unsafe { launch("group", 1, 256, to_list).run(device, to_group)? };
        Ok(chosen)
    }

    /// Room for lists of pairs by expert, and the arguments of the kernel that fills them.
    fn lists(
        &self,
        ids: &Tensor,
        weights: Tensor,
        (tokens, per_token): (usize, usize),
    ) -> Result<(Chosen, Group)> {
        let (count, device) = (tokens * per_token, ids.device());
        let capacity = self.form(&self.up, tokens, per_token, self.gate.is_some()).capacity;
        let most_tiles = count.min(self.count + count / capacity);
        let offsets = output_buffer(self.count + 1, DType::U32, device)?;
        let pairs = output_buffer(count, DType::U32, device)?;
        let tile_words = size_of::<PairTile>() / size_of::<u32>();
        let tiles = output_buffer((most_tiles, tile_words), DType::U32, device)?;
        let arguments = Group {
            ids: Address::of(ids, DType::U32)?,
            offsets: Address::to_write(&offsets, DType::U32)?,
            pairs: Address::to_write(&pairs, DType::U32)?,
            tiles: Address::to_write(&tiles, DType::U32)?,
            count: narrow(count)?,
            experts: narrow(self.count)?,
            capacity: narrow(capacity)?,
            most_tiles: narrow(most_tiles)?,
        };
        let kept = [ids.clone(), offsets];
        let chosen = Chosen { weights, pairs, tiles, most_tiles, tokens, per_token, _kept: kept };
        Ok((chosen, arguments))
    }

    /// The form of a product; all products of a step have the same capacity.
    fn form(&self, matrices: &Matrices, tokens: usize, per_token: usize, gated: bool) -> Form {
        let likely = (2 * tokens * per_token / self.count).next_power_of_two();
        let mut tokens = tokens.min(likely.clamp(8, FEW_TOKENS));
        if matrices.dtype == DType::F32 {
            // The form for one token is not for experts.
            tokens = tokens.max(2);
        }
        let aligned = self.up.aligned && self.down.aligned;
        let aligned = aligned && self.gate.as_ref().is_none_or(|gate| gate.aligned);
        let most_shared = most_shared(self.up.weights.device());
        let (rows, inputs) = matrices.shape;
        let shape = Shape { dtype: matrices.dtype, tokens, inputs, aligned, gated, most_shared };
        shape.form_for_experts(rows, self.up.shape.1.max(self.down.shape.1))
    }

    /// The up projections (and gates, with `gating` applied) of tokens `x [T, inputs]`, multiplied by
    /// the experts' weights if `weighs_inputs`: `[T * P, rows]`, by pair.
    pub(super) fn enter(
        &self,
        x: &Tensor,
        chosen: &Chosen,
        gating: Gating,
        weighs_inputs: bool,
    ) -> Result<Tensor> {
        let factors = weighs_inputs.then_some(&chosen.weights);
        match &self.gate {
            Some(gate) => self.product([gate, &self.up], Some(gating), x, factors, chosen),
            None => self.product([&self.up; 2], None, x, factors, chosen),
        }
    }

    /// `residual [T, hidden]` plus `factor` times the down projections of `inner [T * P, inner]`.
    pub(super) fn leave(
        &self,
        inner: &Tensor,
        chosen: &Chosen,
        residual: &Tensor,
        factor: f32,
        weighs_inputs: bool,
    ) -> Result<Tensor> {
        let y = self.product([&self.down; 2], None, inner, None, chosen)?;
        let (width, device) = (self.down.shape.0, inner.device());
        if residual.dims() != [chosen.tokens, width] {
            bail!("experts give {width} elements, the residual is {:?}", residual.dims());
        }
        let residual = residual.contiguous()?;
        let out = output_buffer((chosen.tokens, width), DType::F32, device)?;
        let weights = (!weighs_inputs).then_some(&chosen.weights);
        let arguments = Combine {
            y: Address::of(&y, DType::F32)?,
            weights: Address::of_some(weights, DType::F32)?,
            residual: Address::of(&residual, DType::F32)?,
            out: Address::to_write(&out, DType::F32)?,
            width: narrow(width)?,
            per_token: narrow(chosen.per_token)?,
            factor,
        };
        let grid = [chosen.tokens, width.div_ceil(256), 1];
        let launch = Launch { source: &SOURCE, kernel: "combine", grid, threads: 256, shared: 0 };
        // SAFETY: shapes were checked.
        unsafe { launch.run(device, arguments)? };
        Ok(out)
    }

    fn product(
        &self,
        matrices: [&Matrices; 2],
        gating: Option<Gating>,
        x: &Tensor,
        factors: Option<&Tensor>,
        chosen: &Chosen,
    ) -> Result<Tensor> {
        let (device, gated) = (x.device(), gating.is_some());
        let Chosen { tokens, per_token, most_tiles, .. } = *chosen;
        let ((rows, inputs), x) = (matrices[0].shape, x.contiguous()?);
        let per_row = if x.dim(0)? == tokens { per_token } else { 1 };
        if x.dims() != [tokens * per_token / per_row, inputs] {
            bail!("experts of {inputs} inputs and {tokens} tokens are given {:?}", x.dims());
        }
        let Form { kind, tile_rows, tiles_at_once, shared, stage, .. } =
            self.form(matrices[0], tokens, per_token, gated);
        let out = output_buffer((tokens * per_token, rows), DType::F32, device)?;
        let [[weight, bias], [up, up_bias]] = [matrices[0].addresses()?, matrices[1].addresses()?];
        let arguments = Experts {
            weight,
            up,
            bias,
            up_bias,
            x: Address::of(&x, DType::F32)?,
            factors: Address::of_some(factors, DType::F32)?,
            pairs: Address::of(&chosen.pairs, DType::U32)?,
            tiles: Address::of(&chosen.tiles, DType::U32)?,
            out: Address::to_write(&out, DType::F32)?,
            rows: narrow(rows)?,
            inputs: narrow(inputs)?,
            per_row: narrow(per_row)?,
            stage: narrow(stage)?,
            x_rounded: 0,
            out_rounded: 0,
            gated: u32::from(gated),
            gating: gating.map_or_else(ElementwiseOp::default, ElementwiseOp::from),
        };
        let tiles = rows.div_ceil(if gated { tile_rows / 2 } else { tile_rows });
        let grid = [most_tiles, tiles.div_ceil(tiles_at_once), 1];
        let (kernel, threads) = (format!("experts_{kind}"), 256 * tiles_at_once);
        let launch = Launch { source: &SOURCE, kernel: &kernel, grid, threads, shared };
        // SAFETY: the pairs are those of as many tokens, and weights stay as long as addresses.
        unsafe { launch.run(device, arguments)? };
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::launch::LEAST_SHARED;

    /// What GPUs give a block of threads: those of compute capability 8.6 and 8.9, 8.0, and 9.0.
    const MOST_SHARED: [usize; 3] = [LEAST_SHARED, 163 << 10, 227 << 10];

    #[test]
    fn blocks_fit_into_shared_memory_with_what_kernels_have_themselves() {
        for (most_shared, tokens) in
            MOST_SHARED.map(|most| (1..=FEW_TOKENS).map(move |n| (most, n))).into_iter().flatten()
        {
            for (inputs, most_inputs) in [(2048, 2048), (2048, 768), (4096, 14_336), (64, 64)] {
                let (dtype, aligned, gated) = (DType::BF16, true, false);
                let shape = Shape { dtype, tokens, inputs, aligned, gated, most_shared };
                let form = shape.form_for_experts(1024, most_inputs);
                let all = form.shared + own_shared(form.capacity);
                assert!(all <= most_shared, "{tokens} tokens of {inputs}: {all} of {most_shared}");
            }
        }
    }
}
