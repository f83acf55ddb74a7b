//! What each tensor of a file is made of: the tables of names and what undoes conversion, read the other way.
//!
//! For every name that an architecture's file may have, [`Architecture::place`] says what the reader makes of
//! it; if the checkpoint has that, or another form of it ([`Finder`]), the file gets the tensor.

use std::collections::BTreeSet;

use candle_core::quantized::GgmlDType;

use super::super::architecture::{Architecture, Part as TablePart};
use super::super::header::TensorInfo;
use super::super::keys::HeadCounts;
use super::super::kinds::Kind;
use super::super::locations::{self, Change};
use super::super::names::Place;
use super::super::row_order;
use super::finder::{Edit, Finder, Piece, Step, one_by_one};
use super::shape::ModelShape;
use crate::tensors::TensorSource;

/// A tensor of the file.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) name: String,
    /// Outermost first.
    pub(super) shape: Vec<usize>,
    /// What the checkpoint stores it as.
    pub(super) kind: GgmlDType,
    /// One behind the other.
    pub(super) pieces: Vec<Piece>,
    pub(super) edit: Option<Edit>,
}

/// Names without an ending in files, and with one that is not `weight`, among those that checkpoints give none.
const BARE: [&str; 2] = ["ssm_a", "ssm_d"];
const BIASES: [&str; 2] = ["exp_probs_b", "ssm_dt"];

/// Endings of what checkpoints store though it is computed, or is metadata of files.
const BUFFERS: [&str; 6] = [
    ".inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    ".act_fn.eps",
];

/// What language models have beside them, of which files of their own are made.
const BESIDE: [&str; 14] = [
    "visual.",
    "model.visual.",
    "vision_tower.",
    "model.vision_tower.",
    "vision_model.",
    "model.vision_model.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "embed_vision.",
    "model.embed_vision.",
    "audio_tower.",
    "model.audio_tower.",
    "embed_audio.",
    "model.embed_audio.",
];

/// The recipes of a file, and how many tensors of the checkpoint are in none of them for a reason.
pub(super) struct Recipes {
    pub(super) all: Vec<Recipe>,
    /// Tensors of towers that look or listen, and of heads that draft.
    pub(super) left_out: usize,
}

/// Finds a recipe for every tensor of the checkpoint.
pub(super) fn recipes(
    source: &dyn TensorSource,
    architecture: &'static Architecture,
    shape: &ModelShape,
) -> Result<Recipes, String> {
    let finder = Finder { source, shape };
    let mut cook = Cook {
        finder,
        architecture,
        used: BTreeSet::new(),
        told: BTreeSet::new(),
        all: Vec::new(),
    };
    let outer = ["token_embd", "output_norm", "output"].into_iter();
    let outer = outer.chain(architecture.around.iter().map(|(part, _)| *part));
    for part in outer.filter(|part| *part != "output" || !shape.tied) {
        for ending in [".weight", ".bias"] {
            cook.add(&format!("{part}{ending}"))?;
        }
    }
    for layer in 0..shape.layers {
        let parts = || architecture.blocks.iter().flat_map(|parts| parts.iter());
        // Tensors that stand alone first: others may be joined of the same ones.
        let alone = |(_, name): &&TablePart| !name.contains('|');
        let parts = parts().filter(alone).chain(parts().filter(|part| !alone(part)));
        for (part, name) in parts.filter(|(part, _)| !part.contains('#')) {
            for ending in endings(architecture.gguf, part, name) {
                cook.add(&format!("blk.{layer}.{part}{ending}"))?;
            }
        }
    }
    let left_out = cook.left_out()?;
    Ok(Recipes { all: cook.all, left_out })
}

/// What may stand behind a part in a file.
fn endings(gguf: &str, part: &str, name: &str) -> &'static [&'static str] {
    match part {
        "exp_probs_b" if gguf == "hy_v3" => &[""],
        // The ending is a part of the name.
        _ if part.rsplit('.').next() == Some("scale") => &[""],
        _ if !name.ends_with('!') => &[".weight", ".bias"],
        _ if BARE.contains(&part) || name.ends_with(".weight!") => &[""],
        _ if BIASES.contains(&part) => &[".bias"],
        _ => &[".weight"],
    }
}

