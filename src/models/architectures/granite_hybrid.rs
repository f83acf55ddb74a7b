//! Granite 4: most layers have a state space instead of attention, and all have Granite's factors;
//! a feed-forward part is there without experts and, for all tokens, beside them.

use super::granite;
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{ExpertTensors, MoeSpec, SharedExpert, StackedTensors};
use crate::models::ModelError;
use crate::models::common::base::Defaults;
use crate::models::common::experts::{self, FIELDS, count, experts};
use crate::models::common::state_space::{MAMBA_FIELDS, recurrent, spaced_layers};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{Fields, HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Names;

/// An older name of a field.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.same("layer_types", "layers_block_type");
}

/// What `GraniteMoeHybridForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    // Files of other formats may have other hybrids in these words, which rotate a share.
    let rope = RopeDefaults { partial: true, ..Defaults::LLAMA.rope };
    let mut spec = granite::with(config, &Defaults { rope, ..Defaults::LLAMA })?;
    config.only("mlp_bias", false)?;
    let field = "position_embedding_type";
    match config.field::<String>(field)?.as_deref() {
        Some("rope") => {}
        None | Some("nope") => {
            spec.ropes.clear();
            for layer in &mut spec.attention {
                layer.rope = None;
            }
        }
        Some(other) => return Err(bad(field, other, "supported are rope, nope and null")),
    }
    spec.names = Names { mlp: "shared_mlp", ..spec.names };
    let expert = MlpSpec { bias: false, ..spec.mlp };
    let apart = config.field("experts_apart")?.unwrap_or(false);
    spec.mlp = MlpSpec { intermediate_size: shared_size(config)?, ..expert };
    if !apart {
        spec.mlp.tensors = MlpTensors::GateAndUp(["input_linear", "output_linear"]);
    }
    if config.field("num_local_experts")? != Some(0) {
        let shared = SharedExpert { name: "shared_mlp", mlp: spec.mlp, gate: None };
        spec.moe = Some(with_experts(config, &spec, expert, shared, apart)?);
    }
    let layers = spaced_layers(config)?;
    spec.recurrent = recurrent(config, &MAMBA_FIELDS, spec.norm.eps, layers, "mamba")?;
    Ok(spec)
}

/// Elements inside of the feed-forward part that all tokens go through.
fn shared_size(config: &HfConfig) -> Result<usize, ModelError> {
    let field = "shared_intermediate_size";
    match config.field::<usize>(field)? {
        None => Ok(1024),
        Some(_) => count(config, field, 1 << 28),
    }
}

/// Experts as Granite has them without state spaces.
fn with_experts(
    config: &HfConfig,
    spec: &DecoderSpec,
    expert: MlpSpec,
    shared: SharedExpert,
    apart: bool,
) -> Result<MoeSpec, ModelError> {
    let fields = experts::Fields { inner: "intermediate_size", ..FIELDS };
    let mut moe = experts(config, spec, &fields)?;
    moe.expert = MlpSpec { intermediate_size: moe.expert.intermediate_size, ..expert };
    moe.router = "block_sparse_moe.router.layer";
    moe.experts = if apart {
        ExpertTensors::List("block_sparse_moe.experts")
    } else {
        ExpertTensors::Stacked(StackedTensors::new([
            "block_sparse_moe.input_linear.weight",
            "block_sparse_moe.output_linear.weight",
        ]))
    };
    moe.routing.renormalize = true;
    moe.shared = Some(shared);
    Ok(moe)
}
