//! Metadata of a file that is to be written: entries in their order, and their bytes.

/// The value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A count.
    U32(u32),
    /// A number with a sign.
    I32(i32),
    /// A number.
    F32(f32),
    /// A switch.
    Bool(bool),
    /// A text.
    Text(String),
    /// A number for each layer or token.
    I32s(Vec<i32>),
    /// Numbers.
    F32s(Vec<f32>),
    /// A switch for each layer.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Entry {
    /// The format's number of the value's type; arrays have that of their elements.
    fn number(&self) -> u32 {
        match self {
            Self::Bytes(_) => 0,
            Self::U32(_) => 4,
            Self::I32(_) | Self::I32s(_) => 5,
            Self::F32(_) | Self::F32s(_) => 6,
            Self::Bool(_) | Self::Bools(_) => 7,
            Self::Text(_) | Self::Texts(_) => 8,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        const ARRAY: u32 = 9;
        let mut array = |count: usize, bytes: Vec<u8>| {
            out.extend(ARRAY.to_le_bytes());
            out.extend(self.number().to_le_bytes());
            out.extend((count as u64).to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Self::I32s(all) => array(all.len(), all.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Self::F32s(all) => array(all.len(), all.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Self::Bools(all) => array(all.len(), all.iter().map(|x| u8::from(*x)).collect()),
            Self::Bytes(all) => array(all.len(), all.clone()),
            Self::Texts(all) => {
                let mut bytes = Vec::new();
                for one in all {
                    text(&mut bytes, one);
                }
                array(all.len(), bytes);
            }
            single => {
                out.extend(single.number().to_le_bytes());
                match single {
                    Self::U32(value) => out.extend(value.to_le_bytes()),
                    Self::I32(value) => out.extend(value.to_le_bytes()),
                    Self::F32(value) => out.extend(value.to_le_bytes()),
                    Self::Bool(value) => out.push(u8::from(*value)),
                    Self::Text(value) => text(out, value),
                    _ => {}
                }
            }
        }
    }
}

/// A text with its leading length.
pub(in super::super) fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Entries in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub struct Entries(Vec<(String, Entry)>);

impl Entries {
    /// Adds an entry; one of this key that is there already stays as it is.
    pub fn add(&mut self, key: impl Into<String>, value: Entry) {
        let key = key.into();
        if !self.0.iter().any(|(known, _)| *known == key) {
            self.0.push((key, value));
        }
    }

    /// Keeps the entries that `keep` says so of.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(key, _)| keep(key));
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// As a file has them.
    pub(in super::super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in &self.0 {
            text(&mut bytes, key);
            value.encode(&mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cursor::Cursor;
    use super::super::super::value::Value;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut entries = Entries::default();
        entries.add("a", Entry::U32(7));
        entries.add("a", Entry::U32(8));
        entries.add("b", Entry::Texts(vec!["x".to_owned(), String::new()]));
        entries.add("c", Entry::Bools(vec![true, false]));
        entries.add("d", Entry::F32(0.5));
        entries.add("e", Entry::I32s(vec![-1, 1]));
        entries.add("f", Entry::Text("ä".to_owned()));
        assert_eq!(entries.len(), 6);
        let bytes = entries.encode();
        let mut cursor = Cursor::new(&bytes);
        let mut next = |key: &str| {
            assert_eq!(cursor.text().unwrap(), key);
            Value::read(&mut cursor).unwrap()
        };
        assert_eq!(next("a").as_u64(), Some(7));
        let texts = next("b").as_array().unwrap().collect(|x| x.as_text().map(str::to_owned));
        assert_eq!(texts.unwrap(), ["x", ""]);
        let switches = next("c").as_array().unwrap().collect(Value::as_bool);
        assert_eq!(switches.unwrap(), [true, false]);
        assert_eq!(next("d").as_f64(), Some(0.5));
        assert_eq!(next("e").as_array().unwrap().collect(Value::as_i64).unwrap(), [-1, 1]);
        assert_eq!(next("f").as_text(), Some("ä"));
        assert_eq!(cursor.remaining(), 0);
    }
}
