//! Whether two descriptions of a decoder compute the same, whatever their tensors are called.

use crate::layers::attention::{GateTensor, QkvTensors};
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{ExpertTensors, MoeSpec};
use crate::layers::recurrent::CellSpec;
use crate::layers::rope::Rope;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Names;

/// Numbers that are as near as this, in parts of themselves, are the same: files have f32, and factors of
/// frequencies instead of the rule that makes them.
const NEAR: f64 = 2e-6;

/// What the second one has otherwise than the first; nothing if they compute the same.
pub(super) fn difference(folder: &DecoderSpec, file: &DecoderSpec) -> Option<String> {
    let [folder, file] = [folder, file].map(described);
    folder.into_iter().zip(file).find_map(|((name, folder), (_, file))| {
        let same = are_near(&folder, &file);
        (!same).then(|| format!("its {name} would be {}", differing(&folder, &file)))
    })
}

/// The part of two texts that is not the same, in a few words.
fn differing(folder: &str, file: &str) -> String {
    let words = |text: &str| -> Vec<String> {
        text.split([',', '{', '}']).map(|word| word.trim().to_owned()).collect()
    };
    let (folder, file) = (words(folder), words(file));
    let pair = folder.iter().zip(&file).find(|(a, b)| !are_near(a, b));
    match pair {
        Some((folder, file)) => format!("`{file}`, not `{folder}`"),
        None => format!("of {} parts, not {}", file.len(), folder.len()),
    }
}

