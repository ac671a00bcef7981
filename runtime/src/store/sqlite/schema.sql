-- Version 1 of the ledger. Its names start with `idempotent_`; `user_version` and
-- `application_id` belong to the application.

-- `schema` is the ledger's version; `fence` is raised to settle whether a lost commit happened.
CREATE TABLE idempotent_ledger (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Scopes by their text form. A row is never removed: ids are cached.
CREATE TABLE idempotent_scopes (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL UNIQUE
) STRICT;

-- Tools by name. A row is never removed: ids are cached.
CREATE TABLE idempotent_tools (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- What each version of a tool promised, as JSON.
CREATE TABLE idempotent_contracts (
    tool INTEGER NOT NULL,
    version INTEGER NOT NULL,
    contract TEXT NOT NULL,
    PRIMARY KEY (tool, version)
) STRICT, WITHOUT ROWID;

-- Receipts and tombstones, appended in the order of their commits.
-- A tombstone is a receipt whose operation, fingerprint and result are null.
-- A key that is a UUID in its usual form is kept as 16 bytes, any other as text.
-- Times are milliseconds since 1970. `result` is last: all else is read without it.
CREATE TABLE idempotent_operations (
    seq INTEGER PRIMARY KEY,
    operation_id BLOB,
    key ANY NOT NULL,
    scope INTEGER NOT NULL,
    tool INTEGER NOT NULL,
    version INTEGER NOT NULL,
    fingerprint BLOB,
    expires_at INTEGER NOT NULL,
    forget_at INTEGER NOT NULL,
    result TEXT
) STRICT;

-- The identity. Key first, as given: keys that are made in time order share pages.
CREATE UNIQUE INDEX idempotent_identity ON idempotent_operations (key, scope, tool);

INSERT INTO idempotent_ledger (name, value) VALUES ('schema', 1), ('fence', 0);
