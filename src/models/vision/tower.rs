//! A loaded tower, and one look at a picture, which can be taken in parts.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::grid::Grid;
use super::layer::Layer;
use super::merger::Merger;
use super::patches::Patches;
use super::spec::TowerSpec;
use crate::layers::full_attention::{Heads, Texts};
use crate::pictures::picture::{Normalization, Picture};
use crate::weights::stored::dense_dtype;
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded tower.
#[derive(Debug)]
pub struct Tower {
    patches: Patches,
    /// The learned embedding of positions, `[side * side, hidden]`, and its side.
    positions: Option<(Tensor, usize)>,
    layers: Vec<Layer>,
    merger: Merger,
    /// The mergers after some of the layers.
    deepstack: Vec<(usize, Merger)>,
    normalization: Normalization,
    spec: TowerSpec,
    device: Device,
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
        let root = spec.root(&weights).or(spec.roots.first().copied());
        let weights = weights.scope_as(root.unwrap_or_default());
        let positions = |side: usize| {
            let table = weights.dense("pos_embed.weight", &[side * side, spec.hidden], DType::F32);
            Ok::<_, WeightError>((table?, side))
        };
        let blocks = weights.scope("blocks");
        let layers = (0..spec.layers).map(|index| Layer::load(&blocks.scope(index), &spec));
        let mergers = weights.scope("deepstack_merger_list");
        let merger = |(index, layer): (usize, &usize)| {
            Ok((*layer, Merger::load(&mergers.scope(index), &spec, true)?))
        };
        let deepstack = spec.deepstack.iter().enumerate().map(merger);
        Ok(Self {
            patches: Patches::load(&weights, &spec)?,
            positions: spec.positions.map(positions).transpose()?,
            layers: layers.collect::<Loaded<_>>()?,
            merger: Merger::load(&weights.scope("merger"), &spec, false)?,
            deepstack: deepstack.collect::<Loaded<_>>()?,
            normalization,
            device: weights.device().clone(),
            spec,
        })
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
        let side = self.spec.patch * self.spec.merge;
        if [rgb.height, rgb.width] != [rows * side, columns * side] || rows * columns == 0 {
            bail!("{rows} x {columns} tokens of {} x {} pixels", rgb.height, rgb.width);
        }
        let grid = Grid::new([rows, columns], &self.spec);
        let mut x = self.patches.forward(rgb, &grid, &self.normalization, &self.device)?;
        if let Some((table, side)) = &self.positions {
            x = (x + grid.positions(table, *side)?)?;
        }
        let heads = Heads { count: self.spec.heads, dim: self.spec.head_dim() };
        let [cos, sin] = grid.angles(&self.spec, &self.device)?;
        let texts = |lengths: &[usize]| {
            Ok::<_, candle_core::Error>(
                Texts::new(lengths, heads, &self.device)?.rotated(cos.clone(), sin.clone()),
            )
        };
        let windows = self.spec.windows.as_ref().map(|_| texts(&grid.windows));
        let whole = texts(&[grid.places.len()])?;
        Ok(Look {
            x,
            windows: windows.transpose()?,
            whole,
            order: grid.order,
            next_layer: 0,
            features: Vec::new(),
        })
    }

    /// Computes the next layer. After the last one the look ends with the features of the picture's
    /// tokens in rows, `[tokens, width]` in f32.
    pub fn advance(&self, look: &mut Look) -> Result<Option<Tensor>> {
        let index = look.next_layer;
        look.next_layer += 1;
        if let Some(layer) = self.layers.get(index) {
            let whole = self.spec.windows.as_ref().is_none_or(|w| w.whole.contains(&index));
            let windows = look.windows.as_ref().filter(|_| !whole).unwrap_or(&look.whole);
            look.x = layer.forward(&look.x, windows)?;
            for (_, merger) in self.deepstack.iter().filter(|(layer, _)| *layer == index) {
                look.features.push(merger.forward(&look.x)?);
            }
        }
        if look.next_layer < self.layers.len() {
            return Ok(None);
        }
        let mut features = vec![self.merger.forward(&look.x)?];
        features.append(&mut look.features);
        let order = Tensor::new(look.order.as_slice(), &self.device)?;
        Ok(Some(Tensor::cat(&features, 1)?.index_select(&order, 0)?))
    }
}
