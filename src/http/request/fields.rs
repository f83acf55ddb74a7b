//! A body's objects to wire structs, and an account of the members that no struct has.
//!
//! Every object is read through here, at any depth, so that no member vanishes: what a struct
//! leaves is judged by [`rules`](super::rules), named in a header, or refused.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::deserialize::{self, Mismatch, Unread};
use super::rules::{self, Rules, Treatment};
use crate::http::error::ApiError;

const IGNORED_HEADER: HeaderName = HeaderName::from_static("x-sconce-ignored");

/// Reads the objects of one request.
#[derive(Debug)]
pub(crate) struct FieldReader {
    rules: &'static [Rules],
    ignored: Ignored,
    unknown: Option<String>,
}

impl FieldReader {
    /// A reader that knows these places besides those that structs have.
    pub(crate) fn new(rules: &'static [Rules]) -> Self {
        Self { rules, ignored: Ignored::default(), unknown: None }
    }

    /// Reads the object at `path`.
    pub(crate) fn object<T: DeserializeOwned>(
        &mut self,
        value: &Value,
        path: &str,
    ) -> Result<T, ApiError> {
        self.read(value, path, |_| true)
    }

    /// Reads an object whose member `type` said that it is a `T`.
    pub(crate) fn variant<T: DeserializeOwned>(
        &mut self,
        value: &Value,
        path: &str,
    ) -> Result<T, ApiError> {
        self.read(value, path, |name| name != "type")
    }

    fn read<T: DeserializeOwned>(
        &mut self,
        value: &Value,
        path: &str,
        counts: impl Fn(&str) -> bool,
    ) -> Result<T, ApiError> {
        let (read, unread) = deserialize(value, path)?;
        for one in unread.into_iter().filter(|one| !one.on_top || counts(&one.path)) {
            self.judge(below(path, &one.path), one.value)?;
        }
        Ok(read)
    }

    /// Notes a place that is known and had no effect.
    pub(crate) fn ignore(&mut self, path: impl Into<String>) {
        self.ignored.0.push(path.into());
    }

    /// Notes a place that nobody knows.
    pub(crate) fn unknown(&mut self, path: impl Into<String>) {
        let path = path.into();
        self.unknown.get_or_insert_with(|| path.clone());
        self.ignored.0.push(path);
    }

    /// What there is to tell, once everything was read. A strict server refuses what nobody knows.
    pub(crate) fn finish(self, strict: bool) -> Result<Ignored, ApiError> {
        match self.unknown {
            Some(path) if strict => Err(ApiError::Invalid {
                message: format!("{path}: unknown field"),
                param: Some(path),
                code: Some("unknown_field"),
            }),
            _ => Ok(self.ignored),
        }
    }

    /// Decides about a member that no struct has.
    fn judge(&mut self, path: String, value: &Value) -> Result<(), ApiError> {
        // Null is the same as absent.
        if value.is_null() {
            return Ok(());
        }
        match rules::find(self.rules, &path) {
            None => self.unknown(path),
            Some(Treatment::IgnoredUnless(accepts) | Treatment::Unsupported(accepts))
                if accepts(value) => {}
            Some(Treatment::Ignored | Treatment::IgnoredUnless(_)) => self.ignore(path),
            Some(Treatment::IgnoredIf(accepts)) if accepts(value) => self.ignore(path),
            Some(Treatment::IgnoredIf(_) | Treatment::Unsupported(_)) => {
                let shown: String = value.to_string().chars().take(80).collect();
                return Err(ApiError::unsupported(path, &format!("the value {shown}")));
            }
        }
        Ok(())
    }
}

/// Reads the several structs that the fields of one body belong to.
#[derive(Debug)]
pub(crate) struct BodyReader<'a> {
    body: &'a Value,
    /// Where it stands in the request; empty for the request itself.
    path: &'static str,
    /// Names that no struct so far has.
    left: Option<Vec<String>>,
    /// Places inside the fields that one has.
    nested: Vec<(String, &'a Value)>,
}

impl<'a> BodyReader<'a> {
    pub(crate) fn new(body: &'a Value) -> Self {
        Self::at(body, "")
    }

    /// Reads an object inside of a request.
    pub(crate) fn at(body: &'a Value, path: &'static str) -> Self {
        Self { body, path, left: None, nested: Vec::new() }
    }

    /// Whether the body gives a value for this field.
    pub(crate) fn gives(&self, name: &str) -> bool {
        self.body.get(name).is_some_and(|value| !value.is_null())
    }

    /// Reads the fields that `T` has.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let (read, unread) = deserialize(self.body, self.path)?;
        let mut names = Vec::new();
        for Unread { path, on_top, value } in unread {
            if on_top {
                names.push(path);
            } else {
                self.nested.push((path, value));
            }
        }
        match &mut self.left {
            Some(before) => before.retain(|name| names.contains(name)),
            None => self.left = Some(names),
        }
        Ok(read)
    }

    /// Judges what none of the structs has.
    pub(crate) fn finish(self, fields: &mut FieldReader) -> Result<(), ApiError> {
        for name in self.left.into_iter().flatten() {
            let value = &self.body[&name];
            fields.judge(below(self.path, &name), value)?;
        }
        for (place, value) in self.nested {
            fields.judge(below(self.path, &place), value)?;
        }
        Ok(())
    }
}

