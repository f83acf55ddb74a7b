//! The fields that `/api/chat` and `/api/generate` share, and what is inside of `options`.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::generate::demand::Demand;
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::options::{GenerationOptions, OwnOptions};
use crate::http::generate::stop_strings::stop_strings;
use crate::http::openai::sampling::top_logprobs;
use crate::http::openai::synonyms::either;
use crate::http::request::arrival::Arrival;
use crate::http::request::fields::{BodyReader, FieldReader};
use crate::http::request::rules::{Rules, Treatment, is_empty, is_false, is_one, is_true, is_zero};
use crate::http::state::AppState;
use crate::http::wire::bounds::THINK_LEVELS;
use crate::http::wire::number::{Int, integer, to_usize};
use crate::http::wire::ollama::{OllamaFields, OptionFields, ThinkField};
use crate::http::wire::sampling::CommonFields;
use crate::http::wire::scalars::ScalarFields;
use crate::http::wire::stop::StopField;

/// Only so many of the last tokens count as repeated, if a request doesn't say.
const REPEAT_LAST_N: Int = Int(64);
const NUM_CTX: &str = "options.num_ctx";

/// Fields that no struct has. What would move a conversation that fills the context is refused:
/// here such a request is an error, or its answer ends.
pub(super) const OLLAMA_RULES: Rules = &[
    ("_debug_render_only", Treatment::Unsupported(is_false)),
    ("keep_alive", Treatment::IgnoredUnless(is_forever)),
    ("shift", Treatment::Unsupported(is_false)),
    ("template", Treatment::Unsupported(is_empty)),
    ("truncate", Treatment::Unsupported(is_false)),
    // The order of calls says the same.
    ("messages[].tool_calls[].function.index", Treatment::IgnoredUnless(is_anything)),
    ("messages[].tool_calls[].type", Treatment::IgnoredUnless(is_anything)),
    ("options.mirostat", Treatment::Unsupported(is_zero)),
    ("options.penalize_newline", Treatment::Unsupported(is_true)),
    ("options.tfs_z", Treatment::Unsupported(is_one)),
    ("options.mirostat_eta", Treatment::Ignored),
    ("options.mirostat_tau", Treatment::Ignored),
    // Nothing is discarded from a sequence that fills the context: it ends.
    ("options.num_keep", Treatment::Ignored),
    // How a model is loaded, which this one is already.
    ("options.draft_num_predict", Treatment::Ignored),
    ("options.embedding_only", Treatment::Ignored),
    ("options.f16_kv", Treatment::Ignored),
    ("options.logits_all", Treatment::Ignored),
    ("options.low_vram", Treatment::Ignored),
    ("options.main_gpu", Treatment::Ignored),
    ("options.num_batch", Treatment::Ignored),
    ("options.num_gpu", Treatment::Ignored),
    ("options.num_thread", Treatment::Ignored),
    ("options.numa", Treatment::Ignored),
    ("options.use_mlock", Treatment::Ignored),
    ("options.use_mmap", Treatment::Ignored),
    ("options.vocab_only", Treatment::Ignored),
];

/// Whether a time says that the model stays loaded, which it does.
pub(super) fn is_forever(time: &Value) -> bool {
    time.as_f64().is_some_and(|time| time < 0.0)
        || time.as_str().is_some_and(|time| time.starts_with('-'))
}

fn is_anything(_value: &Value) -> bool {
    true
}

/// What the shared fields ask for.
pub(super) struct Shared {
    pub(super) options: GenerationOptions,
    pub(super) thinking: Thinking,
    pub(super) streams: bool,
    pub(super) logprobs: bool,
}

impl Shared {
    /// Checks the fields of a request for `model`; `reasons` is whether that model can.
    pub(super) fn new(
        request: &OllamaFields,
        (model, reasons): (&str, bool),
        names: &'static FieldNames,
        arrival: &Arrival,
        state: &AppState,
        fields: &mut FieldReader,
    ) -> Result<Self, ApiError> {
        let logprobs = request.logprobs == Some(true);
        let top = top_logprobs("top_logprobs", request.top_logprobs, state)?.unwrap_or(0);
        if top > 0 && !logprobs {
            let message = format!("top_logprobs ({top}) needs logprobs to be true");
            return Err(ApiError::field("top_logprobs", message));
        }
        let options = RequestOptions::read(request.options.as_ref(), fields)?;
        let own = options.own(names, state, fields)?;
        let own = OwnOptions {
            demand: demand(request.format.as_ref())?,
            logprobs: logprobs.then_some(top),
            ..own
        };
        let RequestOptions { scalars, common, .. } = &options;
        Ok(Self {
            options: GenerationOptions::new(own, scalars, common, arrival, state)?,
            thinking: Thinking::new(request.think.as_ref(), model, reasons)?,
            streams: request.stream != Some(false),
            logprobs,
        })
    }
}

