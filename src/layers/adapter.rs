//! LoRA adapters: low-rank terms that are added to the outputs of linear layers, for some rows of a
//! batch.
//!
//! Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. A row's result doesn't depend
//! on the other rows, and rows without an adapter have the results of a batch without any. On the CPU
//! all adapters of a batch are one operation; on other devices an adapter's two matrices are multiplied
//! like any others.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Result, Tensor};

use super::linear::{Linear, Matrix};
use crate::kernels::backend::Backend;
use crate::kernels::low_rank::{LowRank, LowRankRows, low_rank_add};
use crate::kernels::put_rows::put_rows;
use crate::weights::stored::dense_dtype;
use crate::weights::{Loaded, StoredTensor, Weights};

/// A linear layer within a layer of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// The query projection.
    Query,
    /// The projection to gates of heads.
    HeadGate,
    /// The key projection.
    Key,
    /// The value projection.
    Value,
    /// The output projection of attention.
    Output,
    /// The gate projection of the feed-forward part.
    Gate,
    /// The up projection of the feed-forward part.
    Up,
    /// The down projection of the feed-forward part.
    Down,
}

/// A linear layer that an adapter may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// A projection in the layer of this index.
    Layer(usize, Projection),
    /// The output head.
    Head,
}

/// The term that an adapter adds to one linear layer: `scale * up(down(x))`.
#[derive(Clone, Debug)]
pub struct Delta {
    product: Product,
    scale: f32,
}

#[derive(Clone, Debug)]
enum Product {
    /// In host memory, for all adapters of a batch together.
    Host(LowRank),
    /// On another device.
    Device { down: Linear, up: Linear },
}

impl Delta {
    /// The term of `down [rank, inputs]` and `up [outputs, rank]`, converted to `kind` if one is given,
    /// on the device of `weights`.
    pub fn load(
        weights: &Weights,
        [down, up]: [&StoredTensor; 2],
        scale: f32,
        kind: Option<GgmlDType>,
    ) -> Loaded<Self> {
        let product = if Backend::of(weights.device()).is_cpu() {
            let dtype = kind.map_or(down.dense_dtype(), dense_dtype).unwrap_or(DType::F32);
            let term = LowRank::new(&down.to_tensor(dtype)?, &up.to_tensor(dtype)?)?;
            weights.tally().add(dtype.as_str(), term.size_in_bytes());
            Product::Host(term)
        } else {
            let linear = |stored: &StoredTensor| -> Loaded<Linear> {
                let matrix = Matrix::from_stored(weights, stored, kind)?;
                Ok(Linear::from_matrix(matrix, None)?)
            };
            Product::Device { down: linear(down)?, up: linear(up)? }
        };
        Ok(Self { product, scale })
    }
}

/// The term that an adapter adds to embeddings: of each token a row of one matrix, times the other.
#[derive(Clone, Debug)]
pub struct EmbeddingDelta {
    /// `[rows, rank]`, in host memory.
    rows: Vec<f32>,
    /// `[rank, hidden]`, times the scale.
    up: Vec<f32>,
    rank: usize,
    /// Whether tokens have rows of their own, and not all of them the first one.
    of_tokens: bool,
}

impl EmbeddingDelta {
    /// The term of `rows [rows, rank]` and `up [rank, hidden]`, by each token's id; unless `of_tokens`, by the
    /// first row for all.
    pub fn load([rows, up]: [&StoredTensor; 2], scale: f32, of_tokens: bool) -> Loaded<Self> {
        let numbers = |stored: &StoredTensor| -> Loaded<Vec<f32>> {
            Ok(stored.to_tensor(DType::F32)?.flatten_all()?.to_vec1()?)
        };
        let rank = rows.dims().last().copied().unwrap_or(0);
        let up = numbers(up)?.into_iter().map(|factor| factor * scale).collect();
        Ok(Self { rows: numbers(rows)?, up, rank, of_tokens })
    }

    /// Bytes of its matrices.
    pub fn size_in_bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.up)
    }

    /// Adds the term of the token `id` to its embedding.
    fn add(&self, id: u32, embedding: &mut [f32]) {
        let row = if self.of_tokens { id as usize } else { 0 } * self.rank;
        let factors = &self.rows[row..row + self.rank];
        for (factor, up) in factors.iter().zip(self.up.chunks_exact(embedding.len())) {
            for (sum, up) in embedding.iter_mut().zip(up) {
                *sum += factor * up;
            }
        }
    }
}

/// A loaded adapter.
#[derive(Debug)]
pub struct Adapter {
    deltas: HashMap<Site, Delta>,
    embeddings: Vec<EmbeddingDelta>,
    bytes: usize,
}

impl Adapter {
    /// An adapter of these linear layers, whose matrices take `bytes`.
    pub fn new(deltas: HashMap<Site, Delta>, bytes: usize) -> Self {
        Self { deltas, embeddings: Vec::new(), bytes }
    }

    /// The same, with terms of embeddings.
    #[must_use]
    pub fn with_embeddings(self, embeddings: Vec<EmbeddingDelta>) -> Self {
        let own: usize = embeddings.iter().map(EmbeddingDelta::size_in_bytes).sum();
        Self { embeddings, bytes: self.bytes + own, ..self }
    }

    /// Bytes of its matrices.
    pub fn size_in_bytes(&self) -> usize {
        self.bytes
    }
}