fn deserialize<'a, T: DeserializeOwned>(
    value: &'a Value,
    path: &str,
) -> Result<(T, Vec<Unread<'a>>), ApiError> {
    deserialize::deserialize(value).map_err(|Mismatch { path: inner, error }| {
        let param = below(path, &inner);
        let shown = if param.is_empty() { "the request body" } else { &param };
        ApiError::field(param.clone(), format!("{shown}: {error}"))
    })
}

/// The path of what stands at `inner` in the value at `path`.
fn below(path: &str, inner: &str) -> String {
    let dot = if path.is_empty() || inner.is_empty() { "" } else { "." };
    format!("{path}{dot}{inner}")
}

/// A text member of an object, if there is one: how a variant is told before it is read.
pub(crate) fn text_member<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// A required member, or an error that names its place.
pub(crate) fn required<T>(value: Option<T>, path: &str, name: &str) -> Result<T, ApiError> {
    value.ok_or_else(|| {
        let param = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        ApiError::field(param.clone(), format!("{param} is required"))
    })
}

/// The members of an object that are among `names`, in the order in which they stand there.
pub(crate) fn known_members(object: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let known = object.iter().filter(|(name, _)| names.contains(&name.as_str()));
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The fields of one request that had no effect, for the header that names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored(Vec<String>);

impl Ignored {
    /// The response, with the fields in its header if there are any.
    pub(crate) fn tell(&self, mut response: Response) -> Response {
        let value = self.header().and_then(|header| HeaderValue::try_from(header).ok());
        if let Some(value) = value {
            response.headers_mut().insert(IGNORED_HEADER, value);
        }
        response
    }

    /// With a field that only a part of its routes reads.
    pub(crate) fn and(mut self, name: &str, given: bool) -> Self {
        self.0.extend(given.then(|| name.to_owned()));
        self
    }

    /// At most 1 KiB of visible ASCII.
    fn header(&self) -> Option<String> {
        let visible = |name: &str| -> String {
            let shown = name.chars().take(64);
            shown.map(|c| if c.is_ascii_graphic() && c != ',' { c } else { '?' }).collect()
        };
        let mut header = String::new();
        for name in &self.0 {
            let separator = if header.is_empty() { "" } else { ", " };
            if header.len() + name.len() > 1000 {
                header.push_str(", ...");
                break;
            }
            header.push_str(separator);
            header.push_str(&visible(name));
        }
        (!header.is_empty()).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::http::request::rules::COMMON;

    #[derive(Debug, Default, Deserialize)]
    struct Inner {
        #[allow(dead_code)]
        number: Option<f64>,
    }

    #[derive(Debug, Default, Deserialize)]
    struct Outer {
        #[allow(dead_code)]
        list: Option<Vec<Inner>>,
        #[allow(dead_code)]
        one: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Other {
        #[allow(dead_code)]
        also: Option<bool>,
    }

    fn judged(body: &Value) -> Result<FieldReader, ApiError> {
        let mut fields = FieldReader::new(&[COMMON]);
        let mut reader = BodyReader::new(body);
        reader.take::<Outer>()?;
        reader.take::<Other>()?;
        reader.finish(&mut fields)?;
        Ok(fields)
    }

    fn names(body: &Value) -> Vec<String> {
        judged(body).unwrap().ignored.0
    }

    #[test]
    fn errors_carry_the_path() {
        let error = judged(&json!({"list": [{"number": 1}, {"number": "x"}]})).unwrap_err();
        assert_eq!(error.body()["error"]["param"], "list[1].number");
        let mut fields = FieldReader::new(&[]);
        let error = fields.object::<Inner>(&json!({"number": "x"}), "tools[2]").unwrap_err();
        assert_eq!(error.body()["error"]["param"], "tools[2].number");
    }

    #[test]
    fn members_that_no_struct_has_are_found_at_any_depth() {
        let body = json!({"also": true, "a": 1, "b": null, "one": {"c": 1, "number": 2},
            "list": [{}, {"d": {"e": 1}}]});
        assert_eq!(names(&body), ["a", "one.c", "list[1].d"]);
        let mut fields = FieldReader::new(&[]);
        fields.variant::<Inner>(&json!({"type": "x", "more": 1}), "parts[0]").unwrap();
        assert_eq!(fields.ignored.0, ["parts[0].more"]);
    }

    #[test]
    fn a_value_that_asks_for_what_happens_anyway_is_fine() {
        let body = json!({"repeat_penalty": 1.0, "n_probs": 0, "tfs_z": 1.0,
            "top_a": 0, "modalities": ["text"], "suffix": ""});
        assert_eq!(names(&body), [""; 0]);
    }

    #[test]
    fn a_value_that_would_change_the_answer_is_refused_by_name() {
        let error = judged(&json!({"top_a": 0.5})).unwrap_err();
        assert!(error.to_string().contains("top_a"), "{error}");
        assert_eq!(error.body()["error"]["param"], "top_a");
    }

    #[test]
    fn unknown_names_cannot_break_the_header() {
        let fields = || judged(&json!({"user": "x", "a\r\nb, é": 1})).unwrap();
        assert_eq!(fields().finish(false).unwrap().header().unwrap(), "user, a??b???");
        assert!(fields().finish(true).is_err());
        let many: Map<String, Value> = (0..500).map(|i| (format!("field_{i}"), json!(1))).collect();
        let ignored = judged(&Value::Object(many)).unwrap().finish(false).unwrap();
        assert!(ignored.header().unwrap().len() < 1100);
    }
}
