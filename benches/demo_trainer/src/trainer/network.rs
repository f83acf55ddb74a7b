//! The network (Qwen3's: Yang et al. 2025): its sizes, its parameters, one pass forward and back.
//! Refuses to know the optimizer and where texts come from.
//!
//! Queries, keys and values are one matrix here, gate and up another: fewer and larger products. The
//! folder has them apart, as Hugging Face names them.

use super::attention::{Heads, Memory};
use super::ops::{self, floats, matrix};
use crate::corpus::dice::Dice;
use candle_core::{Device, Result, Tensor};

/// Sizes of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    pub(crate) layers: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) head: usize,
    pub(crate) inner: usize,
    pub(crate) theta: f64,
    /// Positions that a query of any layer sees, its own among them.
    pub(crate) window: usize,
    pub(crate) positions: usize,
}

/// Parameters before the first layer, and of each layer.
const BEFORE: usize = 1;
const PER_LAYER: usize = 8;

/// Parameters of a layer, in order.
#[derive(Clone, Copy)]
enum Part {
    AttentionNorm,
    Qkv,
    QueryNorm,
    KeyNorm,
    Output,
    MlpNorm,
    GateUp,
    Down,
}

impl Shape {
    /// Every parameter's rows and columns; a norm has one row.
    pub(crate) fn parameters(&self) -> Vec<(usize, usize)> {
        let mut shapes = vec![(self.vocabulary, self.width)];
        for _ in 0..self.layers {
            shapes.extend([
                (1, self.width),
                ((self.queries + 2 * self.keys) * self.head, self.width),
                (1, self.head),
                (1, self.head),
                (self.width, self.queries * self.head),
                (1, self.width),
                (2 * self.inner, self.width),
                (self.width, self.inner),
            ]);
        }
        shapes.push((1, self.width));
        shapes
    }

    fn at(layer: usize, part: Part) -> usize {
        BEFORE + layer * PER_LAYER + part as usize
    }

    fn last(&self) -> usize {
        BEFORE + self.layers * PER_LAYER
    }

    /// First values: embeddings of 0.02, matrices of 0.5 / sqrt(columns), those that write into the
    /// residual divided by sqrt(2 layers), norms of 1.
    pub(crate) fn initial(&self, dice: &mut Dice) -> Vec<Vec<f32>> {
        let residual = (2.0 * self.layers as f32).sqrt();
        let writes = |index: usize| {
            (0..self.layers).any(|layer| {
                index == Self::at(layer, Part::Output) || index == Self::at(layer, Part::Down)
            })
        };
        let shapes = self.parameters();
        let fill = |(index, &(rows, columns)): (usize, &(usize, usize))| {
            let spread = match index {
                0 => 0.02,
                _ if rows == 1 => return vec![1.0; columns],
                _ if writes(index) => 0.5 / (columns as f32).sqrt() / residual,
                _ => 0.5 / (columns as f32).sqrt(),
            };
            (0..rows * columns).map(|_| dice.normal() * spread).collect()
        };
        shapes.iter().enumerate().map(fill).collect()
    }
}

/// Conversations laid end to end, and what the network is to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) tokens: Vec<u32>,
    /// Start and length of each conversation.
    pub(crate) documents: Vec<(usize, usize)>,
    /// Positions that are scored, and the token that follows each.
    pub(crate) scored: Vec<(u32, u32)>,
}

impl Batch {
    /// Adds a conversation; a token is scored where its mark is set.
    pub(crate) fn push(&mut self, tokens: &[u32], marks: &[bool]) {
        let start = self.tokens.len();
        self.tokens.extend(tokens);
        self.documents.push((start, tokens.len()));
        for (index, mark) in marks.iter().enumerate().skip(1) {
            if *mark {
                self.scored.push(((start + index - 1) as u32, tokens[index]));
            }
        }
    }
}

/// The parameters as tensors, ready for products.
pub(crate) struct Network {
    pub(crate) shape: Shape,
    pub(crate) heads: Heads,
    parameters: Vec<Tensor>,
}

/// What the way back needs of a layer.
struct LayerMemory {
    input: Tensor,
    normed: Tensor,
    qkv: Tensor,
    documents: Vec<Memory>,
    mixed: Tensor,
    middle: Tensor,
    middle_normed: Tensor,
    gate_up: Tensor,
    activated: Tensor,
}

