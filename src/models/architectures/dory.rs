//! Dory: hidden states of length one, which attention and feed-forward parts turn by learned rates; some
//! layers in the middle are gone through again, each time with what the first layers gave. Attention in
//! windows and over all takes turns, with gates. Files count attention and feed-forward parts as layers of
//! their own.

use crate::layers::attention::{GateTensor, HeadGate, QueryKeyNorm, SquaredScales};
use crate::layers::mlp::GateAndUpScales;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Join, LearnedSums, Names, Place, Result,
    RopeDefaults, Schedule, bad, base, check_size, set_biases,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("DoryForCausalLM", spec)];

/// The most places of layers.
const MOST: usize = 1 << 12;
const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(4),
    head_dim: Some(256),
    context: 8192,
    rope: RopeDefaults { theta: 10_000_000.0, ..Defaults::LLAMA.rope },
    ..Defaults::LLAMA
};

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    Sliding,
    Mlp,
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    match config.field::<String>("recurrent_kv_cache_mode")?.as_deref() {
        None | Some("per_loop") => {}
        Some(other) => return Err(bad("recurrent_kv_cache_mode", other, "supported is per_loop")),
    }
    config.only("attention_bias", false)?;
    let mut spec = base(config, &DEFAULTS)?;
    set_biases(&mut spec, false, config.mlp_bias.unwrap_or(false));
    spec.names = Names {
        roots: &["backbone.", "model."],
        embedding: "embeddings",
        attention: "mixer",
        mlp: "mixer",
        ..Names::COMMON
    };
    spec.norm = NormSpec { scale: NormScale::UnitLength, ..NormSpec::rms(1e-6) };
    // They have no scales, so no names in files.
    spec.block = Block {
        after_attention: Some("post_attention_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        after_mlp: Some("post_feedforward_layernorm"),
        ..Block::PRE_NORM
    };
    let kinds = kinds(config)?;
    let schedule = schedule(config, &kinds)?;
    set_layers(config, &mut spec, &kinds, &schedule)?;
    spec.schedule = Some(schedule);
    Ok(spec)
}

/// What each place of the schedule has, and its learned scales.
#[expect(clippy::cast_precision_loss, reason = "sizes are below 2^24")]
fn set_layers(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    kinds: &[Kind],
    schedule: &Schedule,
) -> Result<()> {
    let deviation = config.positive("initializer_range")?.unwrap_or(0.0177);
    let rate = config.number_or("ngpt_alpha_init", 0.05)?;
    spec.learned_sums = Some(LearnedSums::Rates(["attn_alpha", "mlp_alpha"], rate / deviation));
    spec.logit_scales = Some(("lm_head.logit_scale", 1.0 / deviation));
    let hidden = config.hidden_size as f32;
    spec.mlp.scales =
        Some(GateAndUpScales { names: ["suv_gate", "suv_up"], factor: hidden.sqrt() });
    spec.mlp.inner_norm = Some(("ffn_sub_norm", spec.norm));
    let mut attention = spec.attention[0];
    attention.gate = Some(HeadGate::sigmoid(GateTensor::Elements("g_proj")));
    attention.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    attention.output_norm = Some(("attn_sub_norm", spec.norm));
    attention.squared_scales = Some(SquaredScales {
        queries: ("sqk", (attention.head_dim as f32).sqrt() / deviation),
        gates: ("s_gate", hidden.sqrt().sqrt() / deviation),
    });
    spec.ropes = config.ropes_by_layer_type(attention.head_dim, DEFAULTS.rope, 10_000.0)?.to_vec();
    let window = config.sliding_window.flatten().unwrap_or(1024);
    let places = || schedule.places.iter().map(|place| kinds[place.layer]);
    let of_place = |kind: Kind| {
        let mut own = attention;
        let sliding = kind == Kind::Sliding;
        own.rope = Some(usize::from(sliding));
        own.params.window = sliding.then_some(window);
        own
    };
    spec.attention = places().map(of_place).collect();
    spec.mixers = Some(places().map(|kind| kind != Kind::Mlp).collect());
    let size = |kind: Kind| if kind == Kind::Mlp { config.intermediate_size } else { 0 };
    spec.intermediate_sizes = Some(places().map(size).collect());
    Ok(())
}

/// What each layer is: as the file says, else attention with a feed-forward part behind each, in windows in
/// three of four.
fn kinds(config: &HfConfig) -> Result<Vec<Kind>> {
    let names =
        [("full_attention", Kind::Full), ("sliding_attention", Kind::Sliding), ("mlp", Kind::Mlp)];
    let listed = config
        .layer_kinds(&names, "full_attention, sliding_attention and mlp")?
        .unwrap_or_else(|| {
            let full = |layer: usize| (layer + 1).is_multiple_of(4);
            let kind = |layer| if full(layer) { Kind::Full } else { Kind::Sliding };
            (0..config.num_hidden_layers).map(kind).collect()
        });
    if listed.contains(&Kind::Mlp) {
        return Ok(listed);
    }
    Ok(listed.into_iter().flat_map(|kind| [kind, Kind::Mlp]).collect())
}

/// First layers, then the layers in the middle again and again, then the last ones.
fn schedule(config: &HfConfig, kinds: &[Kind]) -> Result<Schedule> {
    // A file that lists no feed-forward parts doesn't count them.
    let times = kinds.len() / config.num_hidden_layers;
    let count = |name, default: usize| -> Result<usize> {
        Ok(config.size_or(name, default, 0..=MOST)? * times)
    };
    let [first, last] = [count("n_input_layers", 8)?, count("n_output_layers", 8)?];
    let Some(again) = kinds.len().checked_sub(first + last).filter(|again| *again > 0) else {
        let bound = format!("must leave some of {} layers, as must `n_output_layers`", kinds.len());
        return Err(bad("n_input_layers", first, bound));
    };
    let given = count("n_recurrent_layers", again / times)?;
    if given != again {
        return Err(bad("n_recurrent_layers", given, format!("must be the {again} between")));
    }
    let rounds = config.size_or("n_recurrent_loops", 2, 1..=MOST)?;
    check_size("n_recurrent_loops", rounds * again, 1..=MOST)?;
    let place = |layer, join| Place { list: "layers", layer, join };
    let mut places: Vec<Place> = (0..first).map(|layer| place(layer, None)).collect();
    for round in 0..rounds {
        let join = if round == 0 { Join::KeepThenAdd } else { Join::Add };
        let middle = first..first + again;
        places.extend(middle.map(|layer| place(layer, (layer == first).then_some(join))));
    }
    places.extend((first + again..kinds.len()).map(|layer| place(layer, None)));
    Ok(Schedule { places, start: None })
}
