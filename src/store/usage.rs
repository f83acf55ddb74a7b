//! What was used, by hour, key and model; and what keys may still use, where several servers share it.

use super::error::StoreError;
use super::handle::{Store, now_ms};
use super::sql::{Row, Statement};

/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;
/// How long usage is kept: a year and a month, in hours.
pub(super) const KEPT_HOURS: i64 = 24 * 396;
/// After so many milliseconds without a sign of life, what a server said of itself is no longer true.
const GONE: i64 = 15_000;

/// How much was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounts {
    /// Requests that were taken.
    pub requests: i64,
    /// Tokens of prompts.
    pub input: i64,
    /// Those of them that did not have to be computed.
    pub cached: i64,
    /// Tokens of answers.
    pub output: i64,
}

impl UsageCounts {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
    }

    /// Takes others away.
    pub fn subtract(&mut self, other: Self) {
        let Self { requests, input, cached, output } = other;
        self.add(Self { requests: -requests, input: -input, cached: -cached, output: -output });
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// What one key used of one model in an hour, or in more than one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The first hour, since 1970.
    pub hour: i64,
    /// The key's name.
    pub key: String,
    /// The model's.
    pub model: String,
    /// How much.
    pub counts: UsageCounts,
}

/// What a server asks for a request of a key; amounts are in parts of 1/60000.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The key's name.
    pub key: String,
    /// The server.
    pub holder: String,
    /// Requests a minute.
    pub requests_per_minute: Option<i64>,
    /// Tokens a minute.
    pub tokens_per_minute: Option<i64>,
    /// Requests at once on all servers, and how many this one runs with the new one.
    pub concurrent: Option<(i64, i64)>,
    /// Tokens that were used here since the last claim, in parts.
    pub spent: i64,
}

/// What is left of a key's limits for all servers, in parts of 1/60000, and whether the claim was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Whether the request may run.
    pub granted: bool,
    /// Of requests.
    pub requests: i64,
    /// Of tokens.
    pub tokens: i64,
}

/// Parts of one request.
const ONE: i64 = 60_000;
/// What stands for no limit; a level of its parts is far from the largest number.
const UNLIMITED: i64 = 1_000_000_000_000;

impl Store {
    /// Adds to what was used.
    ///
    /// # Errors
    /// When the store is down or full; nothing is added then.
    pub async fn add_usage(&self, rows: Vec<UsageRow>) -> Result<(), StoreError> {
        let sql = "INSERT INTO sconce_usage (hour, name, model, requests, input, cached, output) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (hour, name, model) DO UPDATE SET \
                   requests = sconce_usage.requests + excluded.requests, \
                   input = sconce_usage.input + excluded.input, \
                   cached = sconce_usage.cached + excluded.cached, \
                   output = sconce_usage.output + excluded.output";
        let statement = |UsageRow { hour, key, model, counts }: UsageRow| {
            let UsageCounts { requests, input, cached, output } = counts;
            let statement = Statement::new(sql).with(hour).with(key).with(model);
            statement.with(requests).with(input).with(cached).with(output)
        };
        // Servers that write the same rows do it in the same order, and none waits for another in a circle.
        let mut rows = rows;
        rows.sort_by(|a, b| (a.hour, &a.key, &a.model).cmp(&(b.hour, &b.key, &b.model)));
        self.run(rows.into_iter().map(statement).collect()).await.map(drop)
    }

    /// What was used from one hour to before another, `width` hours in a row, of one key or of all; at
    /// most `limit` rows in order of time, key and model.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn usage(
        &self,
        from: i64,
        to: i64,
        key: Option<&str>,
        width: i64,
        limit: i64,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let width = width.max(1);
        let of_key = if key.is_some() { "AND name = $5" } else { "" };
        let sums = ["requests", "input", "cached", "output"]
            .map(|column| format!("CAST(SUM({column}) AS BIGINT)"))
            .join(", ");
        let sql = format!(
            "SELECT hour / $3 * $3, name, model, {sums} FROM sconce_usage \
             WHERE hour >= $1 AND hour < $2 {of_key} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT $4"
        );
        let mut statement = Statement::new(sql).with(from).with(to).with(width).with(limit);
        if let Some(key) = key {
            statement = statement.with(key);
        }
        let read = |mut row: Row| UsageRow {
            hour: row.int(),
            key: row.text(),
            model: row.text(),
            counts: UsageCounts {
                requests: row.int(),
                input: row.int(),
                cached: row.int(),
                output: row.int(),
            },
        };
        Ok(self.rows(statement).await?.into_iter().map(read).collect())
    }

    /// Takes one request, and the tokens that were spent, out of what a key may use on all servers that
    /// share this store, which is a PostgreSQL database.
    ///
    /// # Errors
    /// When the store is down; nothing is taken then.
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let mut statements = vec![first(claim), settle(claim), take_one(claim)];
        if claim.concurrent.is_some() {
            statements.push(enter(claim));
        }
        if let Some(rows) = self.run(statements).await? {
            // The level before the request was taken.
            let [requests, tokens] = levels(&rows, 1);
            return Ok(Claimed { granted: true, requests: requests - ONE, tokens });
        }
        // Nothing was taken; the tokens were spent all the same.
        let rows = self.run(vec![first(claim), settle(claim)]).await?.unwrap_or_default();
        let [requests, tokens] = levels(&rows, 1);
        Ok(Claimed { granted: false, requests, tokens })
    }

    /// Tells how many requests of keys this server runs, and what their tokens came to.
    ///
    /// # Errors
    /// When the store is down; nothing is told then.
    pub async fn tell_claims(&self, claims: &[Claim]) -> Result<(), StoreError> {
        let mut statements = Vec::new();
        for claim in claims {
            statements.extend([first(claim), settle(claim)]);
            if let Some((_, running)) = claim.concurrent {
                let sql = "INSERT INTO sconce_running (name, holder, running, seen) \
                           VALUES ($1, $2, $3, $4) ON CONFLICT (name, holder) DO UPDATE SET \
                           running = excluded.running, seen = excluded.seen";
                let statement = Statement::new(sql).with(claim.key.as_str());
                let statement = statement.with(claim.holder.as_str()).with(running);
                statements.push(statement.with(now_ms()));
            }
        }
        let sql = "DELETE FROM sconce_running WHERE seen < $1";
        statements.push(Statement::new(sql).with(now_ms() - GONE));
        self.run(statements).await.map(drop)
    }

    /// Whether several servers may use this store at once.
    pub fn is_shared(&self) -> bool {
        !self.skip_locked().is_empty()
    }
}