/// What a request says about reasoning, in the words of templates.
#[derive(Debug, Default)]
pub(super) struct Thinking {
    pub(super) enabled: Option<bool>,
    pub(super) effort: Option<String>,
}

impl Thinking {
    fn new(field: Option<&ThinkField>, model: &str, reasons: bool) -> Result<Self, ApiError> {
        let (enabled, effort) = match field {
            None => return Ok(Self::default()),
            Some(ThinkField::Flag(enabled)) => (*enabled, None),
            Some(ThinkField::Level(level)) if THINK_LEVELS.contains(&level.as_str()) => {
                (true, Some(level.clone()))
            }
            Some(ThinkField::Level(level)) => {
                let words = THINK_LEVELS.join(", ");
                let message = format!("think must be true, false or one of {words}, got {level:?}");
                return Err(ApiError::field("think", message));
            }
        };
        if enabled && !reasons {
            return Err(ApiError::field("think", format!("{model:?} does not support thinking")));
        }
        Ok(Self { enabled: Some(enabled), effort })
    }
}

/// What the answer must be like.
fn demand(format: Option<&Value>) -> Result<Option<Demand>, ApiError> {
    const FORMAT: &str = "format";
    match format {
        None => Ok(None),
        Some(Value::String(word)) if word.is_empty() => Ok(None),
        Some(Value::String(word)) if word == "json" => Ok(Some(Demand::json_object(FORMAT))),
        Some(schema @ Value::Object(_)) => Demand::json_schema(schema, FORMAT).map(Some),
        Some(other) => {
            let shown: String = other.to_string().chars().take(80).collect();
            let message = format!("format must be \"json\" or a JSON schema, got {shown}");
            Err(ApiError::field(FORMAT, message))
        }
    }
}

/// The `options` of a request.
#[derive(Debug, Default)]
struct RequestOptions {
    own: OptionFields,
    common: CommonFields,
    scalars: ScalarFields,
}

impl RequestOptions {
    fn read(value: Option<&Value>, fields: &mut FieldReader) -> Result<Self, ApiError> {
        let Some(value) = value else { return Ok(Self::default()) };
        let mut reader = BodyReader::at(value, "options");
        let (own, common, scalars) = (reader.take()?, reader.take()?, reader.take()?);
        let mut options = Self { own, common, scalars };
        reader.finish(fields)?;
        options.read_penalties()?;
        Ok(options)
    }

    /// The penalty under Ollama's name, and its bound on how far back all of them look.
    fn read_penalties(&mut self) -> Result<(), ApiError> {
        const PENALTY: &str = "repetition_penalty";
        let own = ("repeat_penalty", self.own.repeat_penalty);
        let penalty = either((PENALTY, self.scalars.get(PENALTY)), own)?;
        self.scalars.set(PENALTY, penalty);
        let penalties = [PENALTY, "presence_penalty", "frequency_penalty"];
        if penalties.iter().any(|name| self.scalars.get(name).is_some()) {
            self.common.repeat_last_n.get_or_insert(REPEAT_LAST_N);
        }
        Ok(())
    }

    /// What has names of Ollama's own here, without what stands outside of `options`.
    fn own(
        &self,
        names: &'static FieldNames,
        state: &AppState,
        fields: &mut FieldReader,
    ) -> Result<OwnOptions, ApiError> {
        let max_tokens = integer(names.max_tokens, self.own.num_predict, -2, i64::MAX)?;
        let stop = self.own.stop.as_ref().map(|StopField(texts)| &texts[..]);
        Ok(OwnOptions {
            stop_strings: stop_strings("options.stop", stop)?,
            max_tokens: max_tokens.filter(|most| *most >= 0).map(to_usize),
            context: context(self.own.num_ctx, state.engine.limits().max_model_len, fields)?,
            ..OwnOptions::of(names)
        })
    }
}

/// The context that `num_ctx` asks for, if it is within the `most` that there is; a longer one
/// can't be had, and the request is told so.
pub(super) fn context(
    num_ctx: Option<Int>,
    most: usize,
    fields: &mut FieldReader,
) -> Result<Option<usize>, ApiError> {
    let asked = integer(NUM_CTX, num_ctx, 0, i64::MAX)?.map_or(0, to_usize);
    if asked > most {
        fields.ignore(NUM_CTX);
    }
    Ok(Some(asked).filter(|asked| (1..=most).contains(asked)))
}
