//! Lines of work: requests that wait for a server to answer them, one after the other.
//!
//! A server claims lines for a while and says that it still has them by a heartbeat; those of a server
//! that is gone are claimed by another once their lease is over. Only the holder of a line answers
//! it, and only once: whoever lost its lease meanwhile is told so, and its answer is dropped.

use super::error::StoreError;
use super::handle::{Store, now_ms};
use super::sql::{Row, Statement};

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    /// Nobody has answered it, though somebody may be at it.
    Waiting,
    /// It was answered.
    Answered,
    /// It was answered with an error.
    Failed,
    /// It was given up before anybody answered it.
    Dropped,
}

impl LineState {
    const ALL: [Self; 4] = [Self::Waiting, Self::Answered, Self::Failed, Self::Dropped];

    fn number(self) -> i64 {
        self as i64
    }

    fn of(number: i64) -> Self {
        Self::ALL.into_iter().find(|state| state.number() == number).unwrap_or(Self::Waiting)
    }
}

/// A line to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLine {
    /// Its place in the batch.
    pub number: i64,
    /// What its client calls it.
    pub custom_id: String,
    /// The model that has to answer it: servers only claim lines of models that they serve.
    pub model: String,
    /// The request.
    pub body: Vec<u8>,
}

/// A line that this server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedLine {
    /// What it is a part of.
    pub batch: String,
    /// Its place there.
    pub number: i64,
    /// What its client calls it.
    pub custom_id: String,
    /// The request.
    pub body: Vec<u8>,
}

/// A line that nobody has to answer any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineAnswer {
    /// Its place.
    pub number: i64,
    /// What its client calls it.
    pub custom_id: String,
    /// What became of it.
    pub state: LineState,
    /// The answer; empty for one that was given up.
    pub answer: Vec<u8>,
}

/// How many lines of a batch are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Not answered, those that somebody is at included.
    pub waiting: i64,
    /// Of the waiting ones, those that somebody is at.
    pub held: i64,
    /// Answered.
    pub answered: i64,
    /// Answered with an error.
    pub failed: i64,
    /// Given up.
    pub dropped: i64,
}

impl LineCounts {
    /// All of them.
    pub fn total(self) -> i64 {
        self.waiting + self.answered + self.failed + self.dropped
    }
}

impl Store {
    /// Adds lines to a batch, all or none. Each urgency is claimed by itself, and nothing after
    /// `ends`.
    ///
    /// # Errors
    /// When the store is down or full.
    pub async fn add_lines(
        &self,
        batch: &str,
        urgency: i64,
        ends: i64,
        lines: Vec<NewLine>,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO sconce_lines \
                   (batch, number, custom_id, model, urgency, state, holder, lease, ends, body) \
                   VALUES ($1, $2, $3, $4, $5, 0, '', 0, $6, $7)";
        let statement = |line: NewLine| {
            let NewLine { number, custom_id, model, body } = line;
            let body = self.cipher.seal(&place(batch, number), &body)?;
            let statement = Statement::new(sql).with(batch).with(number).with(custom_id);
            Ok(statement.with(model).with(urgency).with(ends).with(body))
        };
        let statements: Result<Vec<Statement>, StoreError> =
            lines.into_iter().map(statement).collect();
        self.run(statements?).await.map(drop)
    }

