//! Metadata values of a GGUF file, borrowed from its bytes.
//!
//! Arrays stay as bytes until they are asked for, so a declared length never allocates.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::cursor::Cursor;

/// Deepest array of arrays; nothing in use has more than two levels.
const MAX_DEPTH: usize = 8;

/// What an array or an entry holds, by the format's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(Cow<'a, str>),
    Array(Array<'a>),
}

/// Values of one kind, still encoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array<'a> {
    kind: Kind,
    count: usize,
    bytes: &'a [u8],
}

impl Kind {
    fn from_number(number: u32) -> Result<Self, String> {
        Ok(match number {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Text,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            other => return Err(format!("has the unknown value type {other}, expected 0 to 12")),
        })
    }

    /// Bytes of a value, `None` where it varies.
    fn size(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::Array => None,
        }
    }

    fn read<'a>(self, cursor: &mut Cursor<'a>, depth: usize) -> Result<Value<'a>, String> {
        Ok(match self {
            Self::U8 => Value::Unsigned(cursor.array::<1>()?[0].into()),
            Self::I8 => Value::Signed(i8::from_le_bytes(cursor.array()?).into()),
            Self::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array()?).into()),
            Self::I16 => Value::Signed(i16::from_le_bytes(cursor.array()?).into()),
            Self::U32 => Value::Unsigned(cursor.u32()?.into()),
            Self::I32 => Value::Signed(i32::from_le_bytes(cursor.array()?).into()),
            Self::F32 => Value::Float(widen(f32::from_le_bytes(cursor.array()?))),
            Self::U64 => Value::Unsigned(cursor.u64()?),
            Self::I64 => Value::Signed(i64::from_le_bytes(cursor.array()?)),
            Self::F64 => Value::Float(f64::from_le_bytes(cursor.array()?)),
            Self::Bool => match cursor.array::<1>()?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => return Err(format!("is the boolean {other}, expected 0 or 1")),
            },
            Self::Text => Value::Text(cursor.text()?),
            Self::Array => Value::Array(Array::read(cursor, depth)?),
        })
    }
}

impl<'a> Value<'a> {
    /// Reads a value with its leading type number.
    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Self, String> {
        Kind::from_number(cursor.u32()?)?.read(cursor, 0)
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(*value),
            Self::Signed(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub(crate) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Unsigned(value) => i64::try_from(*value).ok(),
            Self::Signed(value) => Some(*value),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an integer stands where a float belongs")]
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            other => other.as_i64().map(|value| value as f64),
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            other => other.as_u64().map(|value| value != 0),
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&Array<'a>> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// The value's type in a word, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unsigned(_) | Self::Signed(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
        }
    }
}

impl<'a> Array<'a> {
    fn read(cursor: &mut Cursor<'a>, depth: usize) -> Result<Self, String> {
        if depth >= MAX_DEPTH {
            return Err(format!("nests arrays deeper than {MAX_DEPTH} levels"));
        }
        let kind = Kind::from_number(cursor.u32()?)?;
        let count = cursor.u64()?;
        let start = cursor.position();
        if let Some(size) = kind.size() {
            let bytes = count.saturating_mul(size);
            cursor
                .take(bytes)
                .map_err(|error| format!("is an array of {count} values: {error}"))?;
        } else {
            for _ in 0..count {
                kind.read(cursor, depth + 1)?;
            }
        }
        // Every value took at least a byte of the file (a length field), so this fits.
        let count = usize::try_from(count).map_err(|_| "has too many values".to_owned())?;
        Ok(Self { kind, count, bytes: cursor.since(start) })
    }

    /// Decodes value by value; the bytes were checked when the array was read.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut cursor = Cursor::new(self.bytes);
        let kind = self.kind;
        (0..self.count).map_while(move |_| kind.read(&mut cursor, 1).ok())
    }

    /// All values through `convert`, `None` if one doesn't convert.
    pub(crate) fn collect<T>(&self, convert: impl Fn(&Value<'a>) -> Option<T>) -> Option<Vec<T>> {
        self.values().map(|value| convert(&value)).collect()
    }
}

/// The entries of a file's metadata.
#[derive(Debug, Default)]
pub(crate) struct Metadata<'a> {
    entries: BTreeMap<Cow<'a, str>, Value<'a>>,
}

impl<'a> Metadata<'a> {
    /// Adds an entry; a second one of the same key is an error.
    pub(crate) fn insert(&mut self, key: Cow<'a, str>, value: Value<'a>) -> Result<(), String> {
        if self.entries.contains_key(&key) {
            return Err(format!("metadata key `{key}` appears twice"));
        }
        self.entries.insert(key, value);
        Ok(())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.entries.get(key)
    }

    pub(crate) fn u64(&self, key: &str) -> Result<Option<u64>, String> {
        self.typed(key, "a non-negative integer", Value::as_u64)
    }

    pub(crate) fn u32(&self, key: &str) -> Result<Option<u32>, String> {
        let small = |value: &Value| value.as_u64().and_then(|value| value.try_into().ok());
        self.typed(key, "a 32-bit integer", small)
    }

    pub(crate) fn f64(&self, key: &str) -> Result<Option<f64>, String> {
        let finite = |value: &Value| value.as_f64().filter(|value| value.is_finite());
        self.typed(key, "a finite number", finite)
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, String> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, String> {
        self.typed(key, "a string", |value| value.as_text().map(str::to_owned))
    }

    /// An array's values through `convert`.
    pub(crate) fn array<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, String> {
        self.typed(key, expected, |value| value.as_array()?.collect(&convert))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = value.kind();
        convert(value)
            .map(Some)
            .ok_or_else(|| format!("metadata `{key}` is {found}, expected {expected}"))
    }
}

/// The decimal number that the f32 was written as: `1e-6` stays `1e-6`, as in a `config.json`.
fn widen(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
