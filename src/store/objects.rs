//! Objects: bytes under a kind, an owner and an id, alone or as parts of another object.

use super::error::StoreError;
use super::handle::{Store, now_ms};
use super::sql::{Row, Statement};

/// Where an object is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// What it is, such as `response`.
    pub kind: &'static str,
    /// Whose it is. Nobody else finds it.
    pub owner: String,
    /// The object that it is a part of and goes with; empty for none.
    pub parent: String,
    /// Its name, which no other of the three above has.
    pub id: String,
}

impl Key {
    /// The key of an object that is no part of another.
    pub fn new(kind: &'static str, owner: &str, id: &str) -> Self {
        Self { kind, owner: owner.to_owned(), parent: String::new(), id: id.to_owned() }
    }

    /// The key of a part of the object `parent`.
    pub fn part(kind: &'static str, owner: &str, parent: &str, id: &str) -> Self {
        Self { parent: parent.to_owned(), ..Self::new(kind, owner, id) }
    }
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it is found.
    pub key: Key,
    /// When it was made.
    pub created: i64,
    /// From when on it is not found any more.
    pub expires: Option<i64>,
    /// How often it was changed.
    pub revision: i64,
    /// What it is.
    pub body: Vec<u8>,
}

impl Object {
    /// One that is made now.
    pub fn new(key: Key, expires: Option<i64>, body: Vec<u8>) -> Self {
        Self { key, created: now_ms(), expires, revision: 0, body }
    }
}

/// One step of a change that is made whole or not at all.
#[derive(Clone, Debug)]
pub enum Change {
    /// Puts an object where none is; the change is undone if there is one.
    Add(Object),
    /// Puts an object, in the place of one that is there.
    Put(Object),
    /// Gives the object of this revision another body; the change is undone if it was changed
    /// meanwhile, or is gone.
    Update(Object),
    /// Removes an object and its parts; the change is undone if there is none.
    Remove(Key),
}

/// Which objects of a list are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Behind the object of this id.
    pub after: Option<String>,
    /// Before the object of this id.
    pub before: Option<String>,
    /// Most objects.
    pub limit: usize,
    /// Whether the first comes first.
    pub ascending: bool,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order asked for.
    pub objects: Vec<Object>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

const COLUMNS: &str = "parent, id, created, expires, revision, body";

impl Store {
    /// Makes all changes, or none: then false.
    ///
    /// # Errors
    /// When the store is down or full; nothing is changed then.
    pub async fn change(&self, changes: Vec<Change>) -> Result<bool, StoreError> {
        let mut statements = Vec::new();
        for change in changes {
            statements.extend(self.statements(change)?);
        }
        Ok(self.run(statements).await?.is_some())
    }

    /// The object of this kind and id, whatever it is a part of; the newest if there are several.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn find(
        &self,
        kind: &'static str,
        owner: &str,
        id: &str,
    ) -> Result<Option<Object>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sconce_objects WHERE kind = $1 AND owner = $2 AND id = $3 \
             AND (expires IS NULL OR expires > $4) ORDER BY seq DESC LIMIT 1"
        );
        let statement = Statement::new(sql).with(kind).with(owner).with(id).with(now_ms());
        let mut rows = self.rows(statement).await?;
        rows.pop().map(|row| self.object(kind, owner, row)).transpose()
    }

    /// The object of this kind and id that is a part of `parent`.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn find_part(
        &self,
        kind: &'static str,
        owner: &str,
        parent: &str,
        id: &str,
    ) -> Result<Option<Object>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sconce_objects WHERE kind = $1 AND owner = $2 AND parent = $3 \
             AND id = $4 AND (expires IS NULL OR expires > $5)"
        );
        let statement = Statement::new(sql).with(kind).with(owner).with(parent).with(id);
        let mut rows = self.rows(statement.with(now_ms())).await?;
        rows.pop().map(|row| self.object(kind, owner, row)).transpose()
    }

    /// A page of the objects of a kind that are parts of `parent`.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn list(
        &self,
        kind: &'static str,
        owner: &str,
        parent: &str,
        request: &PageRequest,
    ) -> Result<Page, StoreError> {
        let (behind, order) = if request.ascending { (">", "ASC") } else { ("<", "DESC") };
        let ahead = if request.ascending { "<" } else { ">" };
        let place = |parameter: usize| {
            format!(
                "(SELECT seq FROM sconce_objects WHERE kind = $1 AND owner = $2 AND parent = $3 \
                 AND id = ${parameter})"
            )
        };
        let mut sql = format!(
            "SELECT {COLUMNS} FROM sconce_objects WHERE kind = $1 AND owner = $2 AND parent = $3 \
             AND (expires IS NULL OR expires > $4)"
        );
        let most = i64::try_from(request.limit).unwrap_or(i64::MAX - 1);
        let mut statement =
            Statement::new("").with(kind).with(owner).with(parent).with(now_ms()).with(most + 1);
        for (id, relation) in [(&request.after, behind), (&request.before, ahead)] {
            if let Some(id) = id {
                statement = statement.with(id.as_str());
                let at = statement.parameters.len();
                sql = format!("{sql} AND seq {relation} {}", place(at));
            }
        }
        statement.sql = format!("{sql} ORDER BY seq {order} LIMIT $5");
        let rows = self.rows(statement).await?;
        let has_more = rows.len() > request.limit;
        let rows = rows.into_iter().take(request.limit);
        let objects = rows.map(|row| self.object(kind, owner, row));
        Ok(Page { objects: objects.collect::<Result<_, _>>()?, has_more })
    }

    /// Objects of a kind, of all owners: what a server itself has to look after.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn all(&self, kind: &'static str, limit: i64) -> Result<Vec<Object>, StoreError> {
        let sql = format!(
            "SELECT owner, {COLUMNS} FROM sconce_objects WHERE kind = $1 ORDER BY seq LIMIT $2"
        );
        let rows = self.rows(Statement::new(sql).with(kind).with(limit)).await?;
        let read = |mut row: Row| {
            let owner = row.text();
            self.object(kind, &owner, row)
        };
        rows.into_iter().map(read).collect()
    }

    /// Removes what has expired, with its parts, and contents that no file has after an hour.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn remove_expired(&self) -> Result<(), StoreError> {
        const ORPHANS: i64 = 3_600_000;
        let now = now_ms();
        let parts = "DELETE FROM sconce_objects WHERE parent IN \
                     (SELECT id FROM sconce_objects WHERE expires <= $1)";
        let lines = "DELETE FROM sconce_lines WHERE batch IN \
                     (SELECT id FROM sconce_objects WHERE expires <= $1)";
        let objects = "DELETE FROM sconce_objects WHERE expires <= $1";
        let chunks = "DELETE FROM sconce_chunks WHERE written < $1 AND file NOT IN \
                      (SELECT id FROM sconce_objects WHERE kind = 'file')";
        let statements = vec![
            Statement::new(lines).with(now),
            Statement::new(parts).with(now),
            Statement::new(objects).with(now),
            Statement::new(chunks).with(now - ORPHANS),
            super::usage::expired(),
        ];
        self.run(statements).await.map(drop)
    }

    /// Removes the oldest objects of a kind, as many as `count`, with their parts.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn remove_oldest(&self, kind: &'static str, count: i64) -> Result<(), StoreError> {
        let oldest = "(SELECT id FROM sconce_objects WHERE kind = $1 ORDER BY seq LIMIT $2)";
        let parts = format!("DELETE FROM sconce_objects WHERE parent IN {oldest}");
        let objects = format!("DELETE FROM sconce_objects WHERE kind = $1 AND id IN {oldest}");
        let statement = |sql: String| Statement::new(sql).with(kind).with(count);
        self.run(vec![statement(parts), statement(objects)]).await.map(drop)
    }
}