impl Network {
    pub(crate) fn new(shape: Shape, values: &[Vec<f32>]) -> Result<Self> {
        let counts = [shape.queries, shape.keys];
        let heads = Heads::new(counts, shape.head, shape.theta, shape.window, shape.positions);
        let mut network = Self { shape, heads, parameters: Vec::new() };
        network.set(values)?;
        Ok(network)
    }

    /// Takes over new values of the parameters.
    pub(crate) fn set(&mut self, values: &[Vec<f32>]) -> Result<()> {
        let tensor = |(&(rows, columns), values): (&(usize, usize), &Vec<f32>)| match rows {
            1 => Tensor::from_slice(values, columns, &Device::Cpu),
            _ => Tensor::from_slice(values, (rows, columns), &Device::Cpu),
        };
        self.parameters =
            self.shape.parameters().iter().zip(values).map(tensor).collect::<Result<_>>()?;
        Ok(())
    }

    fn part(&self, layer: usize, part: Part) -> &Tensor {
        &self.parameters[Shape::at(layer, part)]
    }

    fn embed(&self, tokens: &[u32]) -> Result<Tensor> {
        let table = floats(&self.parameters[0]);
        let width = self.shape.width;
        let rows = tokens.iter().flat_map(|&token| {
            let start = token as usize * width;
            table[start..start + width].iter().copied()
        });
        matrix(rows.collect(), width)
    }

    /// The summed loss, and the gradient of that sum times `scale`, added to `grads`.
    pub(crate) fn learn(&self, batch: &Batch, scale: f32, grads: &mut [Vec<f32>]) -> Result<f64> {
        let mut hidden = self.embed(&batch.tokens)?;
        let mut memories = Vec::with_capacity(self.shape.layers);
        for layer in 0..self.shape.layers {
            let (next, memory) = self.layer(layer, hidden, &batch.documents)?;
            memories.push(memory);
            hidden = next;
        }
        let positions: Vec<u32> = batch.scored.iter().map(|(position, _)| *position).collect();
        let targets: Vec<u32> = batch.scored.iter().map(|(_, target)| *target).collect();
        let last = &self.parameters[self.shape.last()];
        let table = &self.parameters[0];
        let spoken = rows(&hidden, &positions)?;
        let normed = ops::rms_norm(&spoken, last)?;
        let logits = normed.matmul(&table.t()?)?;
        let (loss, grad_logits) = ops::cross_entropy(&logits, &targets, scale)?;
        add(&mut grads[0], &grad_logits.t()?.matmul(&normed)?);
        let grad = grad_logits.matmul(table)?;
        let grad = ops::rms_norm_back(&spoken, last, &grad, &mut grads[self.shape.last()])?;
        let mut grad = spread(&grad, &positions, batch.tokens.len())?;
        for (layer, memory) in memories.iter().enumerate().rev() {
            grad = self.layer_back(layer, memory, grad, grads)?;
        }
        let width = self.shape.width;
        for (row, &token) in floats(&grad).chunks_exact(width).zip(&batch.tokens) {
            let start = token as usize * width;
            for (sum, g) in grads[0][start..start + width].iter_mut().zip(row) {
                *sum += g;
            }
        }
        Ok(loss)
    }

    fn layer(
        &self,
        layer: usize,
        input: Tensor,
        documents: &[(usize, usize)],
    ) -> Result<(Tensor, LayerMemory)> {
        let norms = [self.part(layer, Part::QueryNorm), self.part(layer, Part::KeyNorm)];
        let normed = ops::rms_norm(&input, self.part(layer, Part::AttentionNorm))?;
        let qkv = normed.matmul(&self.part(layer, Part::Qkv).t()?)?;
        let (mixed, documents) = self.heads.forward(&qkv, norms, documents)?;
        let middle = (&input + mixed.matmul(&self.part(layer, Part::Output).t()?)?)?;
        let middle_normed = ops::rms_norm(&middle, self.part(layer, Part::MlpNorm))?;
        let gate_up = middle_normed.matmul(&self.part(layer, Part::GateUp).t()?)?;
        let activated = ops::swiglu(&gate_up)?;
        let output = (&middle + activated.matmul(&self.part(layer, Part::Down).t()?)?)?;
        let memory = LayerMemory {
            input,
            normed,
            qkv,
            documents,
            mixed,
            middle,
            middle_normed,
            gate_up,
            activated,
        };
        Ok((output, memory))
    }

