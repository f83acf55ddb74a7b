//! A loaded tower, and one look at a picture, which can be taken in parts.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::connector::Connector;
use super::grid::{Grid, reduced};
use super::layer::Layer;
use super::merger::Merger;
use super::patches::Patches;
use super::spec::{Fit, Positions, Stage, Stored, StoredForm, TowerSpec};
use crate::layers::full_attention::{Heads, Texts};
use crate::layers::norm::{Norm, NormSpec};
use crate::pictures::picture::{Normalization, Picture};
use crate::weights::stored::dense_dtype;
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded tower.
#[derive(Debug)]
pub struct Tower {
    patches: Patches,
    /// The learned embedding of positions.
    positions: Option<Table>,
    /// `[1, hidden]`, with its position.
    class_token: Option<Tensor>,
    first_norm: Option<Norm>,
    layers: Vec<Layer>,
    merger: Option<Merger>,
    last_norm: Option<Norm>,
    connector: Connector,
    /// The connectors after some of the layers.
    deepstack: Vec<(usize, Connector)>,
    /// `[marks, output]`: the features of tokens around those of pictures, or of the end of a row of them.
    marks: Option<Tensor>,
    normalization: Normalization,
    spec: TowerSpec,
    device: Device,
}

/// A learned embedding of positions.
#[derive(Debug)]
struct Table {
    /// `[side * side, hidden]`, or of two axes `[2 * side, hidden]`.
    rows: Tensor,
    side: usize,
    fit: Fit,
}

/// A look at one picture, as far as it is taken.
#[derive(Debug)]
pub struct Look {
    x: Tensor,
    /// What patches see in layers with windows, and in the others.
    windows: Option<Texts>,
    whole: Texts,
    /// For each token in rows, where it stands.
    order: Vec<u32>,
    /// Rows and columns of patches.
    size: [usize; 2],
    next_layer: usize,
    /// Features that need no look.
    known: Option<Tensor>,
    /// Hidden states that the connector gets, and after how many layers they were.
    gathered: Vec<(usize, Tensor)>,
    /// What the features of a grid's tokens are reduced to.
    reduction: Option<Reduction>,
    /// Features of the tokens in the tower's order, `[tokens, output]` each.
    features: Vec<Tensor>,
}

/// What becomes of the features of a grid of tokens.
#[derive(Debug)]
struct Reduction {
    /// Columns of the grid.
    columns: usize,
    /// The rows and columns that are shown.
    shown: [Range<usize>; 2],
    /// The rows and columns that these become.
    size: [usize; 2],
}

