//! From the configuration of a drafter of blocks, DFlash or DSpark, to the drafter.

use serde_json::Value;

use super::fields::{Fields, taps};
use crate::models::causal_lm::{CausalLm, DraftedBlock};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::block_drafter::{BlockDrafter, BlockDrafterSpec};
use crate::models::error::{Result, bad};
use crate::weights::Weights;

const SLIDING: &str = "sliding_attention";

/// Most tokens of a block: more rows of drafts than these are in no step.
const MOST_TOKENS: usize = 64;

/// Fields that would change what is computed, with the value that they must have.
const NOT_SUPPORTED: [(&str, bool); 4] = [
    ("use_aux_hidden_state", true),
    ("attention_sink_bias", false),
    ("add_swa_attention_sink_bias", false),
    ("is_neox_style", true),
];

/// Builds the drafter that `config` describes, whose layers are those of `decoder`.
pub(super) fn load(
    config: &Value,
    dependent: bool,
    decoder: DecoderSpec,
    weights: &Weights,
    model: &dyn CausalLm,
) -> Result<Box<dyn CausalLm>> {
    let spec = spec(config, dependent, decoder, model)?;
    // A drafter with hidden states of another size can't share them.
    let fits = spec.decoder.mlp.hidden_size == spec.model_hidden_size;
    let embedding = model.embedding().filter(|_| fits);
    let head = model.output_head().filter(|_| fits);
    Ok(Box::new(BlockDrafter::load(&spec, weights, embedding, head)?))
}

fn fields(config: &Value, dependent: bool) -> Fields<'_> {
    Fields::of(config, if dependent { "dspark_config" } else { "dflash_config" })
}

/// What a configuration says of such a drafter for `model`, as plain data.
fn spec(
    config: &Value,
    dependent: bool,
    decoder: DecoderSpec,
    model: &dyn CausalLm,
) -> Result<BlockDrafterSpec> {
    let fields = fields(config, dependent);
    for (name, needed) in NOT_SUPPORTED {
        if fields.is(name, needed) != needed {
            return Err(bad(name, !needed, "is not supported in a drafter of blocks"));
        }
    }
    for name in ["attention_value_scale", "dspark_draft_topk"] {
        if let Some(value) = fields.get(name) {
            return Err(bad(name, value, "is not supported in a drafter of blocks"));
        }
    }
    if let Some(file) = fields.get("mask_embedding") {
        let bound = "the mask's own embedding is not read from such a file; GGUF files that llama.cpp's \
                     converter makes of the drafter have it among the others";
        return Err(bad("mask_embedding", file, bound));
    }
    let sizes = [decoder.vocab_size, decoder.mlp.hidden_size];
    let [model_hidden_size, draft_vocab_size] = fields.fit(sizes, model)?;
    let windows = decoder.attention.iter().map(|layer| layer.params.window.is_some());
    let two_way = windows.enumerate().map(|(index, slides)| {
        let causal = is_causal(&fields, slides);
        if slides && !causal {
            let bound = "may slide only where tokens don't see those behind them";
            return Err(bad("layer_types", format!("{SLIDING} of layer {index}"), bound));
        }
        Ok(!causal)
    });
    let two_way = two_way.collect::<Result<_>>()?;
    Ok(BlockDrafterSpec {
        taps: tapped(&fields, model.num_layers())?,
        block: block(&fields, dependent, decoder.vocab_size)?,
        bias_rank: if dependent { Some(bias_rank(&fields)?) } else { None },
        two_way,
        draft_vocab_size,
        model_hidden_size,
        decoder,
    })
}