    fn layer_back(
        &self,
        layer: usize,
        memory: &LayerMemory,
        grad: Tensor,
        grads: &mut [Vec<f32>],
    ) -> Result<Tensor> {
        let at = |part| Shape::at(layer, part);
        add(&mut grads[at(Part::Down)], &grad.t()?.matmul(&memory.activated)?);
        let inner = grad.matmul(self.part(layer, Part::Down))?;
        let inner = ops::swiglu_back(&memory.gate_up, &inner)?;
        add(&mut grads[at(Part::GateUp)], &inner.t()?.matmul(&memory.middle_normed)?);
        let inner = inner.matmul(self.part(layer, Part::GateUp))?;
        let norm = self.part(layer, Part::MlpNorm);
        let inner =
            ops::rms_norm_back(&memory.middle, norm, &inner, &mut grads[at(Part::MlpNorm)])?;
        let grad = (grad + inner)?;

        add(&mut grads[at(Part::Output)], &grad.t()?.matmul(&memory.mixed)?);
        let inner = grad.matmul(self.part(layer, Part::Output))?;
        let norms = [self.part(layer, Part::QueryNorm), self.part(layer, Part::KeyNorm)];
        let mut grad_norms = norms.map(|norm| vec![0f32; norm.elem_count()]);
        let inner =
            self.heads.backward(&memory.qkv, norms, &memory.documents, &inner, &mut grad_norms)?;
        for (part, sums) in [Part::QueryNorm, Part::KeyNorm].into_iter().zip(grad_norms) {
            grads[at(part)].iter_mut().zip(sums).for_each(|(grad, sum)| *grad += sum);
        }
        add(&mut grads[at(Part::Qkv)], &inner.t()?.matmul(&memory.normed)?);
        let inner = inner.matmul(self.part(layer, Part::Qkv))?;
        let norm = self.part(layer, Part::AttentionNorm);
        let inner =
            ops::rms_norm_back(&memory.input, norm, &inner, &mut grads[at(Part::AttentionNorm)])?;
        grad + inner
    }

    /// The logits behind the last of `tokens`, which continue what `cache` holds.
    pub(crate) fn next(&self, tokens: &[u32], cache: &mut Cache) -> Result<Vec<f32>> {
        let past = cache.length;
        let mut hidden = self.embed(tokens)?;
        for layer in 0..self.shape.layers {
            let norms = [self.part(layer, Part::QueryNorm), self.part(layer, Part::KeyNorm)];
            let normed = ops::rms_norm(&hidden, self.part(layer, Part::AttentionNorm))?;
            let qkv = normed.matmul(&self.part(layer, Part::Qkv).t()?)?;
            let mixed = self.heads.continued(&qkv, norms, past, &mut cache.layers[layer])?;
            hidden = (hidden + mixed.matmul(&self.part(layer, Part::Output).t()?)?)?;
            let normed = ops::rms_norm(&hidden, self.part(layer, Part::MlpNorm))?;
            let gate_up = normed.matmul(&self.part(layer, Part::GateUp).t()?)?;
            let activated = ops::swiglu(&gate_up)?;
            hidden = (hidden + activated.matmul(&self.part(layer, Part::Down).t()?)?)?;
        }
        cache.length += tokens.len();
        let last = rows(&hidden, &[tokens.len() as u32 - 1])?;
        let normed = ops::rms_norm(&last, &self.parameters[self.shape.last()])?;
        let logits = normed.matmul(&self.parameters[0].t()?)?;
        Ok(floats(&logits).to_vec())
    }
}

/// Keys and values of what was said so far.
pub(crate) struct Cache {
    length: usize,
    layers: Vec<[Vec<f32>; 2]>,
}

impl Cache {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self { length: 0, layers: vec![[Vec::new(), Vec::new()]; shape.layers] }
    }
}

fn add(sums: &mut [f32], grad: &Tensor) {
    sums.iter_mut().zip(floats(grad).iter()).for_each(|(sum, g)| *sum += g);
}

fn rows(input: &Tensor, positions: &[u32]) -> Result<Tensor> {
    let width = input.dim(1)?;
    let input = floats(input);
    let picked = positions.iter().flat_map(|&position| {
        let start = position as usize * width;
        input[start..start + width].iter().copied()
    });
    matrix(picked.collect(), width)
}

/// The way back of `rows`; positions are in rising order and occur once.
fn spread(grad: &Tensor, positions: &[u32], length: usize) -> Result<Tensor> {
    let width = grad.dim(1)?;
    let mut output = vec![0f32; length * width];
    for (row, &position) in floats(grad).chunks_exact(width).zip(positions) {
        let start = position as usize * width;
        output[start..start + width].copy_from_slice(row);
    }
    matrix(output, width)
}
