//! Granite 4: most layers have a state space instead of attention, and all have Granite's
//! multipliers; without experts there is a feed-forward part, with experts it is a shared one.

use super::{granite, granite_moe};
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{MoeSpec, SharedExpert};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, MAX_SIZE, Names, RawFields, Result,
    RopeDefaults, StateSpaceFields, are_separate, bad, recurrent, remove_rope, state_space_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("GraniteMoeHybridForCausalLM", spec).completed_by(complete)];

/// The older name of a field.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("layer_types", "layers_block_type");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    // GGUF files may describe other hybrids by these fields, which rotate a share of a head.
    let rope = RopeDefaults { partial: true, ..Defaults::LLAMA.rope };
    let mut spec = granite::with(config, &Defaults { rope, ..Defaults::LLAMA })?;
    config.only("mlp_bias", false)?;
    let field = "position_embedding_type";
    match config.field::<String>(field)?.as_deref() {
        Some("rope") => {}
        None | Some("nope") => remove_rope(&mut spec),
        Some(other) => return Err(bad(field, other, "supported are rope, nope and null")),
    }
    spec.names = Names { mlp: "shared_mlp", ..spec.names };
    let expert = MlpSpec { bias: false, ..spec.mlp };
    let intermediate_size = config.size_or("shared_intermediate_size", 1024, 1..=MAX_SIZE)?;
    spec.mlp = MlpSpec { intermediate_size, ..expert };
    if !are_separate(config)? {
        spec.mlp.tensors = MlpTensors::GateAndUp(["input_linear", "output_linear"]);
    }
    if config.field("num_local_experts")? != Some(0) {
        let shared = SharedExpert { name: "shared_mlp", mlp: spec.mlp, gate: None, factor: 1.0 };
        let routed = granite_moe::experts(config, &spec)?;
        let expert = MlpSpec { intermediate_size: routed.expert.intermediate_size, ..expert };
        spec.moe = Some(MoeSpec { expert, shared: Some(shared), ..routed });
    }
    let layers = state_space_layers(config)?;
    spec.recurrent = recurrent(config, &StateSpaceFields::HYBRID, spec.norm.eps, layers, "mamba")?;
    Ok(spec)
}
