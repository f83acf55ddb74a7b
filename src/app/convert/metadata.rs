//! What a decoder is, in the words of GGUF's metadata.
//!
//! Keys without a prefix belong to the architecture. All that there is to say is said; of that the file gets what
//! the reader of its architecture asks for.

use candle_core::{DType, Device};
use serde_json::{Map, Value};

use super::layers::attends;
use crate::layers::moe::{MoeSpec, Score};
use crate::layers::recurrent::CellSpec;
use crate::layers::rope::{QueryScale, RopeScaling, RopeSpec};
use crate::models::decoder::DecoderSpec;
use crate::weights::gguf::write::entries::Entry;
use crate::weights::gguf::write::{DIVISORS, DIVISORS_BY_LENGTH, SAMPLING_NUMBERS};
use crate::weights::source::ModelSource;

type Words = Vec<(String, Entry)>;
type Divisors = Vec<(&'static str, Vec<f32>)>;

/// The fields of a configuration, with those of its language model first.
pub(super) fn language_part(config: &Value) -> Value {
    let mut all = config.as_object().cloned().unwrap_or_default();
    for name in ["thinker_config", "text_config"] {
        if let Some(Value::Object(part)) = all.remove(name) {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// Entries of the metadata but for the vocabulary's, and divisors of rotary frequencies. `windows` says whether
/// it is told which layers have one.
pub(super) fn entries(
    source: &ModelSource,
    spec: &DecoderSpec,
    gguf: &str,
    windows: bool,
) -> Result<(Words, Divisors), String> {
    let config = language_part(&source.config);
    let mut words = Vec::new();
    text(&mut words, "general.name", &source.name);
    add_sizes(&mut words, spec, gguf)?;
    add_scales(&mut words, spec, &config, gguf);
    add_indexer(&mut words, spec, &config)?;
    add_windows(&mut words, spec, windows)?;
    let divisors = add_ropes(&mut words, spec, &config, gguf)?;
    if let Some(moe) = &spec.moe {
        add_experts(&mut words, spec, moe, gguf)?;
    } else if spec.attention.iter().any(|layer| layer.latent.is_some()) {
        // Such models have experts, but for those whose layers are all dense.
        count(&mut words, "leading_dense_block_count", spec.attention.len())?;
        count(&mut words, "expert_shared_count", 0)?;
        count(&mut words, "expert_feed_forward_length", spec.mlp.intermediate_size)?;
    }
    add_recurrence(&mut words, spec)?;
    if spec.mlp.learned_activation.is_some() {
        add_activation(&mut words, source, spec)?;
    }
    add_sampling(&mut words, source)?;
    Ok((words, divisors))
}

fn set(words: &mut Words, key: &str, value: Entry) {
    words.push((key.to_owned(), value));
}

fn text(words: &mut Words, key: &str, value: &str) {
    set(words, key, Entry::Text(value.to_owned()));
}

fn count(words: &mut Words, key: &str, value: usize) -> Result<(), String> {
    set(words, key, Entry::U32(small(value)?));
    Ok(())
}

fn small(value: usize) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{value} is too large for a GGUF file"))
}

/// One number if it is that of all layers, else one for each.
fn per_layer(words: &mut Words, key: &str, values: &[usize]) -> Result<(), String> {
    match values {
        [first, rest @ ..] if rest.iter().any(|value| value != first) => {
            let values = values.iter().map(|one| i32::try_from(*one));
            let values = values.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            set(words, key, Entry::I32s(values));
            Ok(())
        }
        [first, ..] => count(words, key, *first),
        [] => Ok(()),
    }
}

fn add_sizes(words: &mut Words, spec: &DecoderSpec, gguf: &str) -> Result<(), String> {
    let layers = spec.attention.len();
    let longer = spec.longer_contexts.map(|longer| longer.declared);
    count(words, "context_length", longer.unwrap_or(spec.max_position_embeddings))?;
    count(words, "embedding_length", spec.mlp.hidden_size)?;
    count(words, "block_count", layers)?;
    count(words, "vocab_size", spec.vocab_size)?;
    // What is beside experts is a shared one there.
    let experts = spec.moe.as_ref().filter(|_| gguf == "granitehybrid");
    match (&spec.intermediate_sizes, experts) {
        (_, Some(moe)) => count(words, "feed_forward_length", moe.expert.intermediate_size)?,
        (Some(sizes), _) => {
            let moe = spec.moe.as_ref().filter(|_| gguf == "nemotron_h_moe");
            // A layer with none of both has a recurrence.
            let inner = |layer: usize| match moe.filter(|moe| moe.layers[layer]) {
                Some(moe) => moe.expert.intermediate_size,
                None => sizes[layer],
            };
            let sizes: Vec<usize> = (0..layers).map(inner).collect();
            per_layer(words, "feed_forward_length", &sizes)?;
        }
        _ => count(words, "feed_forward_length", spec.mlp.intermediate_size)?,
    }
    let Some(first) = (0..layers).find(|layer| attends(spec, *layer)) else { return Ok(()) };
    let attention = &spec.attention[first];
    let mut attending = spec.attention.iter().enumerate().filter(|(at, _)| attends(spec, *at));
    if attending.any(|(_, layer)| layer.head_dim != attention.head_dim) {
        return Err("its layers have heads of several sizes, which aren't written yet".to_owned());
    }
    // One architecture tells layers without attention by that.
    let none = |layer: usize| gguf == "deci" && !attends(spec, layer);
    let heads = (0..layers).map(|at| if none(at) { 0 } else { spec.attention[at].num_heads });
    let heads: Vec<usize> = heads.collect();
    per_layer(words, "attention.head_count", &heads)?;
    if let Some(latent) = attention.latent {
        let key = latent.nope_dim + latent.rope_dim;
        if gguf == "minicpm3" {
            // Keys and values are those of heads, of one matrix.
            count(words, "attention.head_count_kv", attention.num_heads)?;
            count(words, "attention.key_length", key)?;
            count(words, "attention.value_length", latent.value_dim)?;
        }
        // All heads share one key of latent elements and rotated ones.
        count(words, "attention.head_count_kv", 1)?;
        count(words, "attention.key_length", latent.kv_rank + latent.rope_dim)?;
        count(words, "attention.value_length", latent.kv_rank)?;
        count(words, "attention.key_length_mla", key)?;
        count(words, "attention.value_length_mla", latent.value_dim)?;
        count(words, "attention.kv_lora_rank", latent.kv_rank)?;
        if let Some(rank) = latent.query_rank {
            count(words, "attention.q_lora_rank", rank)?;
        }
        return count(words, "rope.dimension_count", latent.rope_dim);
    }
    let cell = spec.recurrent.as_ref().map(|recurrent| &recurrent.cell);
    // Where a key of its own tells, layers without attention count heads as the others do.
    let told = matches!(cell, Some(CellSpec::DeltaRule(_)));
    let key_heads = |layer: usize| {
        let has = told || attends(spec, layer);
        if has { spec.attention[if told { first } else { layer }].num_kv_heads } else { 0 }
    };
    per_layer(words, "attention.head_count_kv", &(0..layers).map(key_heads).collect::<Vec<_>>())?;
    count(words, "attention.key_length", attention.head_dim)?;
    count(words, "attention.value_length", attention.value_dim())
}

/// Numbers that change what a layer computes, where the architecture's table doesn't have them by the names of a
/// configuration.
fn add_scales(words: &mut Words, spec: &DecoderSpec, config: &Value, gguf: &str) {
    let eps = Entry::F32(spec.norm.eps);
    set(words, "attention.layer_norm_epsilon", eps.clone());
    // One architecture has norms of the kind whose epsilon there is.
    if !(spec.norm.centered && gguf == "cohere2moe") {
        set(words, "attention.layer_norm_rms_epsilon", eps);
    }
    let first = &spec.attention[0];
    if let Some(cap) = spec.attention.iter().find_map(|layer| layer.params.softcap) {
        set(words, "attn_logit_softcapping", Entry::F32(cap));
    }
    if let Some(cap) = spec.logit_softcap {
        set(words, "final_logit_softcapping", Entry::F32(cap));
    }
    if let Some(bound) = first.clip {
        set(words, "attention.clamp_kqv", Entry::F32(bound));
    }
    if let Some(slope) = first.alibi {
        set(words, "attention.max_alibi_bias", Entry::F32(slope));
    }
    if first.value_scale.to_bits() != 1f32.to_bits() {
        set(words, "attention.value_scale", Entry::F32(first.value_scale));
    }
    // Those of MiniCPM: a factor of embeddings, one of both parts, and the divisor of logits.
    set(words, "embedding_scale", Entry::F32(spec.embedding_scale));
    set(words, "residual_scale", Entry::F32(spec.block.residual_scale));
    if config.get("dim_model_base").is_some() {
        set(words, "logit_scale", Entry::F32(1.0 / spec.logit_scale));
    }
    set(words, "use_parallel_residual", Entry::Bool(spec.block.parallel));
}

/// What chooses which tokens a layer sees, where there is such a thing.
fn add_indexer(words: &mut Words, spec: &DecoderSpec, config: &Value) -> Result<(), String> {
    for (end, field) in
        [("top_k", "index_topk"), ("head_count", "index_n_heads"), ("key_length", "index_head_dim")]
    {
        if let Some(size) = config.get(field).and_then(Value::as_u64) {
            let size = usize::try_from(size).map_err(|error| error.to_string())?;
            count(words, &format!("attention.indexer.{end}"), size)?;
        }
    }
    // Layers that choose by themselves, where others reuse a choice.
    let kinds = config.get("indexer_types").and_then(Value::as_array);
    let listed = kinds.map(|kinds| kinds.iter().map(|kind| kind == "full").collect());
    let own: Vec<bool> = listed.unwrap_or_else(|| {
        let selections = spec.attention.iter().map(|layer| layer.latent?.selection);
        selections.map(|own| own.is_none_or(|own| own.indexer.is_some())).collect()
    });
    if kinds.is_some() || own.contains(&false) {
        set(words, "attention.indexer.types", Entry::Bools(own));
    }
    Ok(())
}

fn add_windows(words: &mut Words, spec: &DecoderSpec, pattern: bool) -> Result<(), String> {
    let windows: Vec<_> = spec.attention.iter().map(|layer| layer.params.window).collect();
    let Some(window) = windows.iter().copied().flatten().next() else { return Ok(()) };
    if windows.iter().flatten().any(|other| *other != window) {
        return Err("layers have windows of several sizes".to_owned());
    }
    count(words, "attention.sliding_window", window)?;
    if pattern {
        let windowed = windows.iter().map(Option::is_some).collect();
        set(words, "attention.sliding_window_pattern", Entry::Bools(windowed));
    }
    Ok(())
}

/// The rotary embedding of layers that see everything, and the base of that in layers with a window.
fn add_ropes(
    words: &mut Words,
    spec: &DecoderSpec,
    config: &Value,
    gguf: &str,
) -> Result<Divisors, String> {
    let rotated: Vec<_> = spec.attention.iter().filter(|layer| layer.rope.is_some()).collect();
    let of = |windowed: bool| {
        rotated.iter().find(|layer| layer.params.window.is_some() == windowed)?.rope
    };
    let Some(rope) = of(false).or(of(true)) else { return Ok(Vec::new()) };
    if rotated.len() < spec.attention.len() {
        let pattern = spec.attention.iter().map(|layer| layer.rope.is_some()).collect();
        set(words, "attention.rope_pattern", Entry::Bools(pattern));
    }
    let rope = &spec.ropes[rope];
    let latent = spec.attention.iter().any(|layer| layer.latent.is_some());
    if !latent {
        count(words, "rope.dimension_count", rope.rotary_dim)?;
    }
    set(words, "rope.freq_base", Entry::F32(rope.theta));
    if let Some(windowed) = of(true).filter(|_| of(false).is_some() && spec.ropes.len() > 1) {
        set(words, "rope.freq_base_swa", Entry::F32(spec.ropes[windowed].theta));
        count(words, "rope.dimension_count_swa", spec.ropes[windowed].rotary_dim)?;
    }
    if !rope.axes.is_empty() {
        let sections = parameters(config)
            .and_then(|all| all.get("mrope_section")?.as_array())
            .map(|all| all.iter().filter_map(Value::as_u64).collect::<Vec<_>>());
        // What the class has where its files don't say it.
        let sections = sections.unwrap_or_else(|| vec![11, 11, 10]);
        let sections = sections.into_iter().chain([0]).map(i32::try_from);
        let sections = sections.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        set(words, "rope.dimension_sections", Entry::I32s(sections));
    }
    if let Some(QueryScale::Logarithm { beta, .. }) = rope.query_scale {
        set(words, "attention.temperature_scale", Entry::F32(beta));
    }
    add_scaling(words, spec, rope, config, gguf)
}

/// The rotary embedding's fields.
fn parameters(config: &Value) -> Option<&Map<String, Value>> {
    let field = |name| config.get(name).and_then(Value::as_object);
    field("rope_scaling").or_else(|| field("rope_parameters"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "contexts are whole and below 2^32, factors are stored as f32"
)]
fn add_scaling(
    words: &mut Words,
    spec: &DecoderSpec,
    rope: &RopeSpec,
    config: &Value,
    gguf: &str,
) -> Result<Divisors, String> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    Ok(match &rope.scaling {
        RopeScaling::None => Vec::new(),
        RopeScaling::Linear { factor } => {
            text(words, "rope.scaling.type", "linear");
            set(words, "rope.scaling.factor", Entry::F32(*factor));
            Vec::new()
        }
        RopeScaling::Llama3 { .. } => vec![(DIVISORS, llama3_divisors(rope))],
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
            text(words, "rope.scaling.type", "yarn");
            set(words, "rope.scaling.factor", Entry::F32(*factor));
            set(words, ORIGINAL, Entry::U32(*original_context as u32));
            set(words, "rope.scaling.yarn_beta_fast", Entry::F32(*beta_fast as f32));
            set(words, "rope.scaling.yarn_beta_slow", Entry::F32(*beta_slow as f32));
            let all = parameters(config).and_then(|all| all.get("mscale_all_dim")?.as_f64());
            if let Some(all) = all.filter(|all| *all != 0.0) {
                // A tenth of it, but for one architecture.
                let share = if gguf == "mistral3" { 1.0 } else { 0.1 };
                let multiplier = Entry::F32((all * share) as f32);
                set(words, "rope.scaling.yarn_log_multiplier", multiplier);
            } else {
                // The file's number multiplies YaRN's own.
                let own = 1.0 + 0.1 * f64::from(factor.max(1.0)).ln();
                let more = (f64::from(rope.magnitude) / own) as f32;
                if (more - 1.0).abs() > 1e-6 {
                    set(words, "rope.scaling.yarn_attn_factor", Entry::F32(more));
                }
            }
            Vec::new()
        }
        RopeScaling::Factors(factors) => {
            count(words, ORIGINAL, spec.max_position_embeddings)?;
            set(words, "rope.scaling.attn_factor", Entry::F32(rope.magnitude));
            DIVISORS_BY_LENGTH.iter().map(|name| (*name, factors.clone())).collect()
        }
        RopeScaling::FactorsByLength { longest_short, short, long } => {
            count(words, ORIGINAL, *longest_short)?;
            set(words, "rope.scaling.attn_factor", Entry::F32(rope.magnitude));
            let [of_long, of_short] = DIVISORS_BY_LENGTH;
            vec![(of_long, long.clone()), (of_short, short.clone())]
        }
    })
}

/// What the Llama 3.1 rule divides frequencies by.
#[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
fn llama3_divisors(rope: &RopeSpec) -> Vec<f32> {
    let RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } =
        rope.scaling
    else {
        return Vec::new();
    };
    let divisor = |pair: usize| {
        let frequency = 1.0 / rope.theta.powf((2 * pair) as f32 / rope.rotary_dim as f32);
        let wavelength = 2.0 * std::f32::consts::PI / frequency;
        if wavelength < original_context / high_freq_factor {
            1.0
        } else if wavelength > original_context / low_freq_factor {
            factor
        } else {
            let smooth = original_context / wavelength - low_freq_factor;
            let smooth = smooth / (high_freq_factor - low_freq_factor);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    (0..rope.rotary_dim / 2).map(divisor).collect()
}

fn add_experts(
    words: &mut Words,
    spec: &DecoderSpec,
    moe: &MoeSpec,
    gguf: &str,
) -> Result<(), String> {
    let inner = moe.expert.intermediate_size;
    count(words, "expert_count", moe.num_experts)?;
    count(words, "expert_used_count", moe.routing.experts_per_token)?;
    count(words, "expert_feed_forward_length", inner)?;
    let dense = moe.layers.iter().take_while(|sparse| !**sparse).count();
    count(words, "leading_dense_block_count", dense)?;
    let mut sparse = (0..spec.attention.len()).filter(|layer| moe.layers[*layer]);
    let step = sparse.next().zip(sparse.next()).map_or(1, |(first, second)| second - first);
    count(words, "interleave_moe_layer_step", step)?;
    if let Some(shared) = &moe.shared {
        let width = shared.mlp.intermediate_size;
        count(words, "expert_shared_feed_forward_length", width)?;
        count(words, "expert_shared_count", (width / inner.max(1)).max(1))?;
    }
    if let Some(groups) = moe.routing.groups {
        count(words, "expert_group_count", groups.count)?;
        count(words, "expert_group_used_count", groups.chosen)?;
    }
    let gating = match moe.routing.score {
        Score::Softmax | Score::SparseMixer { .. } => 1,
        Score::Sigmoid | Score::SigmoidOfChosen => 2,
    };
    set(words, "expert_gating_func", Entry::U32(gating));
    set(words, "expert_weights_norm", Entry::Bool(moe.routing.renormalize));
    // One architecture halves the sum with a shared expert without being told.
    if (moe.routing.scale - 1.0).abs() > 0.0 && gguf != "cohere2moe" {
        set(words, "expert_weights_scale", Entry::F32(moe.routing.scale));
    }
    Ok(())
}

fn add_recurrence(words: &mut Words, spec: &DecoderSpec) -> Result<(), String> {
    let Some(recurrent) = &spec.recurrent else { return Ok(()) };
    let sizes = |words: &mut Words, sizes: [(&str, usize); 4]| {
        sizes.into_iter().try_for_each(|(key, size)| count(words, &format!("ssm.{key}"), size))
    };
    match &recurrent.cell {
        CellSpec::ShortConv(conv) => count(words, "shortconv.l_cache", conv.taps),
        CellSpec::DeltaRule(rule) => {
            let heads = rule.heads;
            set(words, "attention.recurrent_layers", Entry::Bools(recurrent.layers.clone()));
            let layers = 0..recurrent.layers.len();
            if let Some(interval) = (1..=layers.len()).find(|interval| {
                layers.clone().all(|at| recurrent.layers[at] == ((at + 1) % interval != 0))
            }) {
                count(words, "full_attention_interval", interval)?;
            }
            count(words, "ssm.group_count", heads.keys)?;
            let inner = heads.values * heads.value_dim;
            sizes(
                words,
                [
                    ("conv_kernel", rule.taps),
                    ("state_size", heads.key_dim),
                    ("time_step_rank", heads.values),
                    ("inner_size", inner),
                ],
            )
        }
        CellSpec::StateSpace(space) => {
            count(words, "ssm.group_count", space.groups)?;
            let rotates = spec.attention.iter().any(|layer| layer.rope.is_some());
            set(words, "rope.scaling.finetuned", Entry::Bool(rotates));
            sizes(
                words,
                [
                    ("conv_kernel", space.taps),
                    ("state_size", space.state_size),
                    ("time_step_rank", space.heads),
                    ("inner_size", space.heads * space.head_dim),
                ],
            )
        }
        CellSpec::ChannelDeltaRule(_)
        | CellSpec::Lightning(_)
        | CellSpec::GatedUnit(_)
        | CellSpec::MatrixMemory(_) => {
            Err("GGUF files of such recurrent layers are not written yet".to_owned())
        }
        CellSpec::SelectiveScan(scan) => {
            set(words, "ssm.dt_b_c_rms", Entry::Bool(scan.norm.is_some()));
            sizes(
                words,
                [
                    ("conv_kernel", scan.taps),
                    ("state_size", scan.state_size),
                    ("time_step_rank", scan.rank),
                    ("inner_size", scan.channels),
                ],
            )
        }
    }
}

/// The numbers of a learned activation, which are tensors of the checkpoint.
fn add_activation(
    words: &mut Words,
    source: &ModelSource,
    spec: &DecoderSpec,
) -> Result<(), String> {
    let weights = source.weights(&Device::Cpu);
    let numbers: [(&str, &[usize]); 4] =
        [("alpha_p", &[1]), ("alpha_n", &[1]), ("beta", &[]), ("eps", &[])];
    for (name, shape) in numbers {
        let mut values = Vec::new();
        for layer in 0..spec.attention.len() {
            let name = format!("model.layers.{layer}.mlp.act_fn.{name}");
            if !weights.contains(&name) {
                continue;
            }
            let number = weights.dense(&name, shape, DType::F32);
            let number = number.map_err(|error| error.to_string())?.flatten_all();
            values.extend(
                number.and_then(|number| number.to_vec1::<f32>()).map_err(|e| e.to_string())?,
            );
        }
        if !values.is_empty() {
            set(words, &format!("xielu.{name}"), Entry::F32s(values));
        }
    }
    Ok(())
}

/// What the folder recommends for sampling.
fn add_sampling(words: &mut Words, source: &ModelSource) -> Result<(), String> {
    let Some(config) = &source.generation_config else { return Ok(()) };
    if let Some(top_k) = config.get("top_k").and_then(Value::as_u64) {
        let top_k = i32::try_from(top_k).map_err(|_| format!("`top_k` is {top_k}, too large"))?;
        set(words, "general.sampling.top_k", Entry::I32(top_k));
    }
    for (gguf, name) in SAMPLING_NUMBERS {
        #[expect(clippy::cast_possible_truncation, reason = "numbers are stored as f32")]
        if let Some(value) = config.get(name).and_then(Value::as_f64) {
            set(words, &format!("general.sampling.{gguf}"), Entry::F32(value as f32));
        }
    }
    Ok(())
}
