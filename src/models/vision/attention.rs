//! The attention of a tower's layer.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::product::{Product, Shape};
use super::spec::{Biases, HeadSpec, Qkv, RopeLayout, TowerSpec};
use crate::layers::full_attention::{FullAttention, HeadNorms, Heads, Texts, attend};
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, NormScale, NormSpec};
use crate::weights::{Loaded, Weights};

/// Loaded attention.
#[derive(Debug)]
pub(super) enum Attention {
    /// Projections, and scores over the root of a head's size.
    Plain(Box<FullAttention>),
    /// Heads of queries, keys and values are normed, and scores have a factor of their own.
    Normed(Box<NormedAttention>),
}

/// Attention with norms of heads.
#[derive(Debug)]
pub(super) struct NormedAttention {
    qkv: [Product; 3],
    output: Product,
    /// `[head_dim]`: scales of query and key heads.
    scales: [Tensor; 2],
    value_norm: Option<Norm>,
    heads: Heads,
    own: HeadSpec,
}

impl Attention {
    pub(super) fn load(weights: &Weights, spec: &TowerSpec) -> Loaded<Self> {
        match spec.normed_heads {
            Some(own) => NormedAttention::load(weights, spec, own).map(Box::new).map(Self::Normed),
            None => plain(weights, spec).map(|attention| Self::Plain(Box::new(attention))),
        }
    }

    /// `residual` plus the output of attention on `x`, both `[patches, hidden]`.
    pub(super) fn forward_add(
        &self,
        residual: &Tensor,
        x: &Tensor,
        texts: &Texts,
    ) -> Result<Tensor> {
        match self {
            Self::Plain(attention) => attention.forward_add(residual, x, texts),
            Self::Normed(attention) => residual + attention.forward(x, texts)?,
        }
    }

    /// The output of attention on `x [patches, hidden]`.
    pub(super) fn forward(&self, x: &Tensor, texts: &Texts) -> Result<Tensor> {
        match self {
            Self::Plain(attention) => attention.forward_add(&x.zeros_like()?, x, texts),
            Self::Normed(attention) => attention.forward(x, texts),
        }
    }
}

fn plain(weights: &Weights, spec: &TowerSpec) -> Loaded<FullAttention> {
    let TowerSpec { hidden, names, attention_biases, .. } = *spec;
    let biased = attention_biases == Biases::All;
    let heads = Heads { count: spec.heads, dim: spec.head_dim() };
    let order = order(heads, spec.rope.map(|rope| rope.layout));
    let third = |index: usize| match (names.qkv, order.as_deref().filter(|_| index < 2)) {
        (Qkv::Joined(name), order) => {
            let rows = rows_of_third(index, hidden, order);
            Linear::load_rows(&weights.scope(name), hidden, 3 * hidden, biased, &rows)
        }
        (Qkv::Apart(names), Some(order)) => {
            Linear::load_rows(&weights.scope(names[index]), hidden, hidden, biased, order)
        }
        (Qkv::Apart(names), None) => {
            Linear::load(&weights.scope(names[index]), hidden, hidden, biased)
        }
    };
    let output = weights.scope(names.output);
    Ok(FullAttention {
        query: third(0)?,
        key: third(1)?,
        value: third(2)?,
        output: Linear::load(&output, hidden, hidden, attention_biases != Biases::None)?,
        heads,
    })
}

