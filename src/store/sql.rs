//! Statements, their parameters and their rows, alike for both databases.
//!
//! Parameters are `$1`, `$2`, ..., which both understand.

/// What stands in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// One statement with its parameters.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<Value>,
    /// Whether the transaction is undone if no row comes back.
    pub(super) must_hit: bool,
}

impl Statement {
    pub(super) fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), parameters: Vec::new(), must_hit: false }
    }

    /// With the next parameter.
    pub(super) fn with(mut self, value: impl Into<Value>) -> Self {
        self.parameters.push(value.into());
        self
    }

    /// One that has to give a row.
    pub(super) fn must_hit(self) -> Self {
        Self { must_hit: true, ..self }
    }
}

/// What became of a transaction.
#[derive(Debug)]
pub(super) enum Ran {
    /// It is written; the rows of each statement.
    All(Vec<Vec<Row>>),
    /// A statement that had to hit a row missed; nothing is changed.
    Missed,
}

/// One row of an answer, read from the left.
#[derive(Clone, Debug)]
pub(super) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    /// The next column; 0 where it holds no integer.
    pub(super) fn int(&mut self) -> i64 {
        self.optional_int().unwrap_or_default()
    }

    /// The next column, `None` where it is null.
    pub(super) fn optional_int(&mut self) -> Option<i64> {
        match self.0.next() {
            Some(Value::Int(value)) => Some(value),
            _ => None,
        }
    }

    /// The next column; empty where it holds no text.
    pub(super) fn text(&mut self) -> String {
        match self.0.next() {
            Some(Value::Text(value)) => value,
            _ => String::new(),
        }
    }

    /// The next column; empty where it holds no bytes.
    pub(super) fn bytes(&mut self) -> Vec<u8> {
        match self.0.next() {
            Some(Value::Bytes(value)) => value,
            _ => Vec::new(),
        }
    }
}
