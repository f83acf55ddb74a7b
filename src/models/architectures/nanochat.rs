//! nanochat: RMS norms without scales, also of the embeddings and, behind the rotation, of query and
//! key heads; pairs rotated the other way round; an ungated feed-forward part with squared ReLU.

use crate::layers::attention::NormSpan;
use crate::layers::mlp::MlpTensors;
use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::rope::RopeScaling;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, bad, base, read_attention_bias,
    set_query_key_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("NanoChatForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { activation: "relu2", ..Defaults::LLAMA })?;
    read_attention_bias(config, &mut spec);
    spec.norm = NormSpec { scale: NormScale::One, ..spec.norm };
    spec.embedding_norm = Some("norm");
    spec.mlp.tensors = MlpTensors::Plain(["fc1", "fc2"]);
    let softcap = "final_logit_softcapping";
    if !config.is_null(softcap) {
        spec.logit_softcap = Some(config.positive(softcap)?.unwrap_or(15.0));
    }
    set_query_key_norm(&mut spec, NormSpan::RotatedHead);
    for rope in &mut spec.ropes {
        let RopeScaling::None = rope.scaling else {
            let bound = "supported is the default rope alone";
            return Err(bad("rope_parameters", "a scaled rope", bound));
        };
        rope.scaling = RopeScaling::Factors(vec![-1.0; rope.rotary_dim / 2]);
    }
    Ok(spec)
}