impl NormedAttention {
    fn load(weights: &Weights, spec: &TowerSpec, own: HeadSpec) -> Loaded<Self> {
        let heads = Heads { count: spec.heads, dim: spec.head_dim() };
        let bias = spec.attention_biases == Biases::All;
        let shape = Shape { inputs: spec.hidden, outputs: spec.hidden, bias };
        let order = order(heads, spec.rope.map(|rope| rope.layout));
        let third = |index: usize| {
            let own = order.as_deref().filter(|_| index < 2);
            match spec.names.qkv {
                Qkv::Apart(names) => {
                    Product::load(&weights.scope(names[index]), shape, own, spec.bounded)
                }
                Qkv::Joined(name) => {
                    let rows = rows_of_third(index, spec.hidden, own);
                    let shape = Shape { outputs: 3 * spec.hidden, ..shape };
                    Product::load(&weights.scope(name), shape, Some(&rows), spec.bounded)
                }
            }
        };
        let qkv = [third(0)?, third(1)?, third(2)?];
        let first = order.as_deref().map(|order| &order[..order.len() / heads.count]);
        let scale = |name: &str| -> Loaded<Tensor> {
            let scale = weights.scope(name).dense("weight", &[heads.dim], DType::F32)?;
            let Some(order) = first else { return Ok(scale) };
            let parts = order.iter().map(|rows| scale.narrow(0, rows.start, rows.len()));
            let parts: Vec<Tensor> = parts.collect::<Result<_>>()?;
            Ok(Tensor::cat(&parts, 0)?)
        };
        let value = NormSpec { scale: NormScale::One, ..NormSpec::rms(own.eps) };
        let norm = own.values.then(|| Norm::load(weights, heads.dim, value));
        let output = weights.scope(spec.names.output);
        Ok(Self {
            qkv,
            output: Product::load(&output, shape, None, spec.bounded)?,
            scales: [scale(own.norms[0])?, scale(own.norms[1])?],
            value_norm: norm.transpose()?,
            heads,
            own,
        })
    }

    fn forward(&self, x: &Tensor, texts: &Texts) -> Result<Tensor> {
        let Heads { count, dim } = self.heads;
        let shape = (x.dim(0)?, count, dim);
        let [q, k, v] = &self.qkv;
        let (q, k) = (q.forward(x)?.reshape(shape)?, k.forward(x)?.reshape(shape)?);
        let mut v = v.forward(x)?;
        if let Some(norm) = &self.value_norm {
            v = norm.forward(&v.reshape(((), dim))?)?;
        }
        let v = v.reshape(shape)?;
        let [query, key] = &self.scales;
        let norms = HeadNorms { query, key, eps: self.own.eps, after_rotation: false };
        self.output.forward(&attend([&q, &k, &v], texts, Some(norms), self.own.scale)?)
    }
}

/// The rows of queries, keys or values, in this `order` if there is one, where all are one matrix.
fn rows_of_third(index: usize, hidden: usize, order: Option<&[Range<usize>]>) -> Vec<Range<usize>> {
    let (first, whole) = (index * hidden, 0..hidden);
    let own = order.unwrap_or(std::slice::from_ref(&whole)).iter();
    own.map(|rows| first + rows.start..first + rows.end).collect()
}

/// The order of the rows of queries and keys in which heads are rotated half by half, all heads one after
/// the other, where they are not stored so.
fn order(heads: Heads, layout: Option<RopeLayout>) -> Option<Vec<Range<usize>>> {
    let of_head = |head: usize| -> Vec<Range<usize>> {
        let start = head * heads.dim;
        if layout == Some(RopeLayout::Apart) {
            let quarter = heads.dim / 4;
            let part = |part: usize| start + part * quarter..start + (part + 1) * quarter;
            return [0, 2, 1, 3].map(part).to_vec();
        }
        let row = |row: usize| start + row..start + row + 1;
        if layout == Some(RopeLayout::Alternating) {
            // First elements of the pairs of columns, then of rows; then the second ones.
            let part = |first: usize| (first..heads.dim).step_by(4);
            return [0, 2, 1, 3].into_iter().flat_map(part).map(row).collect();
        }
        (0..heads.dim).step_by(2).chain((1..heads.dim).step_by(2)).map(row).collect()
    };
    let stored_so = matches!(layout, None | Some(RopeLayout::Joint | RopeLayout::Turns));
    (!stored_so).then(|| (0..heads.count).flat_map(of_head).collect())
}
