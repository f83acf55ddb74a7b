//! Mistral 4: latent attention with a query scale that grows with the position, and experts chosen
//! by softmax, from the groups with the two best, beside a shared one.

use super::deepseek::{latent, routed};
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults, groups,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("Mistral4ForCausalLM", spec)];

const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let interleaved = config.field_or("rope_interleave", true)?;
    // Files have the rotated part's share of a head, which the sizes of the parts say as well.
    let [rotated, plain] = ["qk_rope_head_dim", "qk_nope_head_dim"].map(|name| config.field(name));
    let share = part_of(rotated?.unwrap_or(64), plain?.unwrap_or(64));
    let mut config = config.clone();
    for rope in [&mut config.rope_parameters, &mut config.rope_scaling].into_iter().flatten() {
        if rope.partial_rotary_factor.is_some_and(|given| (given - share).abs() < 1e-6) {
            rope.partial_rotary_factor = None;
        }
    }
    let rope = RopeDefaults { theta: 10_000.0, ..Defaults::LLAMA.rope };
    let defaults = Defaults { context: 1 << 20, rope, ..Defaults::LLAMA };
    let mut spec = latent(&config, interleaved, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    let Some(mut moe) = routed(&config, &spec, 0)? else { return Ok(spec) };
    moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    moe.routing.renormalize = config.field_or("norm_topk_prob", true)?;
    moe.routing.groups = groups(&config, moe.num_experts)?;
    spec.moe = Some(moe);
    Ok(spec)
}

#[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^52")]
fn part_of(part: usize, rest: usize) -> f64 {
    part as f64 / (part + rest) as f64
}
