//! Where a checkpoint has what the reader would make of a file's tensor: under the same name, or in another form.

use std::ops::Range;

use candle_core::quantized::GgmlDType;

use super::super::architecture::Architecture;
use super::super::latent::{BOTH, KEYS, VALUES};
use super::shape::{DeltaHeads, ModelShape, StackedExperts};
use crate::tensors::TensorSource;

/// A part of a tensor of the checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) tensor: String,
    /// What is done to it, in this order.
    pub(super) steps: Vec<Step>,
}

/// What is done to a tensor. More than two dimensions count as rows of the last one.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// These rows are taken, one range behind the other.
    Rows(Vec<Range<usize>>),
    /// These columns are taken.
    Columns(Vec<Range<usize>>),
    /// Rows become columns.
    Transpose,
}

/// What is done to every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// 1 is added.
    PlusOne,
    /// The exponential is taken.
    Exp,
    /// The exponential is taken, negative.
    MinusExp,
}

/// Looks for tensors.
pub(super) struct Finder<'a> {
    pub(super) source: &'a dyn TensorSource,
    pub(super) shape: &'a ModelShape,
}

type Found = Option<(Vec<Piece>, Option<Edit>)>;

/// Ranges of one row each.
pub(super) fn one_by_one(rows: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    rows.map(|row| row..row + 1).collect()
}