    /// Takes at most `count` lines of an urgency for `models`, until `lease` unless a heartbeat prolongs it.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn claim_lines(
        &self,
        holder: &str,
        lease: i64,
        models: &[String],
        urgency: i64,
        count: i64,
    ) -> Result<Vec<ClaimedLine>, StoreError> {
        let mut statement = Statement::new("").with(holder).with(lease).with(now_ms());
        statement = statement.with(count).with(urgency);
        let mut names = Vec::new();
        for model in models {
            statement = statement.with(model.as_str());
            names.push(format!("${}", statement.parameters.len()));
        }
        statement.sql = format!(
            "UPDATE sconce_lines SET holder = $1, lease = $2 WHERE (batch, number) IN \
             (SELECT batch, number FROM sconce_lines WHERE state = 0 AND lease <= $3 AND ends > $3 \
             AND urgency = $5 AND model IN ({}) ORDER BY ends, batch, number LIMIT $4 {}) \
             RETURNING batch, number, custom_id, body",
            names.join(", "),
            self.skip_locked()
        );
        let rows = self.rows(statement).await?;
        let read = |mut row: Row| {
            let (batch, number) = (row.text(), row.int());
            let custom_id = row.text();
            let body = self.cipher.open(&place(&batch, number), &row.bytes())?;
            Ok(ClaimedLine { batch, number, custom_id, body })
        };
        let lines: Result<Vec<ClaimedLine>, StoreError> = rows.into_iter().map(read).collect();
        let mut lines = lines?;
        lines.sort_by(|a, b| (&a.batch, a.number).cmp(&(&b.batch, b.number)));
        Ok(lines)
    }

    /// Prolongs the leases of all lines that `holder` has.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn prolong_leases(&self, holder: &str, lease: i64) -> Result<(), StoreError> {
        let sql = "UPDATE sconce_lines SET lease = $2 WHERE state = 0 AND holder = $1";
        self.rows(Statement::new(sql).with(holder).with(lease)).await.map(drop)
    }

    /// Gives a line back that was not answered, to be claimed again from `not_before` on.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn release_line(
        &self,
        holder: &str,
        batch: &str,
        number: i64,
        not_before: i64,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE sconce_lines SET holder = '', lease = $4 \
                   WHERE batch = $2 AND number = $3 AND holder = $1 AND state = 0";
        let statement = Statement::new(sql).with(holder).with(batch).with(number).with(not_before);
        self.rows(statement).await.map(drop)
    }

    /// Gives back all lines of a holder, as when it ends.
    ///
    /// # Errors
    /// When the store is down; they are claimed again once their lease is over.
    pub async fn release_lines(&self, holder: &str) -> Result<(), StoreError> {
        let sql = "UPDATE sconce_lines SET holder = '', lease = 0 WHERE holder = $1 AND state = 0";
        self.rows(Statement::new(sql).with(holder)).await.map(drop)
    }

    /// Answers a line; false if it is no longer this holder's, and then the answer is dropped.
    ///
    /// # Errors
    /// When the store is down or full.
    pub async fn answer_line(
        &self,
        holder: &str,
        batch: &str,
        number: i64,
        state: LineState,
        answer: Vec<u8>,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE sconce_lines SET state = $4, answer = $5, lease = 0 \
                   WHERE batch = $2 AND number = $3 AND holder = $1 AND state = 0 RETURNING number";
        let answer = self.cipher.seal(&place(batch, number), &answer)?;
        let statement = Statement::new(sql).with(holder).with(batch).with(number);
        let rows = self.rows(statement.with(state.number()).with(answer)).await?;
        Ok(!rows.is_empty())
    }

    /// Gives up the lines of a batch that are not answered; those that somebody is at as well if
    /// `held`.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn drop_lines(&self, batch: &str, held: bool) -> Result<(), StoreError> {
        let sql = "UPDATE sconce_lines SET state = 3 \
                   WHERE batch = $1 AND state = 0 AND lease <= $2";
        let free_since = if held { i64::MAX } else { now_ms() };
        self.rows(Statement::new(sql).with(batch).with(free_since)).await.map(drop)
    }

    /// How many lines of a batch are where.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn count_lines(&self, batch: &str) -> Result<LineCounts, StoreError> {
        let sql = "SELECT state, CASE WHEN lease > $2 THEN 1 ELSE 0 END AS held, count(*) \
                   FROM sconce_lines WHERE batch = $1 GROUP BY 1, 2";
        let rows = self.rows(Statement::new(sql).with(batch).with(now_ms())).await?;
        let mut counts = LineCounts::default();
        for mut row in rows {
            let (state, held, count) = (LineState::of(row.int()), row.int() == 1, row.int());
            match state {
                LineState::Waiting => {
                    counts.waiting += count;
                    counts.held += if held { count } else { 0 };
                }
                LineState::Answered => counts.answered += count,
                LineState::Failed => counts.failed += count,
                LineState::Dropped => counts.dropped += count,
            }
        }
        Ok(counts)
    }

    /// At most `count` lines of a batch that nobody has to answer any more, from `number` on, in
    /// order.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn answered_lines(
        &self,
        batch: &str,
        number: i64,
        count: i64,
    ) -> Result<Vec<LineAnswer>, StoreError> {
        let sql = "SELECT number, custom_id, state, answer FROM sconce_lines \
                   WHERE batch = $1 AND number >= $2 AND state > 0 ORDER BY number LIMIT $3";
        let rows = self.rows(Statement::new(sql).with(batch).with(number).with(count)).await?;
        let read = |mut row: Row| {
            let (number, custom_id, state) = (row.int(), row.text(), LineState::of(row.int()));
            let answer = match state {
                // Nobody answered it.
                LineState::Waiting | LineState::Dropped => Vec::new(),
                _ => self.cipher.open(&place(batch, number), &row.bytes())?,
            };
            Ok(LineAnswer { number, custom_id, state, answer })
        };
        rows.into_iter().map(read).collect()
    }
}

/// Where a line is.
fn place(batch: &str, number: i64) -> String {
    format!("{batch}/{number}")
}