/// Whether two texts differ only in numbers that are near each other.
fn are_near(a: &str, b: &str) -> bool {
    let split = |text: &str| -> Vec<String> {
        let number = |c: char| c.is_ascii_digit() || ".-+e".contains(c);
        let mut parts: Vec<(bool, String)> = Vec::new();
        for c in text.chars() {
            match parts.last_mut() {
                Some((is, part)) if *is == number(c) => part.push(c),
                _ => parts.push((number(c), c.to_string())),
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    };
    let (a, b) = (split(a), split(b));
    let near = |(a, b): (&String, &String)| match (a.parse::<f64>(), b.parse::<f64>()) {
        // Equal infinities have no difference.
        (Ok(a), Ok(b)) => {
            a.to_bits() == b.to_bits() || (a - b).abs() <= NEAR * a.abs().max(b.abs())
        }
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(&b).all(near)
}

/// What a decoder computes, part by part, without names.
fn described(spec: &DecoderSpec) -> Vec<(&'static str, String)> {
    let mut spec = spec.clone();
    forget_names(&mut spec);
    let ropes: Vec<Rope> = spec.ropes.iter().map(Rope::new).collect();
    let layers = spec.attention.len();
    let of_layer = |layer: usize| {
        let attends = super::layers::attends(&spec, layer);
        let attention = attends.then(|| {
            let attention = &spec.attention[layer];
            let rope = attention.rope.map(|rope| format!("{:?}", ropes[rope]));
            let rest = crate::layers::attention::AttentionSpec { rope: None, ..*attention };
            format!("{rest:?} rotated by {rope:?}")
        });
        let sparse = spec.moe.as_ref().is_some_and(|moe| moe.layers[layer]);
        let both = spec.moe.as_ref().is_some_and(|moe| moe.parallel_dense.is_some());
        let sizes = spec.intermediate_sizes.as_ref();
        let inner = sizes.map_or(spec.mlp.intermediate_size, |sizes| sizes[layer]);
        let mlp = MlpSpec { intermediate_size: inner, ..spec.mlp };
        let mlp = (!sparse || both).then_some(mlp).filter(|_| inner > 0);
        let recurs = spec.recurrent.as_ref().is_some_and(|recurrent| recurrent.layers[layer]);
        format!("attention {attention:?}, dense {mlp:?}, sparse {sparse}, recurrent {recurs}")
    };
    let layers: Vec<String> = (0..layers).map(of_layer).collect();
    let moe = spec.moe.as_ref().map(|moe| MoeSpec { layers: Vec::new(), ..moe.clone() });
    let cell = spec.recurrent.as_ref().map(|recurrent| {
        (recurrent.output_bias, recurrent.beside_attention, recurrent.cell.clone())
    });
    vec![
        ("vocabulary", spec.vocab_size.to_string()),
        ("context", spec.max_position_embeddings.to_string()),
        ("norm", format!("{:?} {:?} {:?}", spec.norm, spec.other_norms, spec.norm_gates)),
        ("order of norms", format!("{:?}", spec.block)),
        ("head", format!("{:?} tied {}", spec.head, spec.tied_embeddings)),
        ("prompts seen whole", spec.prefix_lm.to_string()),
        ("positions", format!("{:?} {:?}", spec.learned_positions, spec.token_types)),
        ("norm of embeddings", format!("{:?}", spec.embedding_norm)),
        ("scale of embeddings", format!("{} {:?}", spec.embedding_scale, spec.embedding_sum)),
        ("scale of logits", format!("{} {:?}", spec.logit_scale, spec.logit_softcap)),
        ("scales of logits", format!("{:?}", spec.logit_scales)),
        ("experts", format!("{moe:?}")),
        ("recurrence", format!("{cell:?}")),
        ("inputs of layers", format!("{:?} {:?}", spec.layer_inputs, spec.layer_scale)),
        ("streams", format!("{:?} {:?}", spec.streams, spec.low_rank_path)),
        ("connections of streams", format!("{:?}", spec.hyper_connections)),
        ("order of layers", format!("{:?}", spec.schedule)),
        ("bounds of gates", format!("{:?} {:?}", spec.gate_limits, spec.gate_thresholds)),
        ("sums", format!("{:?} {:?}", spec.residuals_from_norms, spec.learned_sums)),
        ("layers", layers.join("; ")),
    ]
}

/// Takes away all names, and what says how tensors are stored.
fn forget_names(spec: &mut DecoderSpec) {
    let forget = |name: &mut Option<&'static str>| {
        if let Some(name) = name {
            *name = "";
        }
    };
    spec.names = Names::COMMON;
    spec.transposed_matrices = false;
    spec.token_types = None;
    for name in [&mut spec.embedding_norm, &mut spec.layer_scale] {
        forget(name);
    }
    if let Some(positions) = &mut spec.learned_positions {
        positions.name = "";
    }
    let block = &mut spec.block;
    for name in [
        &mut block.before_attention,
        &mut block.after_attention,
        &mut block.before_mlp,
        &mut block.after_mlp,
    ] {
        forget(name);
    }
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("");
        layer.output = "";
        forget(&mut layer.sinks);
        if let Some(norm) = &mut layer.query_key_norm {
            norm.tensors = [""; 2];
        }
        if let Some(gate) = &mut layer.gate {
            gate.tensor = match gate.tensor {
                GateTensor::BehindQueries | GateTensor::BeforeQueries => gate.tensor,
                GateTensor::Elements(_) => GateTensor::Elements(""),
                GateTensor::Heads(_) => GateTensor::Heads(""),
            };
        }
    }
    forget_mlp(&mut spec.mlp);
    if let Some(moe) = &mut spec.moe {
        forget_experts(moe);
    }
    if let Some(recurrent) = &mut spec.recurrent {
        (recurrent.name, recurrent.output) = ("", "");
        if let CellSpec::DeltaRule(rule) = &mut recurrent.cell {
            // The file's value heads are in another order.
            rule.heads.tiled = false;
        }
    }
}

fn forget_mlp(mlp: &mut MlpSpec) {
    mlp.tensors = match mlp.tensors {
        MlpTensors::Plain(_) => MlpTensors::Plain([""; 2]),
        _ => MlpTensors::Gated([""; 3]),
    };
    if let Some(name) = &mut mlp.learned_activation {
        *name = "";
    }
}

fn forget_experts(moe: &mut MoeSpec) {
    forget_mlp(&mut moe.expert);
    if let ExpertTensors::Stacked(tensors) | ExpertTensors::StackedOrList(tensors, _) = moe.experts
    {
        moe.expert.bias |= tensors.biases.is_some();
    }
    moe.experts = ExpertTensors::List("");
    moe.router = "";
    if let Some(bias) = &mut moe.correction_bias {
        (bias.name, bias.one_row) = ("", false);
    }
    if let Some(shared) = &mut moe.shared {
        forget_mlp(&mut shared.mlp);
        shared.name = "";
        if let Some(gate) = &mut shared.gate {
            *gate = "";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_near_whose_numbers_are() {
        assert!(are_near("a 1.0000001 b", "a 1 b"));
        assert!(!are_near("a 1.00001 b", "a 1 b"));
        assert!(!are_near("a 1 b", "a 1 c"));
        assert!(!are_near("a 1", "a 1 2"));
        assert_eq!(differing("X { a: 1, b: 2 }", "X { a: 1, b: 3 }"), "`b: 3`, not `b: 2`");
    }
}
