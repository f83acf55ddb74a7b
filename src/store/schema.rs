//! The tables, version by version.

/// Statements that lead from one version to the next; `{serial}` and `{bytes}` are each database's
/// own types.
pub(super) const MIGRATIONS: &[&[&str]] = &[
    &[
        // Any object. `parent` is the object that it belongs to and goes with, or empty.
        "CREATE TABLE sconce_objects (
        seq {serial},
        kind TEXT NOT NULL,
        owner TEXT NOT NULL,
        parent TEXT NOT NULL,
        id TEXT NOT NULL,
        created BIGINT NOT NULL,
        expires BIGINT,
        revision BIGINT NOT NULL,
        body {bytes} NOT NULL,
        UNIQUE (kind, owner, parent, id)
    )",
        "CREATE INDEX sconce_objects_by_id ON sconce_objects (id)",
        "CREATE INDEX sconce_objects_by_parent ON sconce_objects (parent, kind, seq)",
        "CREATE INDEX sconce_objects_by_kind ON sconce_objects (kind, owner, seq)",
        "CREATE INDEX sconce_objects_by_end ON sconce_objects (expires)",
        // The contents of files, which are too large for one row.
        "CREATE TABLE sconce_chunks (
        file TEXT NOT NULL,
        number BIGINT NOT NULL,
        written BIGINT NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (file, number)
    )",
        // Requests that wait for their turn.
        "CREATE TABLE sconce_lines (
        batch TEXT NOT NULL,
        number BIGINT NOT NULL,
        custom_id TEXT NOT NULL,
        model TEXT NOT NULL,
        urgency BIGINT NOT NULL,
        state BIGINT NOT NULL,
        holder TEXT NOT NULL,
        lease BIGINT NOT NULL,
        ends BIGINT NOT NULL,
        body {bytes} NOT NULL,
        answer {bytes},
        PRIMARY KEY (batch, number)
    )",
        "CREATE INDEX sconce_lines_to_do ON sconce_lines (state, urgency, ends, batch, number)",
    ],
    &[
        // What keys used of models, by hours since 1970.
        "CREATE TABLE sconce_usage (
        hour BIGINT NOT NULL,
        name TEXT NOT NULL,
        model TEXT NOT NULL,
        requests BIGINT NOT NULL,
        input BIGINT NOT NULL,
        cached BIGINT NOT NULL,
        output BIGINT NOT NULL,
        PRIMARY KEY (hour, name, model)
    )",
        // What keys may use now on all servers together, in parts of 1/60000.
        "CREATE TABLE sconce_limits (
        name TEXT NOT NULL PRIMARY KEY,
        at BIGINT NOT NULL,
        requests BIGINT NOT NULL,
        tokens BIGINT NOT NULL
    )",
        // How many requests of keys run where.
        "CREATE TABLE sconce_running (
        name TEXT NOT NULL,
        holder TEXT NOT NULL,
        running BIGINT NOT NULL,
        seen BIGINT NOT NULL,
        PRIMARY KEY (name, holder)
    )",
    ],
];

/// The newest version.
pub(super) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// The statements that lead from `version` to the newest.
pub(super) fn missing(version: i64, serial: &str, bytes: &str) -> Vec<String> {
    let done = usize::try_from(version).unwrap_or_default();
    let statements = MIGRATIONS.iter().skip(done).flat_map(|statements| statements.iter());
    statements.map(|sql| sql.replace("{serial}", serial).replace("{bytes}", bytes)).collect()
}