/// Statements that remove usage that is too old, for [`Store::remove_expired`].
pub(super) fn expired() -> Statement {
    Statement::new("DELETE FROM sconce_usage WHERE hour < $1").with(now_ms() / HOUR - KEPT_HOURS)
}

fn limits(claim: &Claim) -> [i64; 2] {
    [claim.requests_per_minute, claim.tokens_per_minute]
        .map(|limit| limit.unwrap_or(UNLIMITED).clamp(1, UNLIMITED))
}

/// A key begins with all that it may use in a minute.
fn first(claim: &Claim) -> Statement {
    let [requests, tokens] = limits(claim);
    let sql = "INSERT INTO sconce_limits (name, at, requests, tokens) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (name) DO NOTHING";
    let statement = Statement::new(sql).with(claim.key.as_str()).with(now_ms());
    statement.with(requests * ONE).with(tokens * ONE)
}

/// Lets what a key may use grow with the time, and takes what was spent. The row stays locked until the
/// end of the transaction, so claims of one key come one after the other.
fn settle(claim: &Claim) -> Statement {
    let [requests, tokens] = limits(claim);
    // More than a minute's worth is never there, so a longer time is worth no more.
    let grown = |column: &str, limit: &str| {
        format!("LEAST({limit} * 60000, {column} + LEAST(600000, GREATEST(0, $2 - at)) * {limit})")
    };
    let sql = format!(
        "UPDATE sconce_limits SET requests = {}, tokens = {} - $5, at = GREATEST(at, $2) \
         WHERE name = $1 RETURNING requests, tokens",
        grown("requests", "CAST($3 AS BIGINT)"),
        grown("tokens", "CAST($4 AS BIGINT)"),
    );
    let statement = Statement::new(sql).with(claim.key.as_str()).with(now_ms());
    statement.with(requests).with(tokens).with(claim.spent)
}

/// Takes one request, if there is one and tokens for it.
fn take_one(claim: &Claim) -> Statement {
    let sql = "UPDATE sconce_limits SET requests = requests - $2 \
               WHERE name = $1 AND requests >= $2 AND tokens > 0 RETURNING requests";
    Statement::new(sql).with(claim.key.as_str()).with(ONE).must_hit()
}

/// Says that this server runs one more, if all together don't run too many then. Claims may arrive in
/// another order than they were counted in: the most stands until what runs is [told](Store::tell_claims).
fn enter(claim: &Claim) -> Statement {
    let (most, running) = claim.concurrent.unwrap_or((UNLIMITED, 0));
    let sql = "INSERT INTO sconce_running (name, holder, running, seen) \
               SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), CAST($4 AS BIGINT) \
               WHERE CAST($3 AS BIGINT) + (SELECT coalesce(CAST(SUM(running) AS BIGINT), 0) \
               FROM sconce_running WHERE name = $1 AND holder <> $2 AND seen > $5) <= $6 \
               ON CONFLICT (name, holder) DO UPDATE SET running = CASE \
               WHEN excluded.running > sconce_running.running THEN excluded.running \
               ELSE sconce_running.running END, seen = excluded.seen RETURNING running";
    let now = now_ms();
    let statement = Statement::new(sql).with(claim.key.as_str()).with(claim.holder.as_str());
    statement.with(running).with(now).with(now - GONE).with(most).must_hit()
}

/// What the statement of that number returned.
fn levels(rows: &[Vec<Row>], at: usize) -> [i64; 2] {
    let row = rows.get(at).and_then(|rows| rows.first()).cloned();
    row.map_or([0, 0], |mut row| [row.int(), row.int()])
}
