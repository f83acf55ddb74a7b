//! A loaded tower, and one look at a picture, which can be taken in parts.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::connector::Connector;
use super::grid::Grid;
use super::layer::Layer;
use super::patches::Patches;
use super::spec::{Fit, Positions, Stage, Stored, TowerSpec};
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
    last_norm: Option<Norm>,
    connector: Connector,
    /// The connectors after some of the layers.
    deepstack: Vec<(usize, Connector)>,
    /// `[1, output]`: the features of the end of a row of tokens.
    separator: Option<Tensor>,
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
    next_layer: usize,
    /// Features that need no look.
    known: Option<Tensor>,
    /// Features of the tokens in the tower's order, `[tokens, output]` each.
    features: Vec<Tensor>,
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
        let root = spec.root(&weights).or(spec.roots.first().copied());
        let [tower, connector] = root.map_or(["", ""], |root| [root.tower, root.connector]);
        let (weights, connector) = (weights.scope_as(tower), weights.scope_as(connector));
        let norm =
            |(name, norm): (&str, NormSpec)| Norm::load(&weights.scope(name), spec.hidden, norm);
        let layers = weights.scope(spec.names.layers);
        let layers = (0..spec.layers).map(|index| Layer::load(&layers.scope(index), &spec));
        let patches = spec.merge * spec.merge;
        let stages = |own: &Weights, stages: &[Stage]| {
            Connector::load([&weights, own], stages, spec.hidden, patches)
        };
        let mergers = weights.scope("deepstack_merger_list");
        let merger = |(index, layer): (usize, &usize)| {
            Ok((*layer, stages(&mergers.scope(index), &spec.deepstack_connector)?))
        };
        let deepstack = spec.deepstack.iter().enumerate().map(merger);
        let (positions, class_token) = Self::embeddings(&weights, &spec)?;
        Ok(Self {
            patches: Patches::load(&weights, &spec)?,
            positions,
            class_token,
            first_norm: spec.first_norm.map(norm).transpose()?,
            layers: layers.collect::<Loaded<_>>()?,
            last_norm: spec.last_norm.map(norm).transpose()?,
            connector: stages(&connector, &spec.connector)?,
            deepstack: deepstack.collect::<Loaded<_>>()?,
            separator: separator.transpose()?,
            normalization,
            device: weights.device().clone(),
            spec,
        })
    }

    /// The embedding of positions, and the class token with its own.
    fn embeddings(weights: &Weights, spec: &TowerSpec) -> Loaded<(Option<Table>, Option<Tensor>)> {
        let hidden = spec.hidden;
        let shape = |stored: Stored, ones: usize, own: &[usize]| {
            [&vec![1; if stored.batched { ones } else { 0 }], own].concat()
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
        if picture.is_separator() {
            let Some(features) = &self.separator else { bail!("a picture has no pixels") };
            return Ok(Look {
                x: features.clone(),
                windows: None,
                whole: Texts::new(&[1], heads, &self.device)?,
                order: vec![0],
                next_layer: 0,
                known: Some(features.clone()),
                features: Vec::new(),
            });
        }
        let side = self.spec.patch * self.spec.merge;
        if [rgb.height, rgb.width] != [rows * side, columns * side] || rows * columns == 0 {
            bail!("{rows} x {columns} tokens of {} x {} pixels", rgb.height, rgb.width);
        }
        let grid = Grid::new([rows, columns], &self.spec);
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
            next_layer: 0,
            known: None,
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
            for (_, connector) in self.deepstack.iter().filter(|(layer, _)| *layer == index) {
                look.features.push(connector.forward(&look.x)?);
            }
        }
        if look.next_layer < self.layers.len() {
            return Ok(None);
        }
        if self.class_token.is_some() {
            look.x = look.x.narrow(0, 1, look.x.dim(0)? - 1)?.contiguous()?;
        }
        if let Some(norm) = &self.last_norm {
            look.x = norm.forward(&look.x)?;
        }
        let mut features = vec![self.connector.forward(&look.x)?];
        features.append(&mut look.features);
        let order = Tensor::new(look.order.as_slice(), &self.device)?;
        Ok(Some(Tensor::cat(&features, 1)?.index_select(&order, 0)?))
    }
}
