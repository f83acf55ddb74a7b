//! HRM-Text: two lists of layers that take turns with states of their own. A pass through the low one sees
//! the sum of both states and gives the low state; after some of them a pass through the high one gives the
//! high state, which is the embeddings at first. Norms have no scales, attention has gates.

use crate::layers::attention::{GateTensor, HeadGate, QkvTensors};
use crate::layers::mlp::MlpTensors;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Join, Names, Place, RawFields, Result, Schedule,
    base, check_size,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("HrmTextForCausalLM", spec).completed_by(complete)];

const LISTS: [&str; 2] = ["L_module.layers", "H_module.layers"];
/// The most places of layers, and the most passes of a kind.
const MOST: usize = 1 << 12;

/// All heads have keys and values of their own, whatever the file says.
fn complete(fields: &mut RawFields<'_>) {
    fields.remove("num_key_value_heads");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("attention_bias", false)?;
    config.only("mlp_bias", false)?;
    let defaults = Defaults { head_dim: Some(128), ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.norm = NormSpec { scale: NormScale::One, ..spec.norm };
    spec.names = Names { layers: LISTS[0], attention: "attn", ..Names::COMMON };
    spec.embedding_scale = match config.positive("embedding_scale")? {
        Some(scale) => scale,
        None => 1.0 / config.positive("initializer_range")?.unwrap_or(0.02),
    };
    spec.mlp.tensors = MlpTensors::GateAndUp(["gate_up_proj", "down_proj"]);
    let mut attention = spec.attention[0];
    attention.qkv = QkvTensors::Stacked("gqkv_proj");
    attention.gate = Some(HeadGate::sigmoid(GateTensor::BeforeQueries));
    let schedule = schedule(config)?;
    spec.attention = vec![attention; schedule.places.len()];
    spec.schedule = Some(schedule);
    Ok(spec)
}

/// The passes of all cycles. A file counts the layers of a list, or the places of all of them beside that.
fn schedule(config: &HfConfig) -> Result<Schedule> {
    let layers = config.size_or("num_layers_per_stack", config.num_hidden_layers, 1..=MOST)?;
    let cycles = config.size_or("H_cycles", 2, 1..=MOST)?;
    let low = config.size_or("L_cycles", 3, 1..=MOST)?;
    let all = layers.saturating_mul(cycles).saturating_mul(low + 1);
    check_size("num_hidden_layers", all, 1..=MOST)?;
    let mut places = Vec::with_capacity(all);
    for pass in 0..cycles * (low + 1) {
        let [high, first] = [pass % (low + 1) == low, pass.is_multiple_of(low + 1)];
        let join = match (pass, high || first) {
            (0, _) => None,
            // The list that goes on is another one: what it adds to is the state that the last one gave.
            (_, true) => Some(Join::AddThenKeep),
            (_, false) => Some(Join::Add),
        };
        let list = LISTS[usize::from(high)];
        places.extend((0..layers).map(|layer| Place {
            list,
            layer,
            join: join.filter(|_| layer == 0),
        }));
    }
    Ok(Schedule { places, start: Some("z_L_init") })
}