impl Tower {
    /// Loads the weights of `spec`, which looks at pixels through `normalization`. They are kept as
    /// they are stored where the decoder's are rounded to few bits: towers are small.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn load(
        spec: TowerSpec,
        normalization: Normalization,
        weights: &Weights,
    ) -> std::result::Result<Self, WeightError> {
        let dense = weights.rounding().filter(|kind| dense_dtype(*kind).is_some());
        let weights = weights.clone().rounded_to(dense);
        let separator = spec.separator.iter().find(|name| weights.contains(name));
        let separator = separator.map(|name| -> Loaded<Tensor> {
            let features = weights.dense(name, &[spec.output], DType::F32)?;
            Ok(features.reshape((1, spec.output))?)
        });
        let separator = separator.transpose()?;
        let root = spec.root(&weights).or(spec.roots.first().copied());
        let [tower, connector] = root.map_or(["", ""], |root| [root.tower, root.connector]);
        let (weights, connector) = (weights.scope_as(tower), weights.scope_as(connector));
        let norm =
            |(name, norm): (&str, NormSpec)| Norm::load(&weights.scope(name), spec.hidden, norm);
        let layers = weights.scope(spec.names.layers);
        let layers = (0..spec.layers).map(|index| Layer::load(&layers.scope(index), &spec));
        // Of those that were merged early one is left.
        let patches = (spec.merge / spec.early_merge()).pow(2);
        let stages = |own: &Weights, stages: &[Stage], width| {
            Connector::load([&weights, own], stages, width, patches)
        };
        let mergers = weights.scope(spec.deepstack_list);
        let merger = |(index, layer): (usize, &usize)| {
            Ok((*layer, stages(&mergers.scope(index), &spec.deepstack_connector, spec.hidden)?))
        };
        let deepstack = spec.deepstack.iter().enumerate().map(merger);
        let (positions, class_token) = Self::embeddings(&weights, &spec)?;
        let merger = spec.merger.as_ref().map(|own| Merger::load(&weights, own, &spec));
        let marks = spec.marks.map(|own| -> Loaded<Tensor> {
            let table = connector.dense(own.table, &[own.rows, spec.output], DType::F32)?;
            Ok(table.narrow(0, own.rows - own.count, own.count)?.contiguous()?)
        });
        let width = spec.hidden * spec.gathered.len().max(1);
        Ok(Self {
            patches: Patches::load(&weights, &spec)?,
            positions,
            class_token,
            first_norm: spec.first_norm.map(norm).transpose()?,
            layers: layers.collect::<Loaded<_>>()?,
            merger: merger.transpose()?,
            last_norm: spec.last_norm.map(norm).transpose()?,
            connector: stages(&connector, &spec.connector, width)?,
            deepstack: deepstack.collect::<Loaded<_>>()?,
            marks: marks.transpose()?.or(separator),
            normalization,
            device: weights.device().clone(),
            spec,
        })
    }

    /// The embedding of positions, and the class token with its own.
    fn embeddings(weights: &Weights, spec: &TowerSpec) -> Loaded<(Option<Table>, Option<Tensor>)> {
        let hidden = spec.hidden;
        let shape = |stored: Stored, ones: usize, own: &[usize]| match stored.form {
            StoredForm::Rows => own.to_vec(),
            StoredForm::Batched => [&vec![1; ones], own].concat(),
            StoredForm::Square => vec![own[0].isqrt(), own[0].isqrt(), hidden],
        };
        let own = |stored: Stored| {
            let token = weights.dense(stored.name, &shape(stored, 2, &[hidden]), DType::F32)?;
            Ok::<_, WeightError>(token.reshape((1, hidden))?)
        };
        let mut class_token = spec.class_token.map(own).transpose()?;
        let Some(Positions { stored, side, fit }) = spec.positions else {
            return Ok((None, class_token));
        };
        let axes = match fit {
            Fit::Axes => Some(weights.dense(stored.name, &[2, side, hidden], DType::F32)?),
            Fit::PairedAxes => {
                Some(weights.dense(stored.name, &[side, 2, hidden], DType::F32)?.transpose(0, 1)?)
            }
            _ => None,
        };
        if let Some(axes) = axes {
            let rows = axes.contiguous()?.flatten_to(1)?;
            return Ok((Some(Table { rows, side, fit }), class_token));
        }
        let extra = usize::from(class_token.is_some());
        let shape = shape(stored, 1, &[side * side + extra, hidden]);
        let rows = weights.dense(stored.name, &shape, DType::F32)?.reshape(((), hidden))?;
        let [class, first] =
            if fit == Fit::WholeBeforeClass { [side * side, 0] } else { [0, extra] };
        if let Some(token) = &mut class_token {
            *token = (token.clone() + rows.narrow(0, class, 1)?)?;
        }
        let rows = rows.narrow(0, first, side * side)?.contiguous()?;
        Ok((Some(Table { rows, side, fit }), class_token))
    }

    /// Elements of the features of a token.
    pub fn width(&self) -> usize {
        self.spec.output * (1 + self.spec.deepstack.len())
    }

    /// Begins to look at a picture.
    ///
    /// # Errors
    ///
    /// A picture that is not made of whole tokens.
    pub fn begin(&self, picture: &Picture) -> Result<Look> {
        let (rgb, [rows, columns]) = (picture.rgb(), picture.grid());
        let heads = Heads { count: self.spec.heads, dim: self.spec.head_dim() };
        if let Some(mark) = picture.mark() {
            return self.known(mark, heads);
        }
        let side = self.spec.patch * self.spec.merge;
        let squares = [rgb.height / side, rgb.width / side];
        let expected = self.spec.resampled().map_or(squares, |tokens| [1, tokens]);
        let whole = [rgb.height, rgb.width] == squares.map(|count| count * side);
        let fits = picture.shown().map_or([rows, columns] == expected, |shown| {
            shown.iter().zip(squares).all(|(own, count)| !own.is_empty() && own.end <= count)
        });
        if !fits || !whole || squares.contains(&0) {
            bail!("{rows} x {columns} tokens of {} x {} pixels", rgb.height, rgb.width);
        }
        let mut grid = Grid::new(squares, &self.spec);
        if self.spec.resampled().is_some() {
            // Tokens have no places.
            grid.order = (0..).take(columns).collect();
        }
        let mut x = self.patches.forward(rgb, &grid, &self.normalization, &self.device)?;
        if let Some(Table { rows, side, fit }) = &self.positions {
            x = (x + grid.positions(rows, *side, *fit)?)?;
        }
        if let Some(token) = &self.class_token {
            x = Tensor::cat(&[token, &x], 0)?;
        }
        if let Some(norm) = &self.first_norm {
            x = norm.forward(&x)?;
        }
        let [mut cos, mut sin] = grid.angles(&self.spec, &self.device)?;
        if self.class_token.is_some() && self.spec.rope.is_some() {
            // It is not rotated.
            let row = cos.narrow(0, 0, 1)?;
            cos = Tensor::cat(&[&row.ones_like()?, &cos], 0)?;
            sin = Tensor::cat(&[&row.zeros_like()?, &sin], 0)?;
        }
        let texts = |lengths: &[usize]| {
            let texts = Texts::new(lengths, heads, &self.device)?;
            let rotated = self.spec.rope.is_some();
            Ok::<_, candle_core::Error>(if rotated {
                texts.rotated(cos.clone(), sin.clone())
            } else {
                texts
            })
        };
        let windows = self.spec.windows.as_ref().map(|_| texts(&grid.windows));
        let whole = texts(&[x.dim(0)?])?;
        Ok(Look {
            x,
            windows: windows.transpose()?,
            whole,
            order: grid.order,
            size: grid.size,
            next_layer: 0,
            known: None,
            gathered: Vec::new(),
            reduction: picture.shown().map(|shown| Reduction {
                columns: squares[1],
                shown: shown.clone(),
                size: [rows, columns],
            }),
            features: Vec::new(),
        })
    }

    /// A look at what has features of its own.
    fn known(&self, mark: usize, heads: Heads) -> Result<Look> {
        let rows = self.marks.as_ref().filter(|marks| marks.dim(0).is_ok_and(|rows| mark < rows));
        let Some(rows) = rows else { bail!("a picture has no pixels") };
        let features = rows.narrow(0, mark, 1)?.contiguous()?;
        Ok(Look {
            x: features.clone(),
            windows: None,
            whole: Texts::new(&[1], heads, &self.device)?,
            order: vec![0],
            size: [1, 1],
            next_layer: 0,
            known: Some(features),
            gathered: Vec::new(),
            reduction: None,
            features: Vec::new(),
        })
    }

    /// Computes the next layer. After the last one the look ends with the features of the picture's
    /// tokens in rows, `[tokens, width]` in f32.
    pub fn advance(&self, look: &mut Look) -> Result<Option<Tensor>> {
        if let Some(features) = look.known.take() {
            return Ok(Some(features));
        }
        let index = look.next_layer;
        look.next_layer += 1;
        if let Some(layer) = self.layers.get(index) {
            let whole = self.spec.windows.as_ref().is_none_or(|w| w.whole.contains(&index));
            let windows = look.windows.as_ref().filter(|_| !whole).unwrap_or(&look.whole);
            look.x = layer.forward(&look.x, windows)?;
            if self.spec.gathered.contains(&look.next_layer) {
                look.gathered.push((look.next_layer, look.x.clone()));
            }
            for (_, connector) in self.deepstack.iter().filter(|(layer, _)| *layer == index) {
                look.features.push(connector.forward(&look.x, look.size)?);
            }
        }
        if let Some(merger) = self.merger.as_ref().filter(|merger| merger.layer == index) {
            look.x = merger.forward(&look.x, &self.device)?;
            look.size = look.size.map(|patches| patches / self.spec.early_merge());
            let heads = Heads { count: self.spec.heads, dim: self.spec.head_dim() };
            look.whole = Texts::new(&[look.x.dim(0)?], heads, &self.device)?;
        }
        if look.next_layer < self.layers.len() {
            return Ok(None);
        }
        if !self.spec.gathered.is_empty() {
            let after = |count: &usize| look.gathered.iter().find(|(known, _)| known == count);
            let parts = self.spec.gathered.iter().filter_map(after).map(|(_, x)| x);
            look.x = Tensor::cat(&parts.collect::<Vec<_>>(), 1)?;
        }
        if self.class_token.is_some() {
            look.x = look.x.narrow(0, 1, look.x.dim(0)? - 1)?.contiguous()?;
        }
        if let Some(norm) = &self.last_norm {
            look.x = norm.forward(&look.x)?;
        }
        let mut features = vec![self.connector.forward(&look.x, look.size)?];
        features.append(&mut look.features);
        let order = Tensor::new(look.order.as_slice(), &self.device)?;
        let features = Tensor::cat(&features, 1)?.index_select(&order, 0)?;
        let Some(Reduction { columns, shown, size }) = &look.reduction else {
            return Ok(Some(features));
        };
        reduced(&features, *columns, shown, *size).map(Some)
    }
}
