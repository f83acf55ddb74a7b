//! One file per family of feature extractors, which reads what a checkpoint's files say.

use serde_json::Value;

use super::fields::{Heard, refused, size};
use super::processor::{Processor, ProcessorError};
use crate::speech::features::other_features;

mod qwen2_audio;
mod qwen3_asr;
mod voxtral;

/// Says how sounds become tokens of a model with this `config.json`.
type Family = fn(&Value) -> Result<Heard, ProcessorError>;

/// The family of a class in `config.json`'s `architectures`.
fn find(class: &str) -> Option<Family> {
    Some(match class {
        "Qwen2AudioForConditionalGeneration" => qwen2_audio::heard,
        "Qwen3ASRForConditionalGeneration" => qwen3_asr::heard,
        "VoxtralForConditionalGeneration" => voxtral::heard,
        _ => return None,
    })
}

impl Processor {
    /// The processor for the model of `config.json`, with what `preprocessor_config.json` says; `None` if the
    /// model doesn't hear, or not here.
    ///
    /// # Errors
    ///
    /// A field whose value no such processor has.
    pub fn from_json(
        config: &Value,
        preprocessor: Option<&Value>,
    ) -> Result<Option<Self>, ProcessorError> {
        let classes = config["architectures"].as_array().into_iter().flatten();
        let Some(family) = classes.filter_map(Value::as_str).find_map(find) else {
            return Ok(None);
        };
        if !config["audio_config"].is_object() {
            return Ok(None);
        }
        let Heard { token, around, rule } = family(config)?;
        let mels = size(config, "num_mel_bins", 128, 1 << 10)?;
        if let Some((field, value, wanted)) =
            preprocessor.and_then(|processor| other_features(processor, mels))
        {
            let (file, bound) = ("preprocessor_config.json", format!("it must be {wanted}"));
            return Err(ProcessorError { file, field, value, bound });
        }
        let given = ["audio_token_id", "audio_token_index"];
        let given = given.into_iter().find(|name| config[*name].is_u64());
        let sound_token_id = match given {
            None => token,
            Some(field) => u32::try_from(config[field].as_u64().unwrap_or_default())
                .map_err(|_| refused(field, &config[field], "a token id is below 2^32"))?,
        };
        Ok(Some(Self { sound_token_id, around, mels, rule }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sounds::processor::Rule;

    fn config(class: &str) -> Value {
        json!({"architectures": [class], "audio_config": {}})
    }

    #[test]
    fn a_model_hears_by_its_class_and_its_encoder() {
        let read = |config: &Value| Processor::from_json(config, None).unwrap();
        let voxtral = read(&config("VoxtralForConditionalGeneration")).unwrap();
        assert_eq!(voxtral.rule, Rule::Windows { frames: 3000, tokens: 375 });
        assert_eq!(read(&config("Qwen2ForCausalLM")), None);
        let deaf = json!({"architectures": ["VoxtralForConditionalGeneration"]});
        assert_eq!(read(&deaf), None);
        let mut other = config("Qwen2AudioForConditionalGeneration");
        assert_eq!(read(&other).unwrap().sound_token_id, 151_646);
        other["audio_token_index"] = json!(7);
        assert_eq!(read(&other).unwrap().sound_token_id, 7);
    }

    #[test]
    fn a_processor_of_other_numbers_is_refused_by_name() {
        let config = config("Qwen3ASRForConditionalGeneration");
        let refused = |config: &Value, fields: Value| {
            Processor::from_json(config, Some(&fields)).unwrap_err().to_string()
        };
        assert!(refused(&config, json!({"hop_length": 80})).contains("`hop_length` is 80"));
        assert!(refused(&config, json!({"feature_size": 80})).contains("`feature_size` is 80"));
        let mut other = config.clone();
        other["audio_config"] = json!({"num_mel_bins": 0});
        assert!(refused(&other, json!({})).contains("`num_mel_bins` is 0"));
        other["audio_config"] = json!({"n_window": "wide"});
        assert!(refused(&other, json!({})).contains("`n_window`"));
    }
}
