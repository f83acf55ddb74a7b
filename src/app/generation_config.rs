//! The sampling parameters of requests that name none: the model's own, a file's, or this server's.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use crate::http::state::GenerationDefaults;

/// Where the sampling parameters that a request leaves out come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GenerationConfig {
    /// The model's own `generation_config.json`.
    #[default]
    Auto,
    /// This server's defaults alone.
    None,
    /// This file, or the `generation_config.json` of this folder.
    File(PathBuf),
}

impl GenerationConfig {
    /// Reads `auto`, `none`, or else a path.
    pub fn parse(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            path => Self::File(path.into()),
        }
    }

    /// The defaults for a model whose own `generation_config.json` is `own`.
    pub(super) fn defaults(&self, own: Option<&Value>) -> anyhow::Result<GenerationDefaults> {
        Ok(defaults(self.suggested(own)?.as_ref()))
    }

    /// The content of the file that holds, for a model whose own is `own`.
    fn suggested(&self, own: Option<&Value>) -> anyhow::Result<Option<Value>> {
        let path = match self {
            Self::Auto => return Ok(own.cloned()),
            Self::None => return Ok(None),
            Self::File(path) if path.is_dir() => path.join("generation_config.json"),
            Self::File(path) => path.clone(),
        };
        let named = || format!("--generation-config {}", path.display());
        let text = std::fs::read_to_string(&path).with_context(named)?;
        let value: Value = serde_json::from_str(&text).with_context(named)?;
        anyhow::ensure!(value.is_object(), "{}: is not a JSON object", named());
        Ok(Some(value))
    }
}

/// The values of a `generation_config.json`. Those out of range are left out, with a warning.
fn defaults(generation_config: Option<&Value>) -> GenerationDefaults {
    let number = |name: &str, allowed: fn(f64) -> bool| {
        let value = generation_config?.get(name).filter(|value| !value.is_null())?;
        let number = value.as_f64().filter(|number| allowed(*number));
        if number.is_none() {
            tracing::warn!("generation_config.json: `{name}` is {value}, which is not used");
        }
        number
    };
    #[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
    let count = |number: f64| number as i64;
    GenerationDefaults {
        temperature: number("temperature", |value| (0.0..=2.0).contains(&value)),
        top_p: number("top_p", |value| value > 0.0 && value <= 1.0),
        top_k: number("top_k", |k| k.fract() == 0.0 && (-1.0..=1e9).contains(&k)).map(count),
        min_p: number("min_p", |value| (0.0..=1.0).contains(&value)),
        repetition_penalty: number("repetition_penalty", |value| value > 0.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sampling_is_suggested_by_the_model_by_a_file_or_by_nobody() {
        let own = json!({"temperature": 0.6, "top_k": 20, "top_p": null, "min_p": 7});
        let with = |text: &str| GenerationConfig::parse(text).suggested(Some(&own));
        let from_model = defaults(with("auto").unwrap().as_ref());
        assert_eq!((from_model.temperature, from_model.top_k), (Some(0.6), Some(20)));
        assert_eq!((from_model.top_p, from_model.min_p), (None, None));
        assert_eq!(with("none").unwrap(), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("generation_config.json");
        std::fs::write(&file, r#"{"temperature": 1.5}"#).unwrap();
        for path in [folder.path(), &file] {
            let given = defaults(with(path.to_str().unwrap()).unwrap().as_ref());
            assert_eq!((given.temperature, given.top_k), (Some(1.5), None));
        }
        std::fs::write(&file, "[1]").unwrap();
        let error = with(folder.path().to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("is not a JSON object"), "{error}");
        let error = with("/nowhere/at/all").unwrap_err().to_string();
        assert!(error.contains("--generation-config /nowhere/at/all"), "{error}");
    }
}
