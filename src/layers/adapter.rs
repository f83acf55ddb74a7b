//! LoRA adapters: what is added to the results of linear layers, for some of a batch's rows.
//!
//! Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. An adapter's two matrices
//! are multiplied like any others, so a row's result doesn't depend on the rows beside it, and rows
//! without an adapter are those of a batch without any.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use super::linear::Linear;
use crate::kernels::put_rows::put_rows;

/// A linear layer of a decoder's layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// To queries.
    Query,
    /// To gates of what query heads attend to.
    HeadGate,
    /// To keys.
    Key,
    /// To values.
    Value,
    /// Of what attention gives.
    Output,
    /// The one that is activated, in a feed-forward part with a gate.
    Gate,
    /// Into a feed-forward part.
    Up,
    /// Out of it.
    Down,
}

/// A linear layer of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// One of a layer.
    Layer(usize, Projection),
    /// The output head.
    Head,
}

/// What an adapter adds to one linear layer: `scale * up(down(x))`.
#[derive(Clone, Debug)]
pub struct Delta {
    /// `[rank, inputs]`
    pub down: Linear,
    /// `[outputs, rank]`
    pub up: Linear,
    /// Its factor.
    pub scale: f32,
}

impl Delta {
    /// `y + factor * delta(x)`
    fn add(&self, x: &Tensor, y: &Tensor, factor: f32) -> Result<Tensor> {
        self.up.forward_add_scaled(&self.down.forward(x)?, y, factor * self.scale)
    }
}

/// An adapter in memory.
#[derive(Debug)]
pub struct Adapter {
    deltas: HashMap<Site, Delta>,
    bytes: usize,
}

impl Adapter {
    /// An adapter of these layers, whose matrices take so many bytes.
    pub fn new(deltas: HashMap<Site, Delta>, bytes: usize) -> Self {
        Self { deltas, bytes }
    }

    /// Bytes that its matrices take.
    pub fn size_in_bytes(&self) -> usize {
        self.bytes
    }
}

/// Rows of a batch that belong to an adapter.
#[derive(Clone, Debug)]
pub struct AdaptedRows {
    /// Whose they are.
    pub adapter: Arc<Adapter>,
    /// Which, ascending.
    pub rows: Vec<u32>,
}

impl PartialEq for AdaptedRows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.adapter, &other.adapter) && self.rows == other.rows
    }
}

impl Eq for AdaptedRows {}

/// The adapters of the rows that layers compute.
#[derive(Debug, Default)]
pub struct Adapters<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Debug)]
struct Part<'a> {
    adapter: &'a Adapter,
    rows: Vec<u32>,
    /// The same on the device; none if these are all rows that there are.
    index: Option<Tensor>,
}

impl<'a> Adapters<'a> {
    /// Of all rows of a batch.
    pub fn of_all(batch: &'a [AdaptedRows], num_rows: usize, device: &Device) -> Result<Self> {
        Self::of(batch, num_rows, device, <[u32]>::to_vec)
    }

    /// Of the rows that `kept` names, ascending, in their order.
    pub fn of_kept(batch: &'a [AdaptedRows], kept: &[u32], device: &Device) -> Result<Self> {
        Self::of(batch, kept.len(), device, |rows| {
            let places = (0..).zip(kept).filter(|(_, row)| rows.binary_search(row).is_ok());
            places.map(|(place, _)| place).collect()
        })
    }

    fn of(
        batch: &'a [AdaptedRows],
        num_rows: usize,
        device: &Device,
        places: impl Fn(&[u32]) -> Vec<u32>,
    ) -> Result<Self> {
        let mut parts = Vec::with_capacity(batch.len());
        for AdaptedRows { adapter, rows } in batch {
            let rows = places(rows);
            if rows.is_empty() {
                continue;
            }
            let all = rows.len() == num_rows;
            let index = if all { None } else { Some(Tensor::new(rows.as_slice(), device)?) };
            parts.push(Part { adapter, rows, index });
        }
        Ok(Self { parts })
    }

    /// Those of one layer.
    pub fn layer(&self, index: usize) -> LayerAdapters<'_> {
        LayerAdapters { adapters: self, index }
    }

    /// `y + factor * delta(x)` for the rows whose adapters change `site`; the others stay.
    /// Nothing else refers to the memory of `y`.
    pub fn add(&self, site: Site, x: &Tensor, y: Tensor, factor: f32) -> Result<Tensor> {
        let mut y = y;
        for Part { adapter, rows, index } in &self.parts {
            let Some(delta) = adapter.deltas.get(&site) else { continue };
            match index {
                None => y = delta.add(x, &y, factor)?,
                Some(index) => {
                    let own = [x.index_select(index, 0)?, y.index_select(index, 0)?];
                    put_rows(&y, rows, &delta.add(&own[0], &own[1], factor)?)?;
                }
            }
        }
        Ok(y)
    }
}

/// The adapters of a layer's rows.
#[derive(Clone, Copy, Debug)]
pub struct LayerAdapters<'a> {
    adapters: &'a Adapters<'a>,
    index: usize,
}

/// For rows that have none.
static NONE: Adapters<'static> = Adapters { parts: Vec::new() };

impl LayerAdapters<'static> {
    /// Those of rows that have none.
    pub fn none() -> Self {
        NONE.layer(0)
    }
}

impl LayerAdapters<'_> {
    /// Whether any row's adapter changes one of these.
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
