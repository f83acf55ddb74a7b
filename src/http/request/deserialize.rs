//! JSON to structs, with the path of what is wrong and an account of members that no struct has.
//!
//! Stricter than serde_json alone, which takes an array for a struct and drops unknown members.

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, map};

/// A member of an object that its struct does not have.
#[derive(Debug)]
pub(super) struct Unread<'a> {
    /// Its path from the value that was read.
    pub(super) path: String,
    /// Whether it stands in that value itself and not in one inside.
    pub(super) on_top: bool,
    pub(super) value: &'a Value,
}

/// Why a value is not what a struct wants, and the path of the first place that isn't, which is
/// empty for the value itself.
#[derive(Debug)]
pub(super) struct Mismatch {
    pub(super) path: String,
    pub(super) error: Error,
}

/// Reads a `T`.
pub(super) fn deserialize<T: DeserializeOwned>(
    value: &Value,
) -> Result<(T, Vec<Unread<'_>>), Mismatch> {
    let notes = Notes::default();
    match T::deserialize(Node { value, place: &Place::Top, notes: &notes }) {
        Ok(read) => Ok((read, notes.unread.into_inner())),
        Err(error) => Err(Mismatch { path: notes.failed.into_inner().unwrap_or_default(), error }),
    }
}

#[derive(Default)]
struct Notes<'a> {
    unread: RefCell<Vec<Unread<'a>>>,
    /// The innermost place of the first error.
    failed: RefCell<Option<String>>,
}

impl Notes<'_> {
    fn failed_at<T>(&self, place: &Place<'_>, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.failed.borrow_mut().get_or_insert_with(|| place.to_string());
        }
        result
    }
}

/// Where a value stands, told only when somebody asks.
enum Place<'p> {
    Top,
    Member(&'p Self, &'p str),
    Element(&'p Self, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Member(Self::Top, name) => formatter.write_str(name),
            Self::Member(parent, name) => write!(formatter, "{parent}.{name}"),
            Self::Element(parent, index) => write!(formatter, "{parent}[{index}]"),
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Copy)]
struct Node<'a, 'p> {
    value: &'a Value,
    place: &'p Place<'p>,
    notes: &'p Notes<'a>,
}

impl<'de> Deserializer<'de> for Node<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(values) => {
                let mut elements = Elements { of: self, left: values.iter(), index: 0 };
                let read = visitor.visit_seq(&mut elements)?;
                if elements.left.as_slice().is_empty() {
                    return Ok(read);
                }
                let expected = format!("an array of {} values", elements.index);
                Err(Error::invalid_length(values.len(), &expected.as_str()))
            }
            Value::Object(members) => {
                visitor.visit_map(Members { of: self, left: members.iter(), next: None })
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(_) => self.deserialize_any(visitor),
            // Null would be an empty map.
            other => other.deserialize_map(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    /// What a struct asks for where it has no field.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.notes.unread.borrow_mut().push(Unread {
            path: self.place.to_string(),
            on_top: matches!(self.place, Place::Member(Place::Top, _)),
            value: self.value,
        });
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct identifier
    }
}

struct Elements<'a, 'p> {
    of: Node<'a, 'p>,
    left: std::slice::Iter<'a, Value>,
    index: usize,
}

impl<'a> SeqAccess<'a> for &mut Elements<'a, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'a>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(value) = self.left.next() else { return Ok(None) };
        let place = Place::Element(self.of.place, self.index);
        self.index += 1;
        let read = seed.deserialize(Node { value, place: &place, notes: self.of.notes });
        self.of.notes.failed_at(&place, read).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

struct Members<'a, 'p> {
    of: Node<'a, 'p>,
    left: map::Iter<'a>,
    next: Option<(&'a str, &'a Value)>,
}

impl<'a> MapAccess<'a> for Members<'a, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'a>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((name, value)) = self.left.next() else { return Ok(None) };
        self.next = Some((name, value));
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (name, value) = self.next.take().expect("serde asks for a value after its key");
        let place = Place::Member(self.of.place, name);
        let read = seed.deserialize(Node { value, place: &place, notes: self.of.notes });
        self.of.notes.failed_at(&place, read)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Inner {
        number: Option<f64>,
        pair: Option<(u8, u8)>,
        map: serde_json::Map<String, Value>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Outer {
        list: Vec<Inner>,
        one: Option<Inner>,
        any: Value,
    }

    fn mismatch(value: &Value) -> String {
        let Mismatch { path, error } = deserialize::<Outer>(value).unwrap_err();
        format!("{path}: {error}")
    }

    #[test]
    fn reads_as_serde_json_does() {
        let value = json!({"list": [{"number": 1.5, "pair": [1, 2]}, {}], "one": null,
            "any": {"b": [1, -1, 1e30], "a": null}});
        let (read, unread) = deserialize::<Outer>(&value).unwrap();
        assert_eq!(read, serde_json::from_value(value.clone()).unwrap());
        assert_eq!(read.any.to_string(), r#"{"b":[1,-1,1e+30],"a":null}"#, "order is kept");
        assert!(unread.is_empty());
    }

    #[test]
    fn an_array_is_no_struct() {
        assert_eq!(mismatch(&json!([])), ": invalid type: sequence, expected an object");
        assert_eq!(
            mismatch(&json!({"one": [null, null]})),
            "one: invalid type: sequence, expected an object"
        );
    }

    #[test]
    fn null_is_no_map() {
        let wrong = mismatch(&json!({"one": {"map": null}}));
        assert_eq!(wrong, "one.map: invalid type: null, expected a map");
    }

    #[test]
    fn the_innermost_place_is_told() {
        let wrong = mismatch(&json!({"list": [{}, {"number": "x"}]}));
        assert_eq!(wrong, "list[1].number: invalid type: string \"x\", expected f64");
        let long = mismatch(&json!({"one": {"pair": [1, 2, 3]}}));
        assert_eq!(long, "one.pair: invalid length 3, expected an array of 2 values");
    }

    #[test]
    fn members_without_a_field_are_told() {
        let value = json!({"a": 1, "list": [{"b": null}], "one": {"c": {"d": 2}}, "any": {"e": 3}});
        let (_, unread) = deserialize::<Outer>(&value).unwrap();
        let told: Vec<_> = unread.iter().map(|one| (one.path.as_str(), one.on_top)).collect();
        assert_eq!(told, [("a", true), ("list[0].b", false), ("one.c", false)]);
        assert_eq!(unread[2].value, &json!({"d": 2}));
    }
}
