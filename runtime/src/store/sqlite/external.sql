-- Version 2 of the ledger: what only external operations need, beside the table that all
-- share. Their rows there have no result before they succeed.

CREATE TABLE idempotent_external (
    -- The row in `idempotent_operations`, `idempotent_receipts` from version 3; both end together.
    seq INTEGER PRIMARY KEY,
    operation_id BLOB NOT NULL UNIQUE,
    state TEXT NOT NULL,
    origin TEXT NOT NULL,
    cancel INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    first_attempt_at INTEGER,
    latest_at INTEGER NOT NULL,
    lease_owner BLOB,
    lease_began INTEGER,
    lease_until INTEGER,
    run_until INTEGER NOT NULL,
    due_at INTEGER,
    checks INTEGER NOT NULL,
    error_code TEXT,
    error_message TEXT,
    resolved_by TEXT,
    resolved_why TEXT,
    -- The arguments; null once no attempt can need them. Last: all else is read without it.
    request TEXT
) STRICT;

-- What a worker has to look at, and when.
CREATE INDEX idempotent_due ON idempotent_external (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE idempotent_attempts (
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempt_id BLOB NOT NULL,
    started_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    -- Whether it may have had an effect of which no more is known.
    in_doubt INTEGER NOT NULL,
    PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;
