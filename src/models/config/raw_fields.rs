//! The fields of a `config.json` before they are checked, for architectures whose files omit fields
//! that sizes depend on, or have other names for them.

use serde_json::{Map, Value};

/// Renames or adds fields.
pub(crate) type Completion = fn(&mut RawFields<'_>);

/// The fields of a `config.json`, not yet checked.
pub(crate) struct RawFields<'a>(pub(super) &'a mut Map<String, Value>);

impl RawFields<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Sets `name` to `value` if it is absent or `null`.
    pub(crate) fn default(&mut self, name: &str, value: impl Into<Value>) {
        if !self.has(name) {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    /// The text of a field, if it is one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Copies `alias` to `name` if `name` is absent or `null`.
    pub(crate) fn alias(&mut self, name: &str, alias: &str) {
        if let Some(value) = self.0.get(alias).filter(|value| !value.is_null()).cloned() {
            self.default(name, value);
        }
    }

    /// Copies `alias` to `name` even if `name` is there.
    pub(crate) fn replace(&mut self, name: &str, alias: &str) {
        if self.has(alias) {
            self.0.remove(name);
            self.alias(name, alias);
        }
    }

    /// Whether a field is this text.
    pub(crate) fn is(&self, name: &str, text: &str) -> bool {
        self.0.get(name).and_then(Value::as_str) == Some(text)
    }

    /// Drops a field.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Sets an absent `name` to the number `of` divided by the number `by`, if that has no rest.
    pub(crate) fn quotient(&mut self, name: &str, of: &str, by: &str) {
        let number = |name: &str| self.0.get(name).and_then(Value::as_u64);
        if let (Some(of), Some(by @ 1..)) = (number(of), number(by))
            && of.is_multiple_of(by)
        {
            self.default(name, of / by);
        }
    }

    /// Halves an even number.
    pub(crate) fn halve(&mut self, name: &str) {
        let number = self.0.get(name).and_then(Value::as_u64);
        if let Some(half) = number.filter(|number| number.is_multiple_of(2)) {
            self.0.insert(name.to_owned(), (half / 2).into());
        }
    }

    /// Sets an absent `name` to the length of the array `of`.
    pub(crate) fn length(&mut self, name: &str, of: &str) {
        if let Some(count) = self.0.get(of).and_then(Value::as_array).map(Vec::len) {
            self.default(name, count);
        }
    }

    /// Replaces an array of equal values by one of them.
    pub(crate) fn one_for_all(&mut self, name: &str) {
        let all = self.0.get(name).and_then(Value::as_array);
        let first = all.and_then(|all| all.first().filter(|first| all.iter().all(|x| x == *first)));
        if let Some(first) = first.cloned() {
            self.0.insert(name.to_owned(), first);
        }
    }

    /// Sets an absent `name` to an array with a word for each letter of the string `letters`.
    pub(crate) fn words(&mut self, name: &str, letters: &str, word: impl Fn(char) -> String) {
        if let Some(letters) = self.0.get(letters).and_then(Value::as_str) {
            let words: Vec<String> = letters.chars().map(word).collect();
            self.default(name, words);
        }
    }

    /// Sets an absent `name` to `times` the number `of`.
    pub(crate) fn multiple(&mut self, name: &str, of: &str, times: u64) {
        if let Some(value) = self.0.get(of).and_then(Value::as_u64) {
            self.default(name, value.saturating_mul(times));
        }
    }
}