/// The rows of a batch that an adapter applies to.
#[derive(Clone, Debug)]
pub struct AdaptedRows {
    /// The adapter.
    pub adapter: Arc<Adapter>,
    /// Indices of the rows, ascending.
    pub rows: Vec<u32>,
}

impl PartialEq for AdaptedRows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.adapter, &other.adapter) && self.rows == other.rows
    }
}

impl Eq for AdaptedRows {}

/// The embeddings `x [tokens, hidden]` of the tokens `ids`, with the terms of the adapters of their rows.
pub fn add_to_embeddings(batch: &[AdaptedRows], ids: &[u32], x: Tensor) -> Result<Tensor> {
    if batch.iter().all(|part| part.adapter.embeddings.is_empty()) {
        return Ok(x);
    }
    let (tokens, hidden) = x.dims2()?;
    let mut terms = vec![0.0; tokens * hidden];
    for AdaptedRows { adapter, rows } in batch {
        for row in rows.iter().map(|row| *row as usize) {
            let term = &mut terms[row * hidden..(row + 1) * hidden];
            adapter.embeddings.iter().for_each(|delta| delta.add(ids[row], term));
        }
    }
    let terms = Tensor::from_vec(terms, (tokens, hidden), &Device::Cpu)?;
    let terms = terms.to_device(x.device())?.to_dtype(x.dtype())?;
    x + terms
}

/// The adapters of the rows that a layer computes.
#[derive(Debug, Default)]
pub struct Adapters<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Debug)]
struct Part<'a> {
    adapter: &'a Adapter,
    rows: Vec<u32>,
    /// `rows` on another device; `None` if they are all rows.
    index: Option<Tensor>,
}

impl<'a> Adapters<'a> {
    /// The adapters of all rows of a batch.
    pub fn of_all(batch: &'a [AdaptedRows], num_rows: usize, device: &Device) -> Result<Self> {
        Self::of(batch, num_rows, device, <[u32]>::to_vec)
    }

    /// The adapters of the rows `kept`, ascending, which are numbered in their order.
    pub fn of_kept(batch: &'a [AdaptedRows], kept: &[u32], device: &Device) -> Result<Self> {
        Self::of(batch, kept.len(), device, |rows| {
            let indices = (0..).zip(kept).filter(|(_, row)| rows.binary_search(row).is_ok());
            indices.map(|(index, _)| index).collect()
        })
    }

    fn of(
        batch: &'a [AdaptedRows],
        num_rows: usize,
        device: &Device,
        renumber: impl Fn(&[u32]) -> Vec<u32>,
    ) -> Result<Self> {
        let mut parts = Vec::with_capacity(batch.len());
        for AdaptedRows { adapter, rows } in batch {
            let rows = renumber(rows);
            if rows.is_empty() {
                continue;
            }
            let all = rows.len() == num_rows;
            let index = if all { None } else { Some(Tensor::new(rows.as_slice(), device)?) };
            parts.push(Part { adapter, rows, index });
        }
        Ok(Self { parts })
    }

    /// The adapters in layer `index`.
    pub fn layer(&self, index: usize) -> LayerAdapters<'_> {
        LayerAdapters { adapters: self, index }
    }

    /// `y + factor * delta(x)` for the rows whose adapters change `site`, and `y` for others.
    /// Nothing else may refer to the memory of `y`.
    pub fn add(&self, site: Site, x: &Tensor, y: Tensor, factor: f32) -> Result<Tensor> {
        let (mut y, mut on_host) = (y, Vec::new());
        for Part { adapter, rows, index } in &self.parts {
            let Some(Delta { product, scale }) = adapter.deltas.get(&site) else { continue };
            let factor = factor * scale;
            match (product, index) {
                (Product::Host(term), _) => on_host.push(LowRankRows { term, rows, factor }),
                (Product::Device { down, up }, None) => {
                    y = up.forward_add_scaled(&down.forward(x)?, &y, factor)?;
                }
                (Product::Device { down, up }, Some(index)) => {
                    let (x, own) = (x.index_select(index, 0)?, y.index_select(index, 0)?);
                    let own = up.forward_add_scaled(&down.forward(&x)?, &own, factor)?;
                    put_rows(&y, rows, &own)?;
                }
            }
        }
        if !on_host.is_empty() {
            low_rank_add(x, &y, &on_host)?;
        }
        Ok(y)
    }
}

/// The adapters of the rows that a layer computes, in that layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerAdapters<'a> {
    adapters: &'a Adapters<'a>,
    index: usize,
}

/// No adapters.
static NONE: Adapters<'static> = Adapters { parts: Vec::new() };

impl LayerAdapters<'static> {
    /// No adapters.
    pub fn none() -> Self {
        NONE.layer(0)
    }
}

impl LayerAdapters<'_> {
    /// Whether any row's adapter changes one of these projections.
    pub fn change(&self, projections: &[Projection]) -> bool {
        let mut sites = projections.iter().map(|projection| Site::Layer(self.index, *projection));
        let parts = &self.adapters.parts;
        sites.any(|site| parts.iter().any(|part| part.adapter.deltas.contains_key(&site)))
    }

    /// As [`Adapters::add`].
    pub fn add(
        &self,
        projection: Projection,
        x: &Tensor,
        y: Tensor,
        factor: f32,
    ) -> Result<Tensor> {
        self.adapters.add(Site::Layer(self.index, projection), x, y, factor)
    }
}
