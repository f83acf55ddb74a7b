//! Which tensor of a checkpoint each of a projector's tensors is.

use super::super::header::TensorInfo;
use super::config::deepstack_layers;
use super::families::{FAMILIES, Family, Part};
use super::fields::Facts;
use super::tensors::{ByName, Form, Place};

/// What names end in.
const ENDINGS: [&str; 7] =
    ["weight", "bias", "weight.1", "input_min", "input_max", "output_min", "output_max"];

impl Family {
    pub(super) fn find(name: &str) -> Result<&'static Self, String> {
        FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| {
            let known: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
            let known = known.join(", ");
            format!("a projector of the type `{name}` is not supported; supported are {known}")
        })
    }

    /// The class of a model with a decoder of this architecture.
    pub(super) fn class(&self, decoder: &str) -> Option<&'static str> {
        let is = |known: &&(&str, &str)| known.0 == decoder;
        self.classes.iter().find(is).map(|(_, class)| *class)
    }

    /// All tensors of the tower and its connector.
    pub(super) fn tensors(&self, facts: &Facts<'_>) -> Result<ByName, String> {
        let (mut tensors, swapped) = (ByName::new(), facts.is_swapped());
        let heads = usize::try_from(facts.count_or("attention.head_count", 1)?).unwrap_or(1);
        let stacks: Vec<u64> = deepstack_layers(facts)?;
        for info in facts.tensors.iter().filter(|info| !is_of_sounds(&info.name)) {
            let unknown =
                || format!("tensor `{}` is no part of a `{}` tower", info.name, self.name);
            let Some((name, form)) =
                self.place(&info.name, swapped, &stacks).ok_or_else(unknown)?
            else {
                continue;
            };
            add(&mut tensors, info, name, form, heads)?;
        }
        for (name, place) in &tensors {
            if place.parts.iter().any(|part| part.name.is_empty()) {
                return Err(format!("a part of `{name}` is missing"));
            }
        }
        Ok(tensors)
    }

    /// The Hugging Face name of a tensor, and what conversion did to it; an inner `None` for those that
    /// are not needed.
    #[expect(clippy::option_option, reason = "what isn't needed is known all the same")]
    fn place(&self, name: &str, swapped: bool, stacks: &[u64]) -> Option<Option<(String, Form)>> {
        let end = |ending: &&&str| name.ends_with(&format!(".{ending}"));
        // The longer of two endings is looked for first.
        let ending = ENDINGS.iter().rev().find(end).copied().unwrap_or_default();
        let part = name.strip_suffix(ending).map(|part| part.trim_end_matches('.'))?;
        let (part, ending) = (if ending.is_empty() { name } else { part }, ending);
        let find = |parts: &[Part], part: &str| {
            parts.iter().find(|(known, ..)| *known == part).map(|(_, name, form)| (*name, *form))
        };
        let [tower, connector] = self.roots;
        let (prefix, (known, form)) = if let Some(part) = part.strip_prefix("mm.") {
            (connector.to_owned(), find(self.connector, part)?)
        } else if let Some(part) = part.strip_prefix("resampler.") {
            (connector.to_owned(), find(self.connector, part)?)
        } else if let Some(rest) = part.strip_prefix("v.deepstack.") {
            let (layer, part) = rest.split_once('.')?;
            let layer: u64 = layer.parse().ok()?;
            let index = stacks.iter().position(|known| *known == layer)?;
            (format!("{tower}deepstack_merger_list.{index}."), find(DEEPSTACK, part)?)
        } else if let Some(rest) = part.strip_prefix("v.blk.") {
            let (layer, part) = rest.split_once('.')?;
            let layer: usize = layer.parse().ok()?;
            let part = match part {
                "ffn_up" if swapped => "ffn_down",
                "ffn_down" if swapped => "ffn_up",
                part => part,
            };
            (format!("{tower}{}.{layer}.", self.layers), find(self.layer, part)?)
        } else {
            (tower.to_owned(), find(self.around, part.strip_prefix("v.")?)?)
        };
        if known.is_empty() {
            return Some(None);
        }
        let (form, ending) = match (form, ending) {
            // Frames have one bias.
            (Form::Frame(_), "bias") => (Form::Same, "bias"),
            (Form::Frame(_), "weight.1") => (Form::Frame(1), "weight"),
            (Form::Channels, "bias") if known != "patch_ln1" => (Form::Same, "bias"),
            other => other,
        };
        let whole = match known.strip_suffix('!') {
            Some(known) => format!("{prefix}{known}"),
            // Products within bounds are one name deeper.
            None if self.name == "gemma4v" && is_bounded(known) && ending == "weight" => {
                format!("{prefix}{known}.linear.weight")
            }
            None if known.ends_with('_') => format!("{prefix}{known}{ending}"),
            None => format!("{prefix}{known}.{ending}"),
        };
        Some(Some((whole, form)))
    }
}

/// The features for some of the decoder's layers: `v.deepstack.N.`.
const DEEPSTACK: &[Part] = &[
    ("norm", "norm", Form::Same),
    ("fc1", "linear_fc1", Form::Same),
    ("fc2", "linear_fc2", Form::Same),
];

fn is_bounded(name: &str) -> bool {
    name.ends_with("_proj") && (name.starts_with("self_attn.") || name.starts_with("mlp."))
}

/// Tensors of an encoder of sounds, which the file may have too.
fn is_of_sounds(name: &str) -> bool {
    name.starts_with("a.") || name.starts_with("mm.a.")
}

/// Adds a tensor of the file, or a part of one.
fn add(
    tensors: &mut ByName,
    info: &TensorInfo,
    name: String,
    form: Form,
    heads: usize,
) -> Result<(), String> {
    if info.shape.is_empty() && form != Form::Same {
        return Err(format!("tensor `{}` has no dimensions", info.name));
    }
    let form = match form {
        Form::Turns(_) => {
            let rows = info.shape.first().copied().unwrap_or(0);
            if heads == 0 || !rows.is_multiple_of(2 * heads) {
                return Err(format!(
                    "tensor `{}` has {rows} rows, expected {heads} heads of an even number",
                    info.name
                ));
            }
            Form::Turns(heads)
        }
        Form::Swapped if info.shape.len() < 2 => {
            return Err(format!("tensor `{}` has {:?} as its shape", info.name, info.shape));
        }
        Form::Frame(_) if info.shape.len() != 4 => {
            return Err(format!("tensor `{}` is no picture's frame", info.name));
        }
        form => form,
    };
    let place = tensors.entry(name).or_insert_with(|| {
        let none = TensorInfo { name: String::new(), ..info.clone() };
        Place { parts: vec![none; form.parts()], form }
    });
    let twice = || format!("tensor `{}` appears twice", info.name);
    let part = place.parts.get_mut(form.index()).ok_or_else(twice)?;
    if !part.name.is_empty() {
        return Err(twice());
    }
    if part.shape != info.shape && matches!(form, Form::Frame(_)) {
        return Err(format!("tensor `{}` and its other frame have two shapes", info.name));
    }
    *part = info.clone();
    Ok(())
}