impl Finder<'_> {
    /// How it is stored, its rows, and its columns if it is no vector.
    pub(super) fn dims(&self, piece: &Piece) -> Result<(GgmlDType, usize, Option<usize>), String> {
        let outline = self.source.outline(&piece.tensor).map_err(|error| error.to_string())?;
        let dense = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16];
        let kind = outline.kind.ggml().filter(|kind| dense.contains(kind)).ok_or_else(|| {
            format!("tensor `{}` is quantized already, as {:?}", piece.tensor, outline.kind)
        })?;
        let (mut rows, mut columns) = match outline.dims.as_slice() {
            [] => (1, None),
            [rows] => (*rows, None),
            [outer @ .., columns] => (outer.iter().product(), Some(*columns)),
        };
        let bad = || format!("tensor `{}` is {:?}, which is too small", piece.tensor, outline.dims);
        for step in &piece.steps {
            match step {
                Step::Rows(ranges) if ranges.iter().all(|range| range.end <= rows) => {
                    rows = ranges.iter().map(ExactSizeIterator::len).sum();
                }
                Step::Columns(ranges) => {
                    let all = columns.ok_or_else(bad)?;
                    if ranges.iter().any(|range| range.end > all) {
                        return Err(bad());
                    }
                    columns = Some(ranges.iter().map(ExactSizeIterator::len).sum());
                }
                Step::Transpose => {
                    let all = columns.ok_or_else(bad)?;
                    (rows, columns) = (all, Some(rows));
                }
                Step::Rows(_) => return Err(bad()),
            }
        }
        Ok((kind, rows, columns))
    }

    /// The checkpoint's own name for what the reader calls `name`.
    fn own(&self, name: &str) -> Option<String> {
        let rest = name.split_once('.').map_or(name, |(_, rest)| rest);
        let below = self.shape.roots.iter().map(|root| format!("{root}{rest}"));
        let beside = self.shape.roots.iter().map(|root| {
            let parent = root.strip_suffix("model.").unwrap_or(root);
            format!("{parent}{name}")
        });
        let names = std::iter::once(name.to_owned()).chain(below).chain(beside);
        names.into_iter().find(|name| self.source.contains(name))
    }

    fn whole(&self, name: &str) -> Option<Piece> {
        self.own(name).map(|tensor| Piece { tensor, steps: Vec::new() })
    }

    /// Rows of the tensor that the reader calls `name`.
    fn some_rows(&self, name: &str, rows: Vec<Range<usize>>) -> Option<Piece> {
        self.whole(name).map(|piece| Piece { steps: vec![Step::Rows(rows)], ..piece })
    }

    /// What the reader calls `name`.
    pub(super) fn tensor(&self, name: &str, architecture: &Architecture) -> Result<Found, String> {
        if let Some(mut piece) = self.whole(name) {
            // Conversion puts the first value heads of all key heads first.
            if architecture.gguf.starts_with("qwen35") {
                piece.steps.extend(self.tiled(name));
            }
            return Ok(Some((vec![piece], None)));
        }
        if let Some(start) = name.strip_suffix(".A") {
            let Some(mut piece) = self.whole(&format!("{start}.A_log")) else { return Ok(None) };
            if architecture.gguf.starts_with("qwen35") {
                piece.steps.extend(self.tiled(name));
            }
            return Ok(Some((vec![piece], Some(Edit::MinusExp))));
        }
        if let Some(pieces) = self.of_latents(name).or_else(|| self.of_delta_rule(name)) {
            return Ok(Some((pieces, None)));
        }
        Ok(self.half(name)?.map(|piece| (vec![piece], None)))
    }

    /// A half of gates and ups in one matrix, or the downs beside them.
    fn half(&self, name: &str) -> Result<Option<Piece>, String> {
        let (Some((start, ending)), true) = (name.rsplit_once('.'), name.contains("_proj.")) else {
            return Ok(None);
        };
        if let Some(start) = start.strip_suffix("down_proj") {
            return Ok(self.whole(&format!("{start}output_linear.{ending}")));
        }
        let (start, second) = match (start.strip_suffix("gate_proj"), start.strip_suffix("up_proj"))
        {
            (Some(start), _) => (start, false),
            (_, Some(start)) => (start, true),
            _ => return Ok(None),
        };
        let mut joined = ["input_linear", "gate_up_proj"].iter();
        let Some(mut piece) = joined.find_map(|own| self.whole(&format!("{start}{own}.{ending}")))
        else {
            return Ok(None);
        };
        let (_, rows, _) = self.dims(&piece)?;
        let half = rows / 2;
        let rows = if second { half..2 * half } else { 0..half };
        piece.steps.push(Step::Rows(vec![rows]));
        Ok(Some(piece))
    }

    /// Keys of latent vectors, transposed, or values, of the matrix that has both for each head.
    fn of_latents(&self, name: &str) -> Option<Vec<Piece>> {
        let latent = self.shape.latent?;
        let stem = name.strip_suffix(".weight")?;
        let (start, keys) = match (stem.strip_suffix(KEYS), stem.strip_suffix(VALUES)) {
            (Some(start), _) => (start, true),
            (_, Some(start)) => (start, false),
            _ => return None,
        };
        let both = self.own(&format!("{start}{BOTH}.weight"))?;
        let piece = |head: usize| {
            let first = head * (latent.key + latent.value);
            let rows = if keys { 0..latent.key } else { latent.key..latent.key + latent.value };
            let own = first + rows.start..first + rows.end;
            let mut steps = vec![Step::Rows(Vec::from([own]))];
            if keys {
                steps.push(Step::Transpose);
            }
            Piece { tensor: both.clone(), steps }
        };
        Some((0..latent.heads).map(piece).collect())
    }

    /// Queries, keys and values, or gates, of the matrix that has all four for each key head.
    fn of_delta_rule(&self, name: &str) -> Option<Vec<Piece>> {
        let heads = self.shape.delta?;
        let DeltaHeads { keys, values, key_dim, value_dim } = heads;
        let each = values / keys.max(1) * value_dim;
        let group = 2 * key_dim + 2 * each;
        let of = |offset: usize, count: usize| {
            (0..keys).map(move |key| key * group + offset..key * group + offset + count)
        };
        let (start, rows): (_, Vec<_>) =
            if let Some(start) = name.strip_suffix("in_proj_qkv.weight") {
                let queries = of(0, key_dim);
                (start, queries.chain(of(key_dim, key_dim)).chain(of(2 * key_dim, each)).collect())
            } else {
                (name.strip_suffix("in_proj_z.weight")?, of(2 * key_dim + each, each).collect())
            };
        Some(vec![self.some_rows(&format!("{start}in_proj_qkvz.weight"), rows)?])
    }

    /// What puts the value heads of a tensor in the order of files.
    fn tiled(&self, name: &str) -> Option<Step> {
        let DeltaHeads { keys, values, key_dim, value_dim } = self.shape.delta?;
        let each = values / keys.max(1);
        let heads = (0..values).map(move |head| head % keys * each + head / keys);
        let below = name.rsplit_once("linear_attn.")?.1;
        let wide = |first: usize| {
            heads.clone().map(move |head| first + head * value_dim..first + (head + 1) * value_dim)
        };
        Some(match below {
            "in_proj_qkv.weight" | "conv1d.weight" | "conv1d.bias" => {
                let first = 2 * keys * key_dim;
                Step::Rows(std::iter::once(0..first).chain(wide(first)).collect())
            }
            "in_proj_z.weight" => Step::Rows(wide(0).collect()),
            "in_proj_a.weight" | "in_proj_b.weight" | "A" | "dt_bias" => {
                Step::Rows(one_by_one(heads))
            }
            "out_proj.weight" => Step::Columns(wide(0).collect()),
            _ => return None,
        })
    }

    /// A piece for each expert; `name` has `*` in the place of its number. `part` is the file's name.
    pub(super) fn experts(&self, name: &str, part: &str) -> Result<Option<Vec<Piece>>, String> {
        let listed: Vec<Piece> = (0..)
            .map_while(|expert: usize| self.whole(&name.replace('*', &expert.to_string())))
            .collect();
        if !listed.is_empty() {
            return Ok(Some(listed));
        }
        let Some(stacked) = self.shape.stacked else { return Ok(None) };
        let down = part.starts_with("ffn_down");
        let bias = name.rsplit('.').next() == Some("bias");
        let names = if bias { stacked.biases } else { Some(stacked.names) };
        let Some(own) = names.map(|names| names[usize::from(down)]) else { return Ok(None) };
        let Some(layer) = layer_prefix(name) else { return Ok(None) };
        let Some(whole) = self.whole(&format!("{layer}{own}")) else { return Ok(None) };
        let outline = self.source.outline(&whole.tensor).map_err(|error| error.to_string())?;
        let (count, rows, columns) = match (outline.dims.as_slice(), bias) {
            (&[count, rows, columns], false) => (count, rows, Some(columns)),
            (&[count, outputs], true) => (count, outputs, None),
            (dims, _) => return Err(format!("tensor `{}` is {dims:?}, no experts", whole.tensor)),
        };
        let steps = |expert| steps_of_expert(&stacked, (rows, columns), expert, part);
        let pieces = (0..count).map(|expert| Piece { steps: steps(expert), ..whole.clone() });
        Ok(Some(pieces.collect()))
    }
}