/// Makes recipes, and remembers which tensors are in any.
struct Cook<'a> {
    finder: Finder<'a>,
    architecture: &'static Architecture,
    /// Tensors of the checkpoint that a recipe has.
    used: BTreeSet<String>,
    /// What the reader would call those that have one.
    told: BTreeSet<String>,
    all: Vec<Recipe>,
}

impl Cook<'_> {
    /// Adds the recipe of a tensor of the file if the checkpoint has what it is made of.
    fn add(&mut self, name: &str) -> Result<(), String> {
        let Some(place) = self.architecture.place(name) else { return Ok(()) };
        let several = place.names.len() > 1;
        let again = place.names.iter().all(|name| self.told.contains(name));
        // Experts in a tensor of gates and ups have one for each too.
        if again || several && place.names[0].contains('*') || self.is_elsewhere(&place.part) {
            return Ok(());
        }
        let (mut pieces, mut edit, mut experts) = (Vec::new(), None, None);
        for reader_name in &place.names {
            let found = if reader_name.contains('*') {
                let stack = self.finder.experts(reader_name, &place.part)?;
                experts = stack.as_ref().map(Vec::len);
                stack
            } else {
                let found = self.finder.tensor(reader_name, self.architecture)?;
                found.map(|(pieces, own)| {
                    edit = own;
                    pieces
                })
            };
            let Some(found) = found else { return Ok(()) };
            pieces.extend(found);
        }
        let used = |piece: &Piece| piece.steps.is_empty() && self.used.contains(&piece.tensor);
        if pieces.iter().all(used) {
            return Ok(());
        }
        if self.finder.shape.transposed && place.layer.is_some() {
            self.transpose(&mut pieces)?;
        }
        let mut recipe = self.recipe(name, pieces, edit, experts)?;
        self.reshape(&mut recipe, &place.part)?;
        self.undo(&mut recipe, &place)?;
        self.told.extend(place.names);
        self.used.extend(recipe.pieces.iter().map(|piece| piece.tensor.clone()));
        self.all.push(recipe);
        Ok(())
    }

    /// Turns matrices that the checkpoint has as `[inputs, outputs]`.
    fn transpose(&self, pieces: &mut [Piece]) -> Result<(), String> {
        for piece in pieces {
            let (_, _, columns) = self.finder.dims(piece)?;
            if columns.is_some() {
                piece.steps.push(Step::Transpose);
            }
        }
        Ok(())
    }

    /// Whether files have the part under another name: under that of a shared expert, if there are others, and
    /// keys and values of latent vectors apart, but for one architecture.
    fn is_elsewhere(&self, part: &str) -> bool {
        let together = self.architecture.gguf == "minicpm3";
        match part {
            "attn_kv_b" => return !together,
            "attn_k_b" | "attn_v_b" => return together,
            _ => {}
        }
        let parts = || self.architecture.blocks.iter().flat_map(|parts| parts.iter());
        let name = |part: &str| parts().find(|(known, _)| *known == part).map(|(_, name)| name);
        let shared = name(&format!("{part}_shexp"));
        self.finder.shape.has_experts && shared.is_some() && shared == name(part)
    }

    fn recipe(
        &self,
        name: &str,
        pieces: Vec<Piece>,
        edit: Option<Edit>,
        experts: Option<usize>,
    ) -> Result<Recipe, String> {
        let (mut rows, mut columns, mut kind) = (0, None, GgmlDType::F32);
        for (at, piece) in pieces.iter().enumerate() {
            let (stored, piece_rows, piece_columns) = self.finder.dims(piece)?;
            if at > 0 && piece_columns != columns {
                let tensor = &piece.tensor;
                return Err(format!("`{tensor}` has other columns than what it belongs to"));
            }
            // What is of several kinds is made of the widest.
            kind = if at == 0 || kind == stored { stored } else { GgmlDType::F32 };
            rows += piece_rows;
            columns = piece_columns;
        }
        let shape = match (experts, columns) {
            (Some(count), Some(columns)) if name.rsplit('.').next() == Some("bias") => {
                vec![count, columns]
            }
            (Some(count), Some(columns)) => vec![count, rows / count.max(1), columns],
            (Some(count), None) => vec![count, rows / count.max(1)],
            (None, Some(columns)) => vec![rows, columns],
            (None, None) => vec![rows],
        };
        Ok(Recipe { name: name.to_owned(), shape, kind, pieces, edit })
    }

    /// Gives tensors the dimensions that files have.
    fn reshape(&self, recipe: &mut Recipe, part: &str) -> Result<(), String> {
        let shape = self.finder.shape;
        let count: usize = recipe.shape.iter().product();
        if let Some(latent) = shape.latent.filter(|_| part == "attn_k_b" || part == "attn_v_b") {
            let columns = recipe.shape.last().copied().unwrap_or(1);
            recipe.shape = vec![latent.heads, count / columns / latent.heads.max(1), columns];
        } else if let Some(groups) = shape.state_groups {
            match part {
                "ssm_a" | "ssm_d" => recipe.shape = vec![count, 1],
                "ssm_norm" if groups > 0 && count.is_multiple_of(groups) => {
                    recipe.shape = vec![groups, count / groups];
                }
                "ssm_norm" => {
                    return Err(format!("{count} elements can't be normalized in {groups} groups"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The change that the reader undoes.
    fn undo(&self, recipe: &mut Recipe, place: &Place) -> Result<(), String> {
        let HeadCounts { query, key, .. } = self.finder.shape.heads;
        let info = recipe.info();
        let change = locations::change(&info, place, self.architecture, self.finder.shape.heads)?;
        let rows = info.shape.first().copied().unwrap_or(0);
        let order = match change {
            None => return Ok(()),
            Some(Change::MinusOne) => {
                recipe.edit = Some(Edit::PlusOne);
                return Ok(());
            }
            Some(Change::Negated) => {
                recipe.edit = Some(Edit::Exp);
                return Ok(());
            }
            Some(Change::InHalves(heads)) => {
                one_by_one((0..rows).map(row_order::halves(rows, heads)))
            }
            Some(Change::ByGroup { .. }) => {
                one_by_one((0..rows).map(row_order::groups(rows, query, key)))
            }
        };
        match recipe.pieces.as_mut_slice() {
            [piece] => piece.steps.push(Step::Rows(order)),
            _ => return Err(format!("`{}` is in several tensors of the checkpoint", recipe.name)),
        }
        Ok(())
    }

    /// How many tensors no recipe has, where that is no fault.
    fn left_out(&self) -> Result<usize, String> {
        let shape = self.finder.shape;
        let mut names = self.finder.source.names();
        names.sort_unstable();
        let mut left_out = 0;
        for name in names.into_iter().filter(|name| !self.used.contains(name)) {
            let computed = BUFFERS.iter().any(|end| name.ends_with(end));
            let head = name.rsplit_once('.').is_some_and(|(start, _)| start.ends_with("lm_head"));
            let metadata = self.architecture.activation == "xielu" && name.contains(".act_fn.");
            if computed || metadata || head && shape.tied {
                continue;
            }
            let layer = name.split('.').find_map(|part| part.parse::<usize>().ok());
            let drafts = name.starts_with("mtp.")
                || name.contains(".mtp.")
                || name.contains(".layers.") && layer.is_some_and(|layer| layer >= shape.layers);
            let beside = BESIDE.iter().any(|start| name.starts_with(start));
            if !drafts && !beside {
                let gguf = self.architecture.gguf;
                return Err(format!("tensor `{name}` has no place in a GGUF file of a `{gguf}`"));
            }
            left_out += 1;
        }
        Ok(left_out)
    }
}

impl Recipe {
    /// As a header would have it.
    pub(super) fn info(&self) -> TensorInfo {
        TensorInfo {
            name: self.name.clone(),
            shape: self.shape.clone(),
            kind: Kind::Ggml(self.kind),
            bytes: 0..0,
            file: 0,
        }
    }
}
