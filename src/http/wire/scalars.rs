//! The scalar sampling parameters as fields of a request: read, and described, from the table that
//! the sampler has of them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::sampling::params::{Low, SCALARS};

/// What a request gives for each of [`SCALARS`], in the order of that table; not yet checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScalarFields([Option<f64>; SCALARS.len()]);

/// The names of the fields, as serde wants them.
const NAMES: [&str; SCALARS.len()] = {
    let mut names = [""; SCALARS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SCALARS[at].name;
        at += 1;
    }
    names
};

impl ScalarFields {
    /// The value that the request gives under this name.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        NAMES.iter().position(|known| *known == name).and_then(|at| self.0[at])
    }

    /// Gives a value under this name.
    pub(crate) fn set(&mut self, name: &str, value: Option<f64>) {
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            self.0[at] = value;
        }
    }

    /// The values in the order of [`SCALARS`].
    pub(crate) fn values(&self) -> &[Option<f64>] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ScalarFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = ScalarFields;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object with sampling parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<ScalarFields, A::Error> {
                let mut fields = ScalarFields::default();
                while let Some(key) = access.next_key::<String>()? {
                    match NAMES.iter().position(|name| *name == key) {
                        Some(at) => fields.0[at] = access.next_value()?,
                        None => {
                            access.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_struct("ScalarFields", &NAMES, ScalarVisitor)
    }
}

/// The schemas of the fields by their names.
pub(crate) fn properties() -> Map<String, Value> {
    let described = SCALARS.iter().map(|scalar| {
        let mut schema = json!({"type": ["number", "null"], "maximum": scalar.high});
        match scalar.low {
            Low::At(low) => schema["minimum"] = json!(low),
            Low::Above(low) => schema["exclusiveMinimum"] = json!(low),
        }
        (scalar.name.to_owned(), schema)
    });
    described.collect()
}