/// What takes the matrix of one expert out of a stack whose matrices are of this size.
fn steps_of_expert(
    stacked: &StackedExperts,
    (rows, columns): (usize, Option<usize>),
    expert: usize,
    part: &str,
) -> Vec<Step> {
    let half = |count: usize| {
        let inner = count / 2;
        let second = part.starts_with("ffn_up");
        if stacked.interleaved {
            one_by_one((0..inner).map(move |row| 2 * row + usize::from(second)))
        } else {
            vec![if second { inner..2 * inner } else { 0..inner }]
        }
    };
    let down = part.starts_with("ffn_down");
    let Some(columns) = columns else {
        // The bias of an expert is a row.
        let own = Step::Rows(std::iter::once(expert..expert + 1).collect());
        let cut = (!down).then(|| Step::Columns(half(rows)));
        return std::iter::once(own).chain(cut).collect();
    };
    let own = expert * rows..(expert + 1) * rows;
    let mut steps = vec![Step::Rows(std::iter::once(own).collect())];
    if stacked.transposed {
        steps.push(Step::Transpose);
    }
    if !down {
        steps.push(Step::Rows(half(if stacked.transposed { columns } else { rows })));
    }
    steps
}

/// `model.layers.3.` of a name in that layer.
fn layer_prefix(name: &str) -> Option<&str> {
    let mut end = 0;
    for part in name.split_inclusive('.') {
        end += part.len();
        if part.trim_end_matches('.').parse::<usize>().is_ok() {
            return Some(&name[..end]);
        }
    }
    None
}
