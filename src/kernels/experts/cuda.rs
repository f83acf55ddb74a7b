//! Experts on NVIDIA GPUs, without the host knowing their tokens: experts are chosen for each token,
//! tokens are listed by expert, and one launch multiplies with the weights of all experts.

use candle_core::{DType, Result, Tensor, bail};

use super::args::ExpertLayers;
use super::matrices::Matrices;
use super::routing::{Groups, Routing, Score};
use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, most_shared, narrow, output_buffer, source,
};
use crate::cuda::settings;
use crate::linear::cuda::Shape;
use crate::linear::form::{FEW_TOKENS, Form};
use crate::linear::{Elements, packed};
use crate::packed::quantize_rows;
use crate::pointwise::Gating;
use crate::pointwise::cuda::ElementwiseOp;

static SOURCE: Source = source!("experts/kernel");
static PACKED: Source = source!("experts/packed");
static ROUTING: Source = source!("experts/routing");

/// Experts that the kernels can choose from.
const MOST_EXPERTS: usize = 1024;
/// Experts of a token that the kernels can choose.
const MOST_CHOSEN: usize = 32;
/// Tokens of an expert, likely, above which tiles of weights and of tokens are as large as those of a
/// product of many tokens.
const MANY_TOKENS: usize = 16;
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
    /// Whether products have the form for many tokens.
    many: bool,
    /// What only the kernels that choose write and read.
    _kept: [Tensor; 2],
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
            Some(gate) => gate.elements == up.elements && gate.shape == up.shape,
            None => gates.is_empty(),
        };
        // Kinds of quantized weights may differ: their products have the same capacities.
        let same = up.elements == down.elements || up.are_packed() && down.are_packed();
        let known = fits && same && up.shape.0 == down.shape.1;
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

    /// Whether these products are better than those of one expert after the other.
    pub(super) fn takes(&self, tokens: usize, routing: Routing, weighs_inputs: bool) -> bool {
        let per_token = routing.experts_per_token;
        let known = tokens > 0
            && per_token <= MOST_CHOSEN.min(self.count)
            && !matches!(routing.score, Score::SparseMixer { .. });
        let few = tokens * per_token <= FEW_TOKENS * self.count;
        let any = self.up.are_packed() || self.up.weights.device().is_cpu();
        let many = self.is_for_many(tokens, per_token, weighs_inputs);
        known && (few || many || any || settings::deterministic())
    }

    /// Whether experts get so many tokens each that the form for these is better, and may be used: its
    /// sums have another order.
    fn is_for_many(&self, tokens: usize, per_token: usize, weighs_inputs: bool) -> bool {
        let half = |matrices: &Matrices| match matrices.elements {
            Elements::Dense(dtype @ (DType::BF16 | DType::F16)) => {
                let shared = Form::for_many(dtype).shared + own_shared(FEW_TOKENS);
                matrices.aligned && shared <= most_shared(matrices.weights.device())
            }
            Elements::Dense(_) | Elements::Packed(_) => false,
        };
        let each = [Some(&self.up), Some(&self.down), self.gate.as_ref()];
        2 * tokens * per_token > MANY_TOKENS * self.count
            && !weighs_inputs
            && each.into_iter().flatten().all(half)
            && !settings::deterministic()
    }

    /// Chooses experts by the router's `scores [T, E]`.
    pub(super) fn choose(
        &self,
        scores: &Tensor,
        routing: Routing,
        weighs_inputs: bool,
    ) -> Result<Chosen> {
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
        let many = self.is_for_many(tokens, per_token, weighs_inputs);
        let (chosen, to_group) = self.lists(&ids, weights, (tokens, per_token), many)?;
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
        many: bool,
    ) -> Result<(Chosen, Group)> {
        let (count, device) = (tokens * per_token, ids.device());
        let capacity = self.form(&self.up, (tokens, per_token), many).capacity;
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
        let chosen =
            Chosen { weights, pairs, tiles, most_tiles, tokens, per_token, many, _kept: kept };
        Ok((chosen, arguments))
    }

    /// The form of a product; all products of a step have the same capacity.
    fn form(&self, matrices: &Matrices, (all, per_token): (usize, usize), many: bool) -> Form {
        let likely = (2 * all * per_token / self.count).next_power_of_two();
        let mut tokens = all.min(likely.clamp(8, FEW_TOKENS));
        let (rows, inputs) = matrices.shape;
        let most_shared = most_shared(self.up.weights.device());
        let dtype = match matrices.elements {
            Elements::Dense(dtype) if many => return Form::for_many(dtype),
            Elements::Dense(dtype) => dtype,
            Elements::Packed(kind) => {
                // A tile has as many pairs as the form has room for, or as there are tokens.
                let tokens = if tokens > packed::FEW { all.min(FEW_TOKENS) } else { tokens };
                let most_shared = most_shared.saturating_sub(own_shared(FEW_TOKENS));
                return packed::form(kind, (tokens, inputs), &[rows], most_shared);
            }
        };
        if dtype == DType::F32 {
            // The form for one token is not for experts.
            tokens = tokens.max(2);
        }
        let aligned = self.up.aligned && self.down.aligned;
        let aligned = aligned && self.gate.as_ref().is_none_or(|gate| gate.aligned);
        let shape = Shape { dtype, tokens, inputs, aligned, most_shared };
        shape.form_for_experts(rows, self.up.shape.1.max(self.down.shape.1))
    }

    /// The up projections (with gates, if there are some, as `gating` says) of tokens `x [T, inputs]`,
    /// multiplied by the experts' weights if `weighs_inputs`: `[T * P, rows]`, by pair.
    pub(super) fn enter(
        &self,
        x: &Tensor,
        chosen: &Chosen,
        gating: Option<Gating>,
        weighs_inputs: bool,
    ) -> Result<Tensor> {
        let factors = weighs_inputs.then_some(&chosen.weights);
        match (&self.gate, gating) {
            (Some(_), None) => bail!("experts with gates are not told how these are applied"),
            (Some(gate), _) => self.product([gate, &self.up], gating, x, factors, chosen),
            (None, _) => self.product([&self.up; 2], None, x, factors, chosen),
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
        let Chosen { tokens, per_token, most_tiles, many, .. } = *chosen;
        let ((rows, inputs), elements) = (matrices[0].shape, matrices[0].elements);
        let per_row = if x.dim(0)? == tokens { per_token } else { 1 };
        if x.dims() != [tokens * per_token / per_row, inputs] {
            bail!("experts of {inputs} inputs and {tokens} tokens are given {:?}", x.dims());
        }
        let (source, (x, factors, per_row)) = match elements {
            Elements::Packed(_) if tokens >= packed::QUANTIZE_FROM => {
                let rows = quantize_rows(x, factors.map(|factors| (factors, per_row)))?;
                (&PACKED, (rows, None, if factors.is_some() { 1 } else { per_row }))
            }
            Elements::Packed(_) => (&PACKED, (x.contiguous()?, factors, per_row)),
            Elements::Dense(dtype) => {
                let x = x.to_dtype(if many { dtype } else { DType::F32 })?.contiguous()?;
                (&SOURCE, (x, factors, per_row))
            }
        };
        // What is gated goes into a product of the same form.
        let out_type = match elements {
            Elements::Dense(dtype) if many && gated => dtype,
            Elements::Dense(_) | Elements::Packed(_) => DType::F32,
        };
        let Form { kind, tile_rows, tiles_at_once, threads, shared, stage, .. } =
            self.form(matrices[0], (tokens, per_token), many);
        let out = output_buffer((tokens * per_token, rows), out_type, device)?;
        let [[weight, bias], [up, up_bias]] = [matrices[0].addresses()?, matrices[1].addresses()?];
        let arguments = Experts {
            weight,
            up,
            bias,
            up_bias,
            x: Address::of(&x, x.dtype())?,
            factors: Address::of_some(factors, DType::F32)?,
            pairs: Address::of(&chosen.pairs, DType::U32)?,
            tiles: Address::of(&chosen.tiles, DType::U32)?,
            out: Address::to_write(&out, out_type)?,
            rows: narrow(rows)?,
            inputs: narrow(inputs)?,
            per_row: narrow(per_row)?,
            stage: narrow(stage)?,
            x_rounded: u32::from(x.dtype() != DType::F32),
            out_rounded: u32::from(out_type != DType::F32),
            gated: u32::from(gated),
            gating: gating.map_or_else(ElementwiseOp::default, ElementwiseOp::from),
        };
        let tiles = rows.div_ceil(if gated { tile_rows / 2 } else { tile_rows });
        let grid = [most_tiles, tiles.div_ceil(tiles_at_once), 1];
        let kernel = format!("experts_{kind}");
        let launch = Launch { source, kernel: &kernel, grid, threads, shared };
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
                let (dtype, aligned) = (DType::BF16, true);
                let shape = Shape { dtype, tokens, inputs, aligned, most_shared };
                let form = shape.form_for_experts(1024, most_inputs);
                let all = form.shared + own_shared(form.capacity);
                assert!(all <= most_shared, "{tokens} tokens of {inputs}: {all} of {most_shared}");
            }
        }
    }
}
