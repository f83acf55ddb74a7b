//! A request as the engine would get it: the prompt's tokens, and what shapes the answer. The shape is
//! vLLM's `GenerateRequest`, which routers read, with the prompt's text and length beside it.

use serde_json::{Map, Value, json};

use super::options::GenerationOptions;
use super::prompt::RenderedPrompt;
use crate::http::state::AppState;
use crate::sampling::params::SCALARS;

/// What stands in the description of a chat beside the chat itself.
#[derive(Debug)]
pub(crate) struct Described {
    /// The request's own.
    pub(crate) id: String,
    pub(crate) model: String,
    /// Whether to tell where in the text each token stands.
    pub(crate) offsets: bool,
}

/// One prompt of a request; `id` is the request's.
pub(crate) fn rendered(
    prompt: &RenderedPrompt,
    options: &GenerationOptions,
    id: &str,
    model: &str,
    streams: bool,
    state: &AppState,
) -> Value {
    json!({
        "request_id": id,
        "model": model,
        "prompt": prompt.text,
        "token_ids": prompt.token_ids,
        "prompt_token_ids": prompt.token_ids,
        "token_offsets": prompt.offsets,
        "features": null,
        "count": prompt.token_ids.len(),
        "max_model_len": state.engine.limits().max_model_len,
        "sampling_params": sampling_params(options),
        "stream": streams,
        "cache_salt": options.cache_salt,
        "priority": options.priority,
        "kv_transfer_params": null,
    })
}

fn sampling_params(options: &GenerationOptions) -> Value {
    let params = &options.sampling;
    let scalars = SCALARS.iter().map(|scalar| {
        // As it was written, and not what a 32-bit number makes of it in 64 bits.
        let shown: f64 = (scalar.get)(params).to_string().parse().unwrap_or_default();
        (scalar.name.to_owned(), json!(shown))
    });
    let mut all: Map<String, Value> = scalars.collect();
    let others = json!({
        "n": options.own.n,
        "top_k": params.top_k,
        "seed": options.seed,
        "max_tokens": options.own.max_tokens,
        "stop": options.own.stop_strings,
        "logprobs": params.logprobs,
        "prompt_logprobs": options.own.prompt_logprobs,
        "ignore_eos": options.ignore_eos,
        "skip_special_tokens": options.skip_special_tokens,
        "include_stop_str_in_output": options.include_stop_str_in_output,
    });
    all.extend(others.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}
