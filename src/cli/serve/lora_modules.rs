//! The value of `--lora-modules`, in the spellings that vLLM takes.

use std::str::FromStr;

use crate::app::adapters::LoraModule;

/// One value of `--lora-modules`, which may stand for several adapters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoraModules(pub(super) Vec<LoraModule>);

impl FromStr for LoraModules {
    type Err = String;

    /// Takes `NAME=PATH`, or a JSON object or list with `name`, `path` and `base_model_name`.
    fn from_str(text: &str) -> Result<Self, String> {
        let modules = match text.trim_start().chars().next() {
            Some('{') => serde_json::from_str(text).map(|one| vec![one]),
            Some('[') => serde_json::from_str(text),
            _ => match text.split_once('=') {
                Some((name, path)) => Ok(vec![LoraModule {
                    name: name.to_owned(),
                    path: path.to_owned(),
                    base_model_name: None,
                }]),
                None => return Err(format!("expected NAME=PATH or JSON, got {text:?}")),
            },
        };
        let modules: Vec<LoraModule> = modules.map_err(|error| error.to_string())?;
        match modules.iter().find(|module| module.name.is_empty() || module.path.is_empty()) {
            None => Ok(Self(modules)),
            Some(_) => Err(format!("a name and a path must not be empty, got {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let modules: LoraModules = text.parse()?;
        Ok(modules.0.into_iter().map(|module| (module.name, module.path)).collect())
    }

    fn pair(name: &str, path: &str) -> (String, String) {
        (name.to_owned(), path.to_owned())
    }

    #[test]
    fn adapters_are_spelled_as_pairs_or_json() {
        assert_eq!(read("sql=/a/b=c"), Ok(vec![pair("sql", "/a/b=c")]));
        assert_eq!(read(r#"{"name": "a", "path": "b"}"#), Ok(vec![pair("a", "b")]));
        let list = r#"[{"name": "a", "path": "b"}, {"name": "c", "path": "org/d"}]"#;
        assert_eq!(read(list), Ok(vec![pair("a", "b"), pair("c", "org/d")]));
        assert!(read("sql").unwrap_err().contains("NAME=PATH"));
        assert!(read("=x").unwrap_err().contains("must not be empty"));
        assert!(read(r#"{"name": "a"}"#).unwrap_err().contains("`path`"));
        assert!(read(r#"{"name": "a", "path": "b", "c": 1}"#).unwrap_err().contains("`c`"));
    }
}
