//! Sets of JSON types, with the integers apart from the other numbers.

use serde_json::Value;

/// A set of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const INTEGER: Self = Self(4);
    const FRACTION: Self = Self(8);
    /// Integers and the numbers between them.
    pub(super) const NUMBER: Self = Self(4 | 8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);

    /// The types that the keyword `type` names; `None` for a value that it can't have.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        match value {
            Value::String(name) => Self::named(name),
            Value::Array(names) if !names.is_empty() => names
                .iter()
                .map(|name| name.as_str().and_then(Self::named))
                .try_fold(Self::NONE, |types, named| Some(types.union(named?))),
            _ => None,
        }
    }

    /// The types of a schema's own `type`, all where it has none.
    pub(super) fn of(schema: &serde_json::Map<String, Value>) -> Self {
        schema.get("type").and_then(Self::parse).unwrap_or(Self::ALL)
    }

    /// The type of `value`.
    pub(super) fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.is_i64() || number.is_u64() => Self::INTEGER,
            Value::Number(number) if number.as_f64().is_some_and(|n| n.fract() == 0.0) => {
                Self::INTEGER
            }
            Value::Number(_) => Self::FRACTION,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The value of `type` that stands for the types outside this set; `None` where no value does
    /// (the numbers that are no integers have no name).
    pub(super) fn complement(self) -> Option<Value> {
        let rest = Self(Self::ALL.0 & !self.0);
        if rest.intersection(Self::NUMBER) == Self::FRACTION {
            return None;
        }
        let named = NAMES.iter().filter(|(name, types)| {
            *name != "integer" && types.0 & !rest.0 == 0
                || *name == "integer" && rest.intersection(Self::NUMBER) == Self::INTEGER
        });
        Some(named.map(|(name, _)| Value::from(*name)).collect())
    }

    fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, types)| *types)
    }
}

const NAMES: [(&str, Types); 7] = [
    ("null", Types::NULL),
    ("boolean", Types::BOOLEAN),
    ("integer", Types::INTEGER),
    ("number", Types::NUMBER),
    ("string", Types::STRING),
    ("array", Types::ARRAY),
    ("object", Types::OBJECT),
];