/// What is drafted at once.
fn block(fields: &Fields<'_>, dependent: bool, vocab: usize) -> Result<DraftedBlock> {
    let size = match fields.size("block_size")? {
        None => fields.size("dspark_block_size")?,
        size => size,
    };
    let size = size.ok_or_else(|| bad("block_size", "absent", "is needed"))?;
    let last_drafts = fields.is("sample_from_anchor", dependent);
    if last_drafts && !dependent {
        let bound = "is not supported: in DFlash only masks draft";
        return Err(bad("sample_from_anchor", true, bound));
    }
    let tokens = size.saturating_sub(usize::from(!last_drafts));
    if !(1..=MOST_TOKENS).contains(&tokens) {
        let bound = format!("must be for 1 to {MOST_TOKENS} drafts, not {tokens}");
        return Err(bad("block_size", size, bound));
    }
    let names = ["mask_token_id", "dspark_noise_token_id"];
    let mask = names.into_iter().find_map(|name| fields.get(name));
    let mask = mask.ok_or_else(|| bad(names[0], "absent", "is needed"))?;
    let id = mask.as_u64().and_then(|id| u32::try_from(id).ok());
    let id = id.filter(|id| (*id as usize) < vocab);
    let bound = format!("must be one of the {vocab} tokens");
    let id = id.ok_or_else(|| bad(names[0], mask, bound))?;
    let name = if dependent { "dspark" } else { "dflash" };
    Ok(DraftedBlock { name, mask: id, tokens, last_drafts })
}

/// The rank of the bias of a token by the one before it.
fn bias_rank(fields: &Fields<'_>) -> Result<usize> {
    if let Some(kind) = fields.get("markov_head_type").filter(|kind| *kind != "vanilla") {
        return Err(bad("markov_head_type", kind, "must be vanilla"));
    }
    match fields.size("markov_rank")? {
        None => Err(bad("markov_rank", "absent", "is needed")),
        Some(0) => Err(bad("markov_rank", 0, "must be at least 1")),
        Some(rank) => Ok(rank),
    }
}

/// Whether tokens of a block don't see those behind them in a layer that slides or not.
fn is_causal(fields: &Fields<'_>, slides: bool) -> bool {
    let told = fields.get("is_causal").or_else(|| fields.get("causal")).and_then(Value::as_bool);
    told.unwrap_or(slides && fields.get("layer_types").is_some_and(slides_anywhere))
}

fn slides_anywhere(layer_types: &Value) -> bool {
    layer_types.as_array().is_some_and(|types| types.iter().any(|kind| kind == SLIDING))
}

/// The configuration of the layers.
pub(super) fn of_layers(config: &Value, dependent: bool) -> Result<Value> {
    let own = fields(config, dependent);
    let mut fields = own.of_layers();
    fields.insert("architectures".to_owned(), vec!["Qwen3ForCausalLM"].into());
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    if !has("rope_theta") && !has("rope_parameters") {
        fields.insert("rope_theta".to_owned(), 1_000_000.into());
    }
    let slides = fields.get("layer_types").is_some_and(slides_anywhere);
    let all_slide = own.is("use_swa", false) && !slides;
    if all_slide {
        let layers = own.size("num_hidden_layers")?.unwrap_or(1);
        fields.insert("layer_types".to_owned(), vec![SLIDING; layers].into());
    }
    if let Some(window) = own.get("swa_window_size") {
        fields.insert("sliding_window".to_owned(), window.clone());
    }
    fields.insert("use_sliding_window".to_owned(), (slides || all_slide).into());
    Ok(Value::Object(fields))
}

/// The layers of a model of `layers` whose inputs the drafter sees: listed as such, or by the outputs of
/// the layers before them.
fn tapped(fields: &Fields<'_>, layers: usize) -> Result<Vec<usize>> {
    const NAMES: [(&str, usize); 4] = [
        ("eagle_aux_hidden_state_layer_ids", 0),
        ("aux_hidden_state_layer_ids", 0),
        ("target_layer_ids", 1),
        ("dspark_target_layer_ids", 1),
    ];
    for (name, offset) in NAMES {
        let listed = fields.list(name, false).or_else(|| fields.list(name, true));
        if let Some(listed) = listed {
            return taps(name, listed, offset, layers, 1);
        }
    }
    Err(bad(NAMES[2].0, "absent", "is needed"))
}