/// Between objects and rows.
impl Store {
    fn statements(&self, change: Change) -> Result<Vec<Statement>, StoreError> {
        Ok(match change {
            Change::Add(object) => {
                vec![self.insert(object, "ON CONFLICT DO NOTHING RETURNING seq")?.must_hit()]
            }
            Change::Put(object) => {
                let replaced = "ON CONFLICT (kind, owner, parent, id) DO UPDATE SET \
                            body = excluded.body, expires = excluded.expires, \
                            revision = sconce_objects.revision + 1";
                vec![self.insert(object, replaced)?]
            }
            Change::Update(object) => {
                let sql = "UPDATE sconce_objects SET body = $1, expires = $2, revision = revision + 1 \
                       WHERE kind = $3 AND owner = $4 AND parent = $5 AND id = $6 \
                       AND revision = $7 RETURNING revision";
                let Object { key, expires, revision, body, .. } = object;
                let body = self.cipher.seal(&key.id, &body)?;
                let statement = Statement::new(sql).with(body).with(expires).with(key.kind);
                let statement = statement.with(key.owner).with(key.parent).with(key.id);
                vec![statement.with(revision).must_hit()]
            }
            Change::Remove(key) => removals(key),
        })
    }

    fn insert(&self, object: Object, conflict: &str) -> Result<Statement, StoreError> {
        let sql = format!(
            "INSERT INTO sconce_objects (kind, owner, parent, id, created, expires, revision, body) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) {conflict}"
        );
        let Object { key, created, expires, revision, body } = object;
        let body = self.cipher.seal(&key.id, &body)?;
        let statement = Statement::new(sql).with(key.kind).with(key.owner).with(key.parent);
        Ok(statement.with(key.id).with(created).with(expires).with(revision).with(body))
    }

    fn object(&self, kind: &'static str, owner: &str, mut row: Row) -> Result<Object, StoreError> {
        let (parent, id) = (row.text(), row.text());
        let (created, expires, revision) = (row.int(), row.optional_int(), row.int());
        let body = self.cipher.open(&id, &row.bytes())?;
        let key = Key { kind, owner: owner.to_owned(), parent, id };
        Ok(Object { key, created, expires, revision, body })
    }
}

fn removals(key: Key) -> Vec<Statement> {
    let own = "DELETE FROM sconce_objects WHERE kind = $1 AND owner = $2 AND parent = $3 \
               AND id = $4 RETURNING id";
    let parts = "DELETE FROM sconce_objects WHERE owner = $1 AND parent = $2";
    let mut statements = vec![
        Statement::new(own)
            .with(key.kind)
            .with(key.owner.as_str())
            .with(key.parent)
            .with(key.id.as_str())
            .must_hit(),
        Statement::new(parts).with(key.owner).with(key.id.as_str()),
    ];
    // Ids of files and batches are made here, and no two are alike.
    for sql in
        ["DELETE FROM sconce_chunks WHERE file = $1", "DELETE FROM sconce_lines WHERE batch = $1"]
    {
        statements.push(Statement::new(sql).with(key.id.as_str()));
    }
    statements
}
