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

    /// The value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Sets a field, whatever it was.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Cuts an array to as many elements as the number `count` says.
    pub(crate) fn truncate(&mut self, name: &str, count: &str) {
        let count = self.0.get(count).and_then(Value::as_u64).map(usize::try_from);
        if let (Some(Value::Array(array)), Some(Ok(count))) = (self.0.get_mut(name), count) {
            array.truncate(count);
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

    /// Moves an array from `name` to `all`, and leaves its first element.
    pub(crate) fn first_of(&mut self, name: &str, all: &str) {
        let array = self.0.get(name).filter(|value| value.is_array()).cloned();
        if let Some(first) = array.as_ref().and_then(|array| array.get(0)).cloned() {
            self.0.insert(name.to_owned(), first);
            self.0.extend(array.map(|array| (all.to_owned(), array)));
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

    /// Sets `name` to the product of two numbers.
    pub(crate) fn product(&mut self, name: &str, one: &str, other: &str) {
        let number = |name: &str| self.0.get(name).and_then(Value::as_u64);
        if let (Some(one), Some(other)) = (number(one), number(other)) {
            self.set(name, one.saturating_mul(other));
        }
    }

    /// Sets an absent `name` to an array with a word for each number of the array `numbers`: the first
    /// of `words` for 0, the second for any other.
    pub(crate) fn kinds(&mut self, name: &str, numbers: &str, words: [&str; 2]) {
        if let Some(numbers) = self.0.get(numbers).and_then(Value::as_array) {
            let word = |number: &Value| words[usize::from(number.as_u64() != Some(0))].to_owned();
            let words: Vec<String> = numbers.iter().map(word).collect();
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
