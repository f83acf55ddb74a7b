//! `SCONCE_<FLAG>`: the values that the environment has for flags.

use std::ffi::OsString;

use clap::Arg;

use super::kind::{Kind, Values, is_list};
use super::setting::{Judge, Origin, Setting, variable_of};

/// Names that other servers have for a variable.
const ALSO: [(&str, &str); 1] =
    [("allow-runtime-lora-updating", "VLLM_ALLOW_RUNTIME_LORA_UPDATING")];

/// The flag's value, if a variable has one. A variable that is set to nothing has none, as one that a
/// container's configuration leaves empty.
pub(super) fn setting(
    flag: &Arg,
    variable: &dyn Fn(&str) -> Option<OsString>,
    judge: &Judge<'_>,
) -> Result<Option<Setting>, String> {
    let Some(name) = flag.get_long() else { return Ok(None) };
    let also = ALSO.iter().filter(|(flag, _)| *flag == name).map(|(_, also)| (*also).to_owned());
    for variable_name in std::iter::once(variable_of(name)).chain(also) {
        let Some(value) = variable(&variable_name).filter(|value| !value.is_empty()) else {
            continue;
        };
        let wrong = |error: String| format!("environment variable {variable_name}: {error}");
        let value = value.into_string();
        let value = value.map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        if name == "port" && is_service_link(&value) {
            continue;
        }
        let values = values(flag, &value).map_err(&wrong)?;
        judge.check(name, &values).map_err(&wrong)?;
        let origin = Origin::Environment(variable_name);
        return Ok(Some(Setting { name: name.to_owned(), values, origin }));
    }
    Ok(None)
}

/// Kubernetes tells pods where a Service called `sconce` is, in a variable called `SCONCE_PORT`.
fn is_service_link(value: &str) -> bool {
    value.starts_with("tcp://") || value.starts_with("udp://")
}

fn values(flag: &Arg, value: &str) -> Result<Values, String> {
    if Kind::of(flag) == Kind::Switch {
        return match value.to_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(Values::Switch(true)),
            "0" | "false" | "no" | "off" => Ok(Values::Switch(false)),
            _ => Err(format!("`{value}` is not true or false")),
        };
    }
    // A comma inside of JSON separates nothing.
    if is_list(flag) && !value.trim_start().starts_with(['{', '[']) {
        let items = value.split(',').map(|item| item.trim().to_owned());
        return Ok(Values::Texts(items.collect()));
    }
    Ok(Values::Texts(vec![value.to_owned()]))
}
